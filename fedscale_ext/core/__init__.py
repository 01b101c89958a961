"""What all layers exchange: types of a round, errors, reasons for failures, streams of random numbers."""
