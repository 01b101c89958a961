"""A cohort's step recorded once as a CUDA graph: replaying it costs one launch instead of hundreds."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedscale_ext.training.cohort import CohortStep

_WARM_UP = 3  # steps before recording, in which libraries choose algorithms and allocate memory


# One stream for all recordings of a device: torch keeps 64 MB of workspace for each stream that multiplied matrices.
_side_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)
    return _side_streams[device]


def recorded_clients(clients: int, most: int) -> int:
    """Return for how many clients a step is recorded that trains ``clients`` of at most ``most``.

    It is the next power of two, or ``most``. Recording takes seconds and a replay milliseconds, while cohorts have
    another number of clients in every round.
    """
    return min(1 << (clients - 1).bit_length(), most)


class RecordedStep:
    """A :class:`CohortStep` on the GPU for batches of one shape.

    Recording trains the cohort. Restore the cohort and call :meth:`restart` before the first use.

    Args:
        step: The step to record.
        x: Samples [B, k, C, H, W]; their values are overwritten.
        y: Labels [B, k]; their values are overwritten.

    """

    def __init__(self, step: "CohortStep", x: Tensor, y: Tensor) -> None:
        self.clients = step.clients
        self._x, self._y = x, y
        self._parameters, self._optimizer = step.parameters, step.optimizer
        # The graph reads these, too. The step itself is not kept: it knows the cohort, which keeps this recording, and
        # such a cycle would hold a dropped cohort's memory until Python looks for cycles.
        self._graph_inputs = step.client, step.weight
        aside = _side_stream(x.device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                step(x, y)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._losses = step(x, y)

    def restart(self) -> None:
        """Restart the optimizer from the cohort's present tensors."""
        self._optimizer.restart(self._parameters)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take the step; the returned losses [k, B] are overwritten by the next call."""
        self._x.copy_(x)
        self._y.copy_(y)
        self._graph.replay()
        return self._losses
