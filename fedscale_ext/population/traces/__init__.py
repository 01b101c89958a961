"""Traces of devices as files and columns: reading, checks, writing, statistics, resampling, matching to clients."""
