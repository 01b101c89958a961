"""The fixtures of jobs of fake processes, as the driver's tests have them."""

from driver.conftest import FAKES, ROOT, call, done, fedscale, state, write_conf

__all__ = ["FAKES", "ROOT", "call", "done", "fedscale", "state", "write_conf"]
