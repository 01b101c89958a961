"""The methods, by family: what is selected, assigned, aggregated and served in each."""
