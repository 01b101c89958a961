"""Planning and reducing an evaluation in columns equals doing it client by client."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.types import EvaluationPlan, Task
from fedscale_ext.data.store import open_data_set
from fedscale_ext.tasks import evaluation_figures as measures
from fedscale_ext.tasks.evaluate import Gathered, pairs_to_test
from fedscale_ext.tasks.evaluation_figures import COLUMNS


def plain_pairs(plan: EvaluationPlan, task: Task, most: int) -> list[tuple[str, list[int]]]:
    """Client by client, the next piece begun where a client no longer fits."""
    tested = [int(client) for client in np.flatnonzero(task.test_sizes > 0) + 1]
    clients_by_key: dict[str, list[int]] = dict.fromkeys(plan.named.values(), tested)
    for client in tested:
        key = plan.serve[client - 1]
        if key not in plan.named.values():
            clients_by_key.setdefault(key, []).append(client)
    pieces: list[tuple[str, list[int]]] = []
    for key, clients in clients_by_key.items():
        piece: list[int] = []
        samples = 0
        for client in clients:
            if piece and samples + task.test_sizes[client - 1] > most:
                pieces.append((key, piece))
                piece, samples = [], 0
            piece.append(client)
            samples += int(task.test_sizes[client - 1])
        pieces.append((key, piece))
    return [piece for piece in pieces if piece[1]]


@st.composite
def plans(draw: Any) -> tuple[EvaluationPlan, Task]:
    sizes = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=30)), dtype=np.int64)
    keys = st.sampled_from(["m0", "m1", "m2", "m0+m1", "m0+m1+m2"])  # ensembles are keys like any other
    serve = draw(st.lists(keys, min_size=len(sizes), max_size=len(sizes)))
    named = draw(st.dictionaries(st.sampled_from(["largest", "global", "same"]), keys, max_size=3))
    return EvaluationPlan(serve, named), Task((1, 8, 8), 4, sizes, sizes, 1, 1)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(job=plans(), most=st.integers(1, 40))
def test_pieces_are_those_of_the_plain_loop(job: tuple[EvaluationPlan, Task], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "_UNIT_SAMPLES", most)
        assert pairs_to_test(*job) == plain_pairs(*job, most)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(job=plans(), seed=st.integers(0, 99))
def test_figures_are_those_of_the_plain_sums(job: tuple[EvaluationPlan, Task], seed: int) -> None:
    plan, task = job
    rng = np.random.default_rng(seed)
    gathered = Gathered(plan, task)
    figures: dict[tuple[str, int], np.ndarray] = {}
    for key, clients in pairs_to_test(plan, task):
        rows = rng.random((len(clients), len(COLUMNS)))
        gathered.add(key, clients, rows)
        figures |= {(key, client): row for client, row in zip(clients, rows, strict=True)}
    tested = [client for client in range(1, task.num_clients + 1) if task.test_sizes[client - 1]]
    total = max(1, task.test_sizes.sum())
    result = gathered.evaluation(3)
    assert result.round == 3 and result.serve == tuple(plan.serve)
    assert result.count.tolist() == task.test_sizes.tolist()
    for column, name in enumerate(COLUMNS):
        expected = np.zeros(task.num_clients)
        for client in tested:
            expected[client - 1] = figures[plan.serve[client - 1], client][column]
        assert getattr(result, name).tolist() == expected.tolist()
    assert result.named.keys() == plan.named.keys()
    for title, key in plan.named.items():
        sums = np.sum([figures[key, client] for client in tested], axis=0) if tested else np.zeros(3)
        assert result.named[title] == pytest.approx((sums[0] / total, sums[2] / total), rel=1e-12)


@pytest.mark.parametrize("batch", [7, 1000])
def test_an_ensembles_figures_are_those_of_its_mean_logits(tiny_femnist: Path, batch: int) -> None:
    data = open_data_set(tiny_femnist, "femnist")
    spec = models.named_spec("cnn_small", (1, 28, 28), data.num_classes)
    nets = []
    for seed in range(3):
        nets.append(models.build(spec))
        nets[-1].load_state_dict(models.initial_state(spec, seed))
    clients = [client for client in range(1, data.num_clients + 1) if len(data.test_rows(client))]
    device = torch.device("cpu")
    ensemble = measures.test_clients(nets, data, clients, batch, device).figures
    resident = models.build(spec)  # an executor holds the members in one module, one after another

    def one_by_one() -> Any:
        for net in nets:
            resident.load_state_dict(net.state_dict())
            yield resident

    assert np.array_equal(measures.test_clients(one_by_one(), data, clients, batch, device).figures, ensemble)
    for client, figures in zip(clients, ensemble, strict=True):
        x, y = data.tensors(data.test_rows(client))
        with torch.no_grad():
            logits = torch.stack([net.eval()(x).double() for net in nets]).mean(0)
        ranked = logits.argsort(dim=1, descending=True)
        expected = [
            (ranked[:, 0] == y).sum(),
            (ranked[:, :5] == y[:, None]).sum(),
            torch.nn.functional.cross_entropy(logits, y, reduction="sum"),
        ]
        assert figures == pytest.approx([float(value) for value in expected], rel=1e-5)
    alone = [measures.test_clients([net], data, clients, batch, device).figures for net in nets]
    assert not any(np.allclose(one[:, 2], ensemble[:, 2], rtol=1e-3) for one in alone)
