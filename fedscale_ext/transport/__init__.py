"""How aggregator and executors exchange messages: bytes, signatures, leases, repeated calls."""

from fedscale_ext import compat

compat.prepare()
