"""FedScale's leaderboard: an entry by its rules, and the board with one's own rows."""
