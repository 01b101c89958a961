"""Figures of rounds on TensorBoard and Weights & Biases."""
