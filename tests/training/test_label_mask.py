"""Clients that learn their own classes only."""

from pathlib import Path

import pytest
import torch
from client_settings import NO_BENCH
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.tasks.reduction import UnitSum
from fedscale_ext.training.label_mask import class_axes, masked, present
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples

from . import cohorts
from .cohorts import FAMILIES, SHAPE, both_ways, conf

SPEC = models.named_spec("cnn_small", SHAPE, 4)


@pytest.mark.parametrize("name", ["cnn", "nasbench201", "odd"])
def test_a_cohort_equals_clients_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [7, 6, 9] if name == "odd" else [7, 3, 5, 1]
    monkeypatch.setattr(cohorts, "samples", few_classes)
    assert both_ways(FAMILIES[name], counts, own_classes=True) < 1e-9
    steps = {} if name == "odd" else {"steps": [6, 5, 2, 2]}
    if steps:
        monkeypatch.setattr(cohorts, "conf", own_conf)
        assert both_ways(FAMILIES[name], counts, **steps) < 1e-9


def own_conf(client: int, **changes: object):
    return conf(client, own_classes=True, **changes)


def few_classes(client: int, count: int, dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> ClientSamples:
    generator = torch.Generator().manual_seed(client)
    y = torch.randint(0, 2, (count,), generator=generator) + client % 3
    return ClientSamples(torch.randn(count, *shape, generator=generator).to(dtype), y)


def trained(own_classes: bool, y: Tensor) -> dict[str, Tensor]:
    model = models.build(SPEC)
    model.load_state_dict(models.initial_state(SPEC, 1))
    data = ClientSamples(torch.randn(len(y), *SHAPE, generator=torch.Generator().manual_seed(0)), y)
    settings = conf(1, own_classes=own_classes, client_weight_decay=0.0)
    return MultiModelClient(settings, NO_BENCH).train(data, model, settings)["update_weight"]


def test_rows_of_absent_classes_do_not_move() -> None:
    start, y = models.initial_state(SPEC, 1), torch.tensor([0, 2, 2, 0, 2, 0])
    restricted, plain = trained(True, y), trained(False, y)
    for name in ("linear2.weight", "linear2.bias"):
        assert torch.equal(restricted[name][[1, 3]], start[name][[1, 3]])
        assert not torch.equal(plain[name][[1, 3]], start[name][[1, 3]])
        assert not torch.equal(restricted[name][[0, 2]], start[name][[0, 2]])
    every = torch.arange(4).repeat(2)
    assert all(torch.equal(value, trained(False, every)[name]) for name, value in trained(True, every).items())


def test_absent_logits_are_zero_in_the_loss() -> None:
    output = torch.tensor([[1.0, 5.0, 2.0]], requires_grad=True)
    there = present([torch.tensor([0, 2])], 3)
    assert there.tolist() == [[True, False, True]]
    zeroed = masked(output, there[0])
    assert zeroed.tolist() == [[1.0, 0.0, 2.0]]
    loss = torch.nn.functional.cross_entropy(zeroed, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(loss, output)
    assert gradient[0, 1] == 0 and gradient[0, 0] != 0


def test_a_class_counts_the_weight_of_those_who_have_it() -> None:
    assert class_axes(SPEC) == {"linear2.weight": 0, "linear2.bias": 0}
    start = models.initial_state(SPEC, 1)
    total = UnitSum(start, spec=SPEC)
    states = {name: torch.stack([value + 1, value + 2, value + 4]) for name, value in start.items()}
    classes = torch.tensor([[True, False, False, True], [True, True, False, False], [True, True, True, True]])
    total.add(states, [1.0, 10.0, None], classes)
    assert total.class_weight is not None and total.class_weight.tolist() == [11.0, 10.0, 0.0, 1.0]
    change = total.change()
    assert change["linear2.bias"].tolist() == pytest.approx([21.0, 20.0, 0.0, 1.0], abs=1e-4)
    torch.testing.assert_close(change["conv1.bias"], torch.full_like(start["conv1.bias"], 21.0), atol=1e-4, rtol=0)


def test_the_jobs_key_reaches_the_clients(job_file: Path) -> None:
    """Nobody has a class above 3: those rows stay as they were."""
    import fedscale_ext

    moved = {}
    for own_classes in (False, True):
        name = f"own{own_classes}"
        fedscale_ext.run(
            job_file, model="cnn_small", rounds=1, own_classes=own_classes, client_weight_decay=0, job_name=name
        )
        spec, state = load_model(job_file.parent / "logs" / name / "logs" / "models" / "global.safetensors")
        start = models.initial_state(spec, 1)
        moved[own_classes] = (state["linear2.bias"] != start["linear2.bias"]).tolist()
    assert all(moved[False])
    assert any(moved[True][:4]) and not any(moved[True][4:])
