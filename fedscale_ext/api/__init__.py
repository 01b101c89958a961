"""What Python programs and notebooks use: run a job, load its result."""
