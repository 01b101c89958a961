"""Clients train parts of one model: fewer channels, fewer layers."""
