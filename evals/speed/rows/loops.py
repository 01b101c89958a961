"""Rounds in forked one-thread processes, those of FedAvg with shared flat weights: the frame of `limit` and `tight`.

A model's floating-point state (parameters, then BatchNorm's running statistics) is one flat vector. Whole
numbers (BatchNorm's counter of batches, which nothing reads when a momentum is set) are not part of it.
"""

import multiprocessing
from collections.abc import Callable
from itertools import pairwise
from threading import BrokenBarrierError
from typing import Protocol

import torch
from torch import Tensor, nn

from evals.speed.task import BATCH, Spans

_LIMIT_S = 3600.0  # for one round


class Trainer(Protocol):
    """Trains one client after another on a resident model; made once in each process."""

    def load(self, flat: Tensor) -> None: ...

    def train(self, x: Tensor, y: Tensor) -> None: ...

    def add_to(self, total: Tensor, weight: float) -> None: ...


def tensors(module: nn.Module) -> list[Tensor]:
    """What the flat vector holds, in its order."""
    return [*module.parameters(), *(buffer for buffer in module.buffers() if buffer.is_floating_point())]


def slices(parts: list[Tensor]) -> list[slice]:
    """Where each of the tensors lies in the flat vector."""
    ends = torch.tensor([0, *(part.numel() for part in parts)]).cumsum(0).tolist()
    return [slice(begin, end) for begin, end in pairwise(ends)]


def flat(module: nn.Module) -> Tensor:
    """The flat vector of a model."""
    return torch.cat([part.detach().flatten() for part in tensors(module)])


def batches(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """A client's samples cut into batches."""
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


def run(
    trainer: Callable[[], Trainer], weights: Tensor, x: Tensor, y: Tensor, rounds: int, processes: int
) -> tuple[Tensor, Spans]:
    """Train ``rounds`` rounds from the flat ``weights`` on x [clients, samples, ...], y [clients, samples].

    Process p takes clients p, p + processes, ...; returns the final weights and when each round ran.
    """
    shared = weights.clone().share_memory_()
    totals = torch.zeros(processes, len(weights)).share_memory_()

    def share(rank: int) -> Callable[[], None]:
        mine = trainer()

        def train() -> None:
            totals[rank].zero_()
            for client in range(rank, len(x), processes):
                mine.load(shared)
                mine.train(x[client], y[client])
                mine.add_to(totals[rank], 1 / len(x))

        return train

    spans = in_processes(share, rounds, processes, after=lambda: torch.sum(totals, 0, out=shared))
    return shared, spans


def in_processes(
    share: Callable[[int], Callable[[], None]], rounds: int, processes: int, after: Callable[[], object] = lambda: None
) -> Spans:
    """Run rounds in forked one-thread processes, which begin and end each together; return when each ran.

    Args:
        share: Called once in each process with its number; returns what the process does in each round.
        rounds: Number of rounds.
        processes: Number of processes.
        after: Called here after each round, as a part of it.

    """
    context = multiprocessing.get_context("fork")
    torch.set_num_threads(1)
    start, done = context.Barrier(processes + 1), context.Barrier(processes + 1)

    def work(rank: int) -> None:
        try:
            train = share(rank)
            for _ in range(rounds):
                start.wait(_LIMIT_S)
                train()
                done.wait(_LIMIT_S)
        except BaseException:
            start.abort()
            done.abort()
            raise

    workers = [context.Process(target=work, args=(rank,), daemon=True) for rank in range(processes)]
    for worker in workers:
        worker.start()
    spans = Spans()
    try:
        for _ in range(rounds):
            spans.begin()
            start.wait(_LIMIT_S)
            done.wait(_LIMIT_S)
            after()
            spans.end()
    except BrokenBarrierError:
        raise SystemExit("a training process failed or took more than an hour for a round") from None
    for worker in workers:
        worker.join()
    return spans
