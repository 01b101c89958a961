"""Networks of several clients side by side in one module."""
