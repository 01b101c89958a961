"""How executors judge paths: a unit of the job that counts their correct answers on clients' validation samples.

A central search puts the samples of all clients together, a federated evaluation keeps each client's apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.methods.fedoras.search import Path
from fedscale_ext.methods.fedoras.validation import path_figures, validation_rows
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.tasks.evaluation_figures import COLUMNS, figures_section
from fedscale_ext.tasks.kind import Answer, Kind, Worker
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Unit, UnitHeader

EVENT = "judge"  # of such a unit, beside FedScale's events


def header_of(
    model: str, paths: Sequence[Path], share: float, recalibrate: bool, *,
    clients: Sequence[int] | None = None, judges: np.ndarray | None = None, fraction: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Header of a unit that judges paths.

    Args:
        model: Key of the network.
        paths: The paths.
        share: Share of samples that clients hold out.
        recalibrate: Whether BatchNorm's statistics are measured for each path.
        clients: Clients whose samples count, each by itself; None: all clients' samples together.
        judges: The paths that each client judges, bool [clients, paths]; None: all.
        fraction: Share of all clients' samples together that counts.

    Returns:
        JSON.

    """
    return {
        "model": model,
        "paths": [list(path) for path in paths],
        "share": share,
        "fraction": fraction,
        "recalibrate": recalibrate,
        "clients": None if clients is None else list(clients),
        "judges": None if judges is None else judges.astype(int).tolist(),
    }


class Judge(Kind):
    """Kind of work that judges paths: sums of :func:`path_figures` over sets of samples; 0 where none was requested."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        request: Mapping[str, Any] = header  # what header_of wrote
        module = cast(Searchable, worker.bench.module(request["model"]))
        paths, judges = [tuple(path) for path in request["paths"]], request["judges"]
        figures = []
        with worker.watch("evaluation"):
            for number, rows in enumerate(_samples(worker, request)):
                indices = list(range(len(paths))) if judges is None else np.flatnonzero(judges[number]).tolist()
                sums = np.zeros((len(paths), len(COLUMNS)))
                sums[indices] = path_figures(
                    module, [paths[index] for index in indices], _Batches(worker, rows),
                    recalibrate=request["recalibrate"],
                )  # fmt: skip
                figures.append(sums)
        return {}, {"figures": figures_section(np.concatenate(figures))}

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section], test_sizes: np.ndarray
    ) -> None:
        if sections.keys() != {"figures"}:
            raise wire.WireError("a judgement has one section, figures")


def _samples(worker: Worker, request: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """Row numbers of each set of samples, int64 [samples]."""
    data, share, seed = worker.data, request["share"], worker.seed
    if request["clients"] is not None:
        for client in request["clients"]:
            rows = data.train_rows(client)
            yield rows[hold_out(len(rows), share, seed, client)[1]]
        return
    held = validation_rows(data.train_sizes, share, seed, request["fraction"])
    yield np.concatenate([data.train_rows(client)[rows] for client, rows in enumerate(held, start=1)])


class _Batches:
    """Inputs and labels of rows, the same ones each time."""

    def __init__(self, worker: Worker, rows: np.ndarray) -> None:
        batch = worker.test_batch
        self._worker, self._parts = worker, [rows[start : start + batch] for start in range(0, len(rows), batch)]

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self._worker.bench.device
        for part in self._parts:
            x, y = self._worker.data.tensors(part)
            yield x.to(device), y.to(device)


def read_figures(sections: Mapping[str, wire.Section], counts: np.ndarray) -> np.ndarray:
    """Read the figures of a unit's result.

    Args:
        sections: Sections of the result.
        counts: Number of samples of each judgement, int64 [sets, paths].

    Returns:
        float64 [sets, paths, 3].

    Raises:
        WireError: The sections cannot be such a result.

    """
    if sections.keys() != {"figures"}:
        raise wire.WireError("a judgement has one section, figures")
    figures = np.stack(wire.columns(sections["figures"], COLUMNS, torch.float64), axis=-1)
    if len(figures) != counts.size:
        raise wire.WireError(f"{len(figures)} judgements, {counts.size} were asked for")
    figures = figures.reshape(*counts.shape, len(COLUMNS))
    correct = figures[..., 0]
    if not ((correct >= 0) & (correct <= counts) & (correct % 1 == 0)).all():  # of a NaN it is refused too
        raise wire.WireError("figures that no count of samples can have")
    return figures
