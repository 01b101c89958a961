"""Devices and clients as columns: traces, capacity, availability, virtual clock, selection."""
