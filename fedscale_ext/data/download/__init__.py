"""Data sets from the network: where they are, how they are brought here whole, and what is unpacked of them."""
