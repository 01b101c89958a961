"""Closes FedScale's methods that pickle or unpickle, so that this package cannot call them by accident."""

from typing import Any, NoReturn


class NoPickle:
    """A base class to put before FedScale's Aggregator or Executor.

    ``transport/wire.py`` reads and writes messages, ``population/traces/reading.py`` reads traces. A message that
    FedScale's own code would unpickle never reaches it.
    """

    def deserialize_response(self, responses: Any) -> NoReturn:
        """FedScale unpickles a message here."""
        raise _closed("deserialize_response")

    def serialize_response(self, responses: Any) -> NoReturn:
        """FedScale pickles a message here."""
        raise _closed("serialize_response")

    def load_client_profile(self, file_path: Any) -> NoReturn:
        """FedScale unpickles a trace here."""
        raise _closed("load_client_profile")


def _closed(name: str) -> RuntimeError:
    return RuntimeError(f"FedScale's {name} is closed: it goes through pickle")
