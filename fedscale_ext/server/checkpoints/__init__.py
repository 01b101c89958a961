"""A job's state as a file, and back."""
