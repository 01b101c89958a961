"""Networks with several exits."""
