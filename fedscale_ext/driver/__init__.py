"""Starts, supervises, checks and ends the processes of jobs and sweeps."""
