"""Moss (Cai et al., IMWUT 2025): heterogeneous models that meet as proxies of one architecture on the server."""
