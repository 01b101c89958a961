"""FedScale's methods that pickle or unpickle, closed: nothing of this package may run into them by accident."""

from typing import Any, NoReturn


class NoPickle:
    """Put before FedScale's Aggregator or Executor. What crosses the wire is transport/wire.py's, traces are read by
    population/traces.py, and a message that FedScale's own code would unpickle never gets there."""

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
