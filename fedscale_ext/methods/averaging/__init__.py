"""One model for all clients: FedAvg and its variants."""
