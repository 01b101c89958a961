"""The files in a job's folder, written while it runs and read again."""
