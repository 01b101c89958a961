"""Clients that keep a model of their own."""
