"""Supernets: networks with a choice of operators in each layer."""
