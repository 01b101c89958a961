"""What an NVIDIA GPU makes of this package, in one command: ``python -m evals.speed.gpu``."""
