"""Several jobs side by side: the arms that they make, what compares, and which arm is best in what."""
