"""Clients prune or mask one model, each its own way."""
