"""How executors judge paths: a unit of the job that says what they get right on clients' validation samples.

A central search puts the samples of all clients together, a federated evaluation keeps each client's apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.executor.unit_work import UnitWork, figures_section
from fedscale_ext.methods.fedoras.search import Path
from fedscale_ext.methods.fedoras.validation import path_figures, validation_rows
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.tasks.evaluation import COLUMNS
from fedscale_ext.transport import wire

EVENT = "judge"  # of such a unit, beside FedScale's events


def header_of(
    model: str, paths: Sequence[Path], share: float, recalibrate: bool, *,
    clients: Sequence[int] | None = None, judges: np.ndarray | None = None, fraction: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """What a unit asks for. ``clients``: whose samples, each by itself; None: those of all, put together, of which
    ``fraction`` counts. ``judges`` bool [clients, paths]: what each is asked for; None: all."""
    return {
        "model": model,
        "paths": [list(path) for path in paths],
        "share": share,
        "fraction": fraction,
        "recalibrate": recalibrate,
        "clients": None if clients is None else list(clients),
        "judges": None if judges is None else judges.astype(int).tolist(),
    }


def judge(work: UnitWork, header: Mapping[str, Any], batch: int, seed: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Do a unit: sums [sets of samples x paths] of what :func:`path_figures` gives, 0 where nobody was asked."""
    module = cast(Searchable, work.bench.module(header["model"]))
    paths, judges = [tuple(path) for path in header["paths"]], header["judges"]
    figures = []
    with work.watch("evaluation"):
        for number, rows in enumerate(_samples(work, header, seed)):
            asked = list(range(len(paths))) if judges is None else np.flatnonzero(judges[number]).tolist()
            own = np.zeros((len(paths), len(COLUMNS)))
            own[asked] = path_figures(
                module, [paths[place] for place in asked], _Batches(work, rows, batch),
                recalibrate=header["recalibrate"],
            )  # fmt: skip
            figures.append(own)
    return {}, {"figures": figures_section(np.concatenate(figures))}


def _samples(work: UnitWork, header: Mapping[str, Any], seed: int) -> Iterator[np.ndarray]:
    """Row numbers of each set of samples."""
    data, share = work.data, header["share"]
    if header["clients"] is not None:
        for client in header["clients"]:
            rows = data.train_rows(client)
            yield rows[hold_out(len(rows), share, seed, client)[1]]
        return
    held = validation_rows(data.train_sizes, share, seed, header["fraction"])
    yield np.concatenate([data.train_rows(client)[rows] for client, rows in enumerate(held, start=1)])


class _Batches:
    """Inputs and labels of rows, the same ones each time."""

    def __init__(self, work: UnitWork, rows: np.ndarray, batch: int) -> None:
        self._work, self._parts = work, [rows[start : start + batch] for start in range(0, len(rows), batch)]

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self._work.bench.device
        for part in self._parts:
            x, y = self._work.data.tensors(part)
            yield x.to(device), y.to(device)


def read_figures(sections: Mapping[str, wire.Section], counts: np.ndarray) -> np.ndarray:
    """float64 [sets, paths, 3] of a unit's result; ``counts`` int64 [sets, paths]: samples that each was asked about.

    WireError where it cannot be that.
    """
    if sections.keys() != {"figures"}:
        raise wire.WireError("a judgement has one section, figures")
    found = np.stack(wire.columns(sections["figures"], COLUMNS, torch.float64), axis=-1)
    if len(found) != counts.size:
        raise wire.WireError(f"{len(found)} judgements, {counts.size} were asked for")
    found = found.reshape(*counts.shape, len(COLUMNS))
    correct = found[..., 0]
    if not ((correct >= 0) & (correct <= counts) & (correct % 1 == 0)).all():  # of a NaN it is refused too
        raise wire.WireError("figures that no count of samples can have")
    return found
