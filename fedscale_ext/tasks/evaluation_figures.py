"""What is measured when a model is tested on clients' samples, in large batches, reduced per client.

With ``mask_test``, a unit's figures have three further columns (:data:`MASKED_COLUMNS`): the same test with the logits
of classes that the client has no training samples of set to zero. They are what counts for the model that a client is
served; the plain ones count for global models, and are also reported.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.auc import AucSums, auc_sums, log_odds
from fedscale_ext.core.confusion import Confusion, of_samples
from fedscale_ext.data.store import DataSet
from fedscale_ext.training.label_mask import masked, present
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import UnitHeader

_UNIT_SAMPLES = 4096  # samples of one unit: large batches, yet enough units for several executors
_FEW_SIZES = ("cuda",)  # types of devices on which batches of tests have few sizes
COLUMNS = ("correct", "top5", "loss")
MASKED_COLUMNS = ("masked_correct", "masked_top5", "masked_loss")
MASK: Final = "mask_test"  # in the header of a unit whose figures have them


def pieces(clients: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Cut clients, in their order, into pieces of at most _UNIT_SAMPLES samples, or of one client."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(clients):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _UNIT_SAMPLES, side="right")))
        yield clients[start:stop]
        start = stop


class Tested(NamedTuple):
    """A test of some clients: ``figures`` float64 [clients, 3] or [clients, 6], the others where they were requested.

    The columns are correct answers, labels among the five largest logits, and summed loss. With ``mask_test``, the same
    three with masked logits follow.
    """

    figures: np.ndarray
    confusion: Confusion | None = None
    auc: AucSums | None = None


@torch.no_grad()
def test_clients(
    models: Iterable[nn.Module],
    data: DataSet,
    clients: Sequence[int],
    batch: int,
    device: torch.device,
    mask: bool = False,
    classes: int | None = None,
    scored: Collection[int] = (),
) -> Tested:
    """Test models on each client's test samples. Of several models the mean logits count; one is in use at a time.

    Samples are counted by true and predicted class, of ``classes`` classes; None: not counted. With ``mask``, logits
    are also masked, and predictions are those of masked logits. AUC is of the clients that are among ``scored``.
    """
    rows = [data.test_rows(client) for client in clients]
    owner = torch.from_numpy(np.repeat(np.arange(len(clients)), [len(client_rows) for client_rows in rows]))
    every = np.concatenate(rows)
    logits = torch.zeros(0)
    for number, model in enumerate(models):
        model_logits = outputs(model, data, every, batch, device)
        logits = logits + (model_logits - logits) / (number + 1) if number else model_logits
    there = classes_present(data, clients)[owner] if mask else None
    labels = data.labels(every)
    figures = client_figures(logits, labels, there)
    sums = torch.zeros(len(clients), figures.shape[1], dtype=torch.float64).index_add_(0, owner, figures).numpy()
    if classes is None:
        return Tested(sums)
    logits = logits if there is None else masked(logits, there)
    predicted = ranked(logits)[:, 0]
    confusion = of_samples(owner.numpy(), labels.numpy(), predicted.numpy(), len(clients), classes)
    counts = np.array([client in scored for client in clients])
    if not counts.any():
        return Tested(sums, confusion)
    index = np.cumsum(counts) - 1  # of a client among those that count
    chosen = torch.from_numpy(counts)[owner]
    mine = index[owner[chosen].numpy()]
    auc = auc_sums(mine, labels[chosen].numpy(), log_odds(logits[chosen]), int(counts.sum()))
    return Tested(sums, confusion, auc)


def ranked(logits: Tensor) -> Tensor:
    """Return the classes of the five largest logits of each sample, the largest first, int64 [samples, up to 5].

    Of equal logits, as ``mask_test`` makes them, the lowest class comes first.
    """
    count, classes = min(5, logits.shape[1]), logits.shape[1]
    values, top = logits.topk(min(count + 1, classes), dim=1)  # which orders equal logits in any way
    ties = (values[:, 1:] == values[:, :-1]).any(1)
    ranks = top[:, :count]
    ranks[ties] = logits[ties].sort(dim=1, descending=True, stable=True).indices[:, :count]
    return ranks


def classes_present(data: DataSet, clients: Sequence[int]) -> Tensor:
    """Return the classes of which each client has training samples, bool [clients, classes]."""
    return present([data.labels(data.train_rows(client)) for client in clients], data.num_classes)


@torch.no_grad()
def outputs(model: nn.Module, data: DataSet, rows: np.ndarray, batch: int, device: torch.device) -> Tensor:
    """Compute logits [rows, classes] of a model in evaluation mode, float32 on the CPU, in batches of ``batch``."""
    model.eval()
    parts = (rows[start : start + batch] for start in range(0, len(rows), batch))
    return torch.cat([_part_outputs(model, data, part, batch, device) for part in parts])


def _part_outputs(model: nn.Module, data: DataSet, rows: np.ndarray, batch: int, device: torch.device) -> Tensor:
    """Compute logits of at most ``batch`` rows.

    cuDNN prepares each layer anew for each number of samples, which takes longer than the test of a batch. So devices
    in _FEW_SIZES test a last batch with its last sample repeated, up to a power of two.
    """
    size = min(1 << (len(rows) - 1).bit_length(), batch) if device.type in _FEW_SIZES else len(rows)
    x = data.batch(np.pad(rows, (0, size - len(rows)), mode="edge"))
    logits: Tensor = model(x.to(device))[: len(rows)].float().cpu()
    return logits


def client_figures(logits: Tensor, labels: Tensor, there: Tensor | None = None) -> Tensor:
    """Return correct, among the first five, and loss of each sample, float64 [samples, 3].

    With ``there`` (bool, broadcastable to [samples, classes]), the same follow with logits of zero where it is False:
    float64 [samples, 6].
    """
    if there is not None:
        return torch.cat([client_figures(logits, labels), client_figures(masked(logits, there), labels)], dim=1)
    right = ranked(logits) == labels[:, None]
    columns = [right[:, 0], right.any(1), functional.cross_entropy(logits, labels, reduction="none")]
    return torch.stack([column.double() for column in columns], dim=1)


def figures_section(figures: np.ndarray) -> bytes:
    """Write clients' figures, float64 [clients, 3] or [clients, 6], as a section."""
    names = (COLUMNS + MASKED_COLUMNS)[: figures.shape[1]]
    columns = {name: torch.from_numpy(np.ascontiguousarray(figures[:, i])) for i, name in enumerate(names)}
    return wire.tensors_to_bytes(columns)


def read_figures(header: UnitHeader, section: wire.Section) -> np.ndarray:
    """Read the result of :func:`figures_section` for the unit of a header; WireError for other columns."""
    names = COLUMNS + MASKED_COLUMNS if header.get(MASK) else COLUMNS
    return np.stack(wire.columns(section, names, torch.float64), axis=1)


def counted(figures: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the figures [clients, 3] of the served models, and the unmasked correct answers [clients], if any."""
    plain = len(COLUMNS)
    return (figures[:, plain:], figures[:, 0]) if figures.shape[1] > plain else (figures, None)
