"""Helpers that know nothing of federated learning: reading files, checking values, digests, threads."""
