"""Each client tested on its own model: grouped by model, in large batches, reduced per client.

With ``mask_test``, a unit's figures have three further columns (:data:`MASKED_COLUMNS`): the same test with the logits
of classes that the client has no training samples of set to zero. They are what counts for the model that a client is
served; the plain ones count for global models, and stand beside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.types import Evaluation, EvaluationPlan, Task
from fedscale_ext.data.store import DataSet
from fedscale_ext.training.label_mask import masked, present
from fedscale_ext.transport import wire

_UNIT_SAMPLES = 4096  # samples of one unit: large batches, yet enough units for several executors
COLUMNS = ("correct", "top5", "loss")
MASKED_COLUMNS = ("masked_correct", "masked_top5", "masked_loss")
MASK = "mask_test"  # in the header of a unit whose figures have them


def pairs_to_test(plan: EvaluationPlan, task: Task) -> list[tuple[str, list[int]]]:
    """(model key, clients) pieces that cover a plan; they do not depend on the number of executors.

    A client's samples run once per model, also where the model it is served is a named one too.
    """
    named = list(dict.fromkeys(plan.named.values()))
    tested = np.flatnonzero(task.test_sizes > 0)
    keys, places = served(plan)
    own = places[tested]
    present, first = np.unique(own, return_index=True)
    wanted = [(key, tested) for key in named]
    wanted += [(keys[k], tested[own == k]) for k in present[np.argsort(first)] if keys[k] not in named]
    return [(key, piece.tolist()) for key, rows in wanted for piece in pieces(rows + 1, task.test_sizes[rows])]


def pieces(clients: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Clients in their order, cut so that a piece has at most _UNIT_SAMPLES samples, or one client."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(clients):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _UNIT_SAMPLES, side="right")))
        yield clients[start:stop]
        start = stop


def served(plan: EvaluationPlan) -> tuple[list[str], np.ndarray]:
    """The keys of the models that are served, and the place of each client's among them, int64 [clients]."""
    place = {key: place for place, key in enumerate(dict.fromkeys(plan.serve))}
    return list(place), np.fromiter(map(place.__getitem__, plan.serve), np.int64, len(plan.serve))


@torch.no_grad()
def test_clients(
    models: Iterable[nn.Module],
    data: DataSet,
    clients: Sequence[int],
    batch: int,
    device: torch.device,
    mask: bool = False,
) -> np.ndarray:
    """float64 [clients, 3]: correct, among the first five, and summed loss over each client's test samples; [clients,
    6] with ``mask``, the same three with masked logits behind them.

    Of several models the mean logits count; each is done with before the next is asked for.
    """
    rows = [data.test_rows(client) for client in clients]
    owner = torch.from_numpy(np.repeat(np.arange(len(clients)), [len(own) for own in rows]))
    every = np.concatenate(rows)
    logits = torch.zeros(0)
    for number, model in enumerate(models):
        found = outputs(model, data, every, batch, device)
        logits = logits + (found - logits) / (number + 1) if number else found
    there = classes_present(data, clients)[owner] if mask else None
    figures = client_figures(logits, data.labels(every), there)
    return torch.zeros(len(clients), figures.shape[1], dtype=torch.float64).index_add_(0, owner, figures).numpy()


def classes_present(data: DataSet, clients: Sequence[int]) -> Tensor:
    """bool [clients, classes]: of which classes each client has training samples."""
    return present([data.labels(data.train_rows(client)) for client in clients], data.num_classes)


@torch.no_grad()
def outputs(model: nn.Module, data: DataSet, rows: np.ndarray, batch: int, device: torch.device) -> Tensor:
    """Logits [rows, classes] of a model in evaluation mode, float32 on the CPU; ``batch`` samples at a time."""
    model.eval()
    parts = (data.tensors(rows[start : start + batch])[0] for start in range(0, len(rows), batch))
    return torch.cat([model(x.to(device)).float().cpu() for x in parts])


def client_figures(logits: Tensor, labels: Tensor, there: Tensor | None = None) -> Tensor:
    """float64 [samples, 3]: correct, among the first five, and loss; behind them the same with logits of zero where
    ``there`` (bool, broadcastable to [samples, classes]) is False, where it is given: [samples, 6]."""
    if there is not None:
        return torch.cat([client_figures(logits, labels), client_figures(masked(logits, there), labels)], dim=1)
    ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    columns = [ranked[:, 0], ranked.any(1), functional.cross_entropy(logits, labels, reduction="none")]
    return torch.stack([column.double() for column in columns], dim=1)


def figures_section(figures: np.ndarray) -> bytes:
    """A section for what clients reached, float64 [clients, 3] or [clients, 6]."""
    names = (COLUMNS + MASKED_COLUMNS)[: figures.shape[1]]
    columns = {name: torch.from_numpy(np.ascontiguousarray(figures[:, i])) for i, name in enumerate(names)}
    return wire.tensors_to_bytes(columns)


def read_figures(header: Mapping[str, Any], section: wire.Section) -> np.ndarray:
    """What :func:`figures_section` wrote for the unit of this header; WireError where it has other columns."""
    names = COLUMNS + MASKED_COLUMNS if header.get(MASK) else COLUMNS
    return np.stack(wire.columns(section, names, torch.float64), axis=1)


def counted(figures: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """[clients, 3] that count for what clients are served; correct answers [clients] without the mask, if any."""
    plain = len(COLUMNS)
    return (figures[:, plain:], figures[:, 0]) if figures.shape[1] > plain else (figures, None)


class Gathered:
    """Reduces what units report to what each client is served and to the named models, without keeping it. ``mask``:
    figures have masked columns, too."""

    def __init__(self, plan: EvaluationPlan, task: Task, mask: bool = False) -> None:
        self._plan, self._task = plan, task
        self._unmasked = np.zeros(task.num_clients) if mask else None
        keys, self._served = served(plan)
        self._place = {key: place for place, key in enumerate(keys)}
        self._columns = np.zeros((task.num_clients, len(COLUMNS)))
        self._named = {key: np.zeros(len(COLUMNS)) for key in plan.named.values()}
        self._named_correct = {key: np.zeros(task.num_clients) for key in plan.named.values()}
        self._count = task.test_sizes.copy()
        self._named_count = dict.fromkeys(self._named, int(task.test_sizes.sum()))

    def add(self, key: str, clients: Sequence[int], figures: np.ndarray) -> None:
        """Take in the figures [clients, 3 or 6] of a model on the test samples of these clients."""
        rows = np.asarray(clients) - 1
        mine = self._served[rows] == self._place.get(key, -1)
        self._columns[rows[mine]], unmasked = counted(figures[mine])
        if self._unmasked is not None and unmasked is not None:
            self._unmasked[rows[mine]] = unmasked
        if key in self._named:
            self._named[key] += figures[:, : len(COLUMNS)].sum(axis=0)
            self._named_correct[key][rows] = figures[:, 0]

    def miss(self, key: str, clients: Sequence[int]) -> None:
        """These clients could not be tested on a model: they count as clients without test samples."""
        rows = np.asarray(clients) - 1
        if key in self._named:
            self._named_count[key] -= int(self._task.test_sizes[rows].sum())
            self._named_correct[key][rows] = np.nan
        self._count[rows[self._served[rows] == self._place.get(key, -1)]] = 0

    def evaluation(self, round: int) -> Evaluation:
        """The evaluation of ``round``, once all pieces of :func:`pairs_to_test` were added."""
        named = {}
        for title, key in self._plan.named.items():
            correct, _, loss = self._named[key] / max(1, self._named_count[key])
            named[title] = float(correct), float(loss)
        correct, top5, loss = self._columns.T
        by_client = {title: self._named_correct[key] for title, key in self._plan.named.items()}
        serve = tuple(self._plan.serve)
        return Evaluation(round, serve, correct, top5, loss, self._count, named, by_client, self._unmasked)
