"""Answers of executors: their sections, and the checks of whoever sent them."""
