"""Entry of a job's process without what guards a job: no signatures, signs of life or checks of results.

For :mod:`overhead` only. Checkpoints are left out by the configuration.
"""

from typing import Any

from fedscale_ext.entry import launch
from fedscale_ext.server import grpc_server
from fedscale_ext.tasks import train
from fedscale_ext.tasks.answers import update_checks as checks
from fedscale_ext.transport import executor_link as link


class _LetIn:
    """An interceptor that lets everything pass."""

    def __init__(self, *_: Any) -> None:
        pass

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        return continuation(details)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def strip() -> None:
    """Take it all out of this process."""
    link.SignedChannel = lambda channel, *_: channel  # type: ignore[misc, assignment]
    grpc_server.SignatureCheck = _LetIn  # type: ignore[misc, assignment]
    grpc_server.check_answer = _nothing  # type: ignore[assignment]
    checks.fault_in_state = _nothing  # type: ignore[assignment]
    train.check_training_report = checks.check_training_report = _nothing  # type: ignore[assignment]
    link.Link._live = _nothing  # type: ignore[method-assign]


if __name__ == "__main__":
    strip()
    launch.run_rank()
