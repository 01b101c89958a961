"""The executor: keeps data and models in memory and does the work that it is given."""

from fedscale_ext import compat

compat.prepare()
