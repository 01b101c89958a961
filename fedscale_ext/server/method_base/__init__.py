"""What every method inherits: hooks, tools, traits, and the checks of what hooks return."""
