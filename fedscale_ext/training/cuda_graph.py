"""A cohort's step recorded once as a CUDA graph: replaying it costs one launch instead of hundreds."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedscale_ext.training.cohort import CohortStep

_WARM_UP = 3  # steps before recording, in which libraries choose algorithms and allocate


class RecordedStep:
    """A :class:`CohortStep` on the GPU for batches of one shape. Recording trains: restore the cohort, then
    :meth:`restart`, before it is used."""

    def __init__(self, step: "CohortStep", x: Tensor, y: Tensor) -> None:
        self.clients = step.clients
        self._step, self._x, self._y = step, x, y
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                step(x, y)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._losses = step(x, y)

    def restart(self) -> None:
        """Begin anew, from the cohort's tensors as they are."""
        self._step.restart()

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """As the step itself; the losses are overwritten by the next call."""
        self._x.copy_(x)
        self._y.copy_(y)
        self._graph.replay()
        return self._losses
