"""Client-level differential privacy: clipped changes, Gaussian noise on their sums, and the epsilon that they cost."""
