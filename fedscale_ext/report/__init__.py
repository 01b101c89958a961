"""Tables, plots and pages of one job or many."""
