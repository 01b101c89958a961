"""Selection of a round's participants: at random, by Oort, by PyramidFL."""
