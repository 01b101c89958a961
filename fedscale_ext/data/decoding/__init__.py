"""From the file of a sample to an array: pictures, speech and features, decoded once and cached."""
