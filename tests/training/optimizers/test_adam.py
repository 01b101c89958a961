"""Adam's steps against torch's, alone and in cohorts."""

import math
from typing import Any

import pytest
import torch
from client_settings import NO_BENCH, client_settings
from torch import nn

from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.optimizers.adam import Adam
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.samples import ClientSamples
from training.cohorts import FAMILIES, Perceptron, both_ways

ADAM = {"client_optimizer": "adam", "learning_rate": 0.01}
# where a gradient is zero but for rounding (keys' biases), Adam makes steps of the rounding's sign
NOT_OF_ROUNDING = {**ADAM, "adam_eps": 1e-4}


@pytest.mark.parametrize(
    "changes", [{}, {"client_weight_decay": 0.0}, {"adam_beta1": 0.5, "adam_beta2": 0.9, "adam_eps": 1e-3}]
)
def test_twenty_steps_equal_torchs(changes: dict[str, Any]) -> None:
    settings = client_settings(**{**ADAM, "client_weight_decay": 0.01, **changes})
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (4,), ()]
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    theirs = [nn.Parameter(tensor.clone()) for tensor in start]
    betas = (settings.adam_beta1, settings.adam_beta2)
    decay = settings.client_weight_decay
    expected = torch.optim.Adam(theirs, 0.01, betas, settings.adam_eps, weight_decay=decay)
    ours = [tensor.clone() for tensor in start]
    steps = optimizer_of(settings).begin(ours)
    for _ in range(20):
        gradients = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        copies = [gradient.clone() for gradient in gradients]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        expected.step()
        steps.step(ours, gradients)
        assert all(torch.equal(one, other) for one, other in zip(gradients, copies, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        assert float((one - other.detach()).abs().max()) < 1e-12
    steps.restart(ours)
    assert steps.taken == 0 and not any(bool(moment.any()) for moment in [*steps.mean, *steps.square])


def test_the_prox_term_and_clipping_come_before_the_moments() -> None:
    parameter = torch.tensor([3.0, -2.0], dtype=torch.float64)
    steps = Adam(0.1, 0.9, 0.999, 1e-8, 0.0, 0.5, 1.0).begin([parameter])
    parameter += 4.0
    steps.step([parameter], [torch.zeros(2, dtype=torch.float64)])
    pulled = torch.tensor([2.0, 2.0], dtype=torch.float64) / (math.sqrt(8) + 1e-6)
    assert torch.allclose(steps.mean[0], 0.1 * pulled, atol=1e-12)


def test_nothing_moves_at_a_rate_of_zero() -> None:
    parameter = torch.ones(2)
    Adam(0.0, 0.9, 0.999, 1e-8, 0.01, 0.0, None).begin([parameter]).step([parameter], [torch.ones(2)])
    assert torch.equal(parameter, torch.ones(2))


@pytest.mark.parametrize(
    ("family", "settings"), [("cnn", ADAM), ("resnet", ADAM), ("vit", NOT_OF_ROUNDING), ("odd", ADAM)]
)
def test_a_cohort_equals_its_clients_one_after_another(family: str, settings: dict[str, Any]) -> None:
    assert both_ways(FAMILIES[family], [20, 31, 5], **settings) < 1e-9


@pytest.mark.parametrize("changes", [{"prox_mu": 0.3}, {"clip_norm": 0.2}])
def test_ragged_clients_are_exact(changes: dict[str, Any]) -> None:
    assert both_ways(FAMILIES["resnet"], [2, 20, 3, 1], **ADAM, **changes) < 1e-9
    assert both_ways(FAMILIES["cnn"], [20, 20, 20, 20], **ADAM, **changes, steps=[20, 20, 7, 3]) < 1e-9


def test_large_linear_layers_do_not_step_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.training.fused_linear.LARGE", 1)
    with pytest.raises(ValueError, match="only under SGD"):  # can_factor asks for factors under SGD alone
        both_ways(Perceptron, [20, 5], factored=True, **ADAM)
    settings = client_settings(**ADAM, local_steps=1, client_weight_decay=0.0)
    model = nn.Linear(6, 3).double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    data = ClientSamples(torch.randn(5, 6, dtype=torch.float64), torch.arange(5) % 3)
    MultiModelClient(settings, NO_BENCH).train(data, model, settings)
    for parameter, start in zip(model.parameters(), before, strict=True):  # Adam's first step has the rate's length
        assert torch.allclose((parameter - start).abs(), torch.full_like(start, 0.01), rtol=1e-4)
