"""What systems share that exchange knowledge as outputs on public data (FedMD, FedDF, DS-FL, FedGEMS, Fed-ET)."""
