"""Messages between aggregator and executors: bytes, signatures, leases, repeated calls."""

from fedscale_ext import compat

compat.prepare()
