"""The method mymethod for fedscale_ext."""
