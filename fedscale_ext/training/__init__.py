"""Local training of clients: an optimizer's steps on their samples, one client at a time or many at once."""

from fedscale_ext import compat

compat.prepare()
