"""Architecture search by gradients."""
