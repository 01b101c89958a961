"""Random changes of samples in training."""
