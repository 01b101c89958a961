"""The kinds of work that the aggregator gives to executors: what is asked, how it is done, how answers are checked."""

from fedscale_ext import compat

compat.prepare()
