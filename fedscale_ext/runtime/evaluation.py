"""Each client tested on its own model: grouped by model, in large batches, reduced per client."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedscale_ext.data.store import DataSet
from fedscale_ext.runtime.work import Evaluation, EvaluationPlan, Task

_UNIT_SAMPLES = 4096  # test samples of one unit: large batches, yet enough units for several executors
COLUMNS = ("correct", "top5", "loss")


def pairs_to_test(plan: EvaluationPlan, task: Task) -> list[tuple[str, list[int]]]:
    """(model key, clients) pieces that cover a plan; they do not depend on the number of executors.

    A client's samples run once per model, also where the model it is served is a named one too.
    """
    tested = [int(client) for client in np.flatnonzero(task.test_sizes > 0) + 1]
    wanted: dict[str, list[int]] = dict.fromkeys(plan.named.values(), tested)
    for client in tested:
        key = plan.serve[client - 1]
        if key not in plan.named.values():
            wanted.setdefault(key, []).append(client)
    pieces: list[tuple[str, list[int]]] = []
    for key, clients in wanted.items():
        piece: list[int] = []
        samples = 0
        for client in clients:
            if piece and samples + task.test_sizes[client - 1] > _UNIT_SAMPLES:
                pieces.append((key, piece))
                piece, samples = [], 0
            piece.append(client)
            samples += int(task.test_sizes[client - 1])
        pieces.append((key, piece))
    return [piece for piece in pieces if piece[1]]


@torch.no_grad()
def test_clients(
    model: nn.Module, data: DataSet, clients: Sequence[int], batch: int, device: torch.device
) -> np.ndarray:
    """float64 [clients, 3]: correct, among the first five, and summed loss over each client's test samples."""
    model.eval()
    rows = [data.test_rows(client) for client in clients]
    owner = torch.from_numpy(np.repeat(np.arange(len(clients)), [len(own) for own in rows]))
    every = np.concatenate(rows)
    sums = torch.zeros(len(clients), len(COLUMNS), dtype=torch.float64)
    for start in range(0, len(every), batch):
        x, y = data.tensors(every[start : start + batch])
        output = model(x.to(device)).float().cpu()
        ranked = output.topk(min(5, output.shape[1]), dim=1).indices == y[:, None]
        columns = [ranked[:, 0], ranked.any(1), functional.cross_entropy(output, y, reduction="none")]
        figures = torch.stack([column.double() for column in columns], dim=1)
        sums.index_add_(0, owner[start : start + batch], figures)
    return sums.numpy()


def gather(round: int, plan: EvaluationPlan, task: Task, figures: Mapping[tuple[str, int], np.ndarray]) -> Evaluation:
    """Reduce figures per (model key, client) to what each client is served and to the named models."""
    columns = np.zeros((task.num_clients, len(COLUMNS)))
    tested = np.flatnonzero(task.test_sizes > 0) + 1
    for client in tested:
        columns[client - 1] = figures[plan.serve[client - 1], int(client)]
    total = max(1, int(task.test_sizes.sum()))
    named = {}
    for title, key in plan.named.items():
        correct, _, loss = sum((figures[key, int(client)] for client in tested), np.zeros(len(COLUMNS)))
        named[title] = (float(correct) / total, float(loss) / total)
    correct, top5, loss = columns.T
    return Evaluation(round, tuple(plan.serve), correct, top5, loss, task.test_sizes.copy(), named)
