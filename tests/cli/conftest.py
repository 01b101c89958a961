"""The fixtures of jobs of fake processes, as the driver's tests have them."""

from driver.conftest import ROOT, call, done, fedscale, state, write_conf

__all__ = ["ROOT", "call", "done", "fedscale", "state", "write_conf"]
