"""The clients' optimizers."""
