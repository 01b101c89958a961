import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from evals.speed.data import prepare
from evals.speed.rows import loops
from evals.speed.rows.limit import Limit
from evals.speed.rows.tight import Tight
from evals.speed.task import RATE, Task
from evals.speed.workload import checksum, module, samples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("speed"), clients=3, train=20, test=1)


def trained(trainer: loops.Trainer, weights: Tensor, folder: Path, rounds: int) -> Tensor:
    """The frame's rounds in this process, in the precision of the weights."""
    x, y = map(torch.from_numpy, samples(folder))
    x = x.to(weights.dtype)
    for _ in range(rounds):
        total = torch.zeros_like(weights)
        for client in range(len(x)):
            trainer.load(weights)
            trainer.train(x[client], y[client])
            trainer.add_to(total, 1 / len(x))
        weights = total
    return weights


@pytest.mark.parametrize("model", ["cnn_small", "nasbench201_base"])
def test_limit_and_tight_train_the_same_weights(model: str, folder: Path) -> None:
    start = loops.flat(module(model).double())
    limit = trained(Limit(module(model).double()), start, folder, 2)
    tight = trained(Tight(module(model).double()), start, folder, 2)
    assert not torch.allclose(limit, start, atol=1e-3)
    assert torch.allclose(limit, tight, atol=1e-9, rtol=0)


def test_limit_and_tight_train_the_same_weights_in_single_precision(folder: Path) -> None:
    # without BatchNorm, which magnifies the rounding of noise
    start = loops.flat(module("cnn_small"))
    limit, tight = (trained(kind(module("cnn_small")), start, folder, 2) for kind in (Limit, Tight))
    assert torch.allclose(limit, tight, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", ["cnn_small", "nasbench201_base"])
def test_they_are_federated_averaging(model: str, folder: Path) -> None:
    x, y = map(torch.from_numpy, samples(folder))
    states = []
    for client in range(len(x)):
        network = module(model).double()
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
        for images, labels in loops.batches(x[client].double(), y[client]):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
        states.append(loops.flat(network))
    start = loops.flat(module(model).double())
    result = trained(Tight(module(model).double()), start, folder, 1)
    assert torch.allclose(result, torch.stack(states).mean(0), atol=1e-9, rtol=0)


@pytest.mark.parametrize("row", ["limit", "tight"])
def test_the_script_in_two_processes_does_the_same(row: str, folder: Path, tmp_path: Path) -> None:
    arguments = Task("cnn_small", 1, folder, tmp_path).argv()
    command = [sys.executable, "-m", f"evals.speed.rows.{row}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    result = json.loads((tmp_path / "rounds.json").read_text(encoding="utf-8"))
    here = trained(Tight(module("cnn_small")), loops.flat(module("cnn_small")), folder, 2)
    assert len(result["rounds"]) == len(result["seconds"]) == 1
    assert result["checksum"] == pytest.approx(checksum([here]), rel=1e-6)
