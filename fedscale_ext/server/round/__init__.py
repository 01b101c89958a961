"""The steps of a round: what is sent, collected, in time, recorded, and whether it is the last."""
