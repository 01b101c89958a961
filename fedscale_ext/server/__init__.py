"""The aggregator: one round from selection to record, and the hooks of methods."""

from fedscale_ext import compat

compat.prepare()
