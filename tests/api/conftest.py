"""The command, as the driver's tests call it."""

from driver.conftest import call, state

__all__ = ["call", "state"]
