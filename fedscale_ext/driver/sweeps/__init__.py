"""Sweeps: their plan, their jobs side by side, what is remembered and shown of them."""
