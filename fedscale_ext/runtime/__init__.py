"""The runtime on FedScale's classes, which can be imported once compat has made way for them."""

from fedscale_ext import compat

compat.prepare()
