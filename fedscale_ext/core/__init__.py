"""The words that all rooms exchange: types of a round, errors, reasons for failures, streams of random numbers."""
