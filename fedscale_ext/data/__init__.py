"""Data sets in FedScale's layout: reading, caching, importing, partitioning, generating, checking."""
