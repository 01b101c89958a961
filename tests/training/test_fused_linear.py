"""Large linear layers that step block by block equal those that step as any other parameter."""

import pytest
import torch
from client_settings import NO_BENCH
from torch import Tensor, nn

from fedscale_ext.training import fused_linear
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples

from .cohorts import conf


class Net(nn.Module):
    """``odd``: what one of its layers does that must keep it from stepping by itself."""

    def __init__(self, odd: str = "") -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 30), nn.Linear(30, 30, bias=False), nn.Linear(30, 4)
        self.odd = odd
        self.unused = nn.Linear(12, 30)
        if odd == "first without bias":
            self.a = nn.Linear(12, 30, bias=False)
        if odd == "shared weight":
            self.again = nn.Linear(30, 30, bias=False)
            self.again.weight = self.b.weight
        if odd == "hook":
            self.b.weight.register_hook(lambda gradient: gradient / 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(torch.relu(self.a(x)))
        if self.odd == "called twice":
            x = self.b(x)
        if self.odd == "weight used again":
            x = x @ self.b.weight
        if self.odd == "shared weight":
            x = self.again(x)
        return self.c(torch.relu(x))


def trained(monkeypatch: pytest.MonkeyPatch, large: int, odd: str = "", **changes: object) -> dict[str, Tensor]:
    monkeypatch.setattr(fused_linear, "LARGE", large)
    monkeypatch.setattr(fused_linear, "_BLOCK", 100)  # several blocks, the last one smaller
    torch.manual_seed(3)
    model = Net(odd).double()
    generator = torch.Generator().manual_seed(1)
    data = ClientSamples(
        torch.randn(20, 12, generator=generator, dtype=torch.float64), torch.randint(0, 4, (20,), generator=generator)
    )
    settings = conf(1, **changes)
    stepped: list[int] = []
    plain = fused_linear.FusedWeight.step
    monkeypatch.setattr(
        fused_linear.FusedWeight, "step", lambda self, x, g: (stepped.append(len(self.weight)), plain(self, x, g))[1]
    )
    result = MultiModelClient(settings, NO_BENCH).train(data, model, settings)
    monkeypatch.setattr(fused_linear.FusedWeight, "step", plain)
    assert not any("forward" in vars(part) for part in model.modules())
    return {
        **{name: tensor.detach().clone() for name, tensor in model.state_dict().items()},
        "loss": torch.tensor(result["moving_loss"], dtype=torch.float64),
        "stepped": torch.tensor(len(stepped)),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prox_mu": 0.3},
        {"client_momentum": 0.0},
        {"client_momentum": 0.0, "client_weight_decay": 0.0, "prox_mu": 0.3},
    ],
)
def test_fused_steps_equal_plain_ones(monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]) -> None:
    fused = trained(monkeypatch, 1, **changes)
    plain = trained(monkeypatch, 10**9, **changes)
    assert int(fused.pop("stepped")) == 3 * 19 and int(plain.pop("stepped")) == 0  # all but the first step
    for name, tensor in plain.items():
        assert float((tensor - fused[name]).abs().max()) < 1e-12, name


def test_with_clipping_no_layer_steps_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert int(trained(monkeypatch, 1, clip_norm=0.1)["stepped"]) == 0


@pytest.mark.parametrize("odd", ["called twice", "shared weight", "weight used again", "hook", "first without bias"])
def test_a_layer_that_cannot_step_by_itself_steps_as_others_do(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    fused, plain = trained(monkeypatch, 1, odd), trained(monkeypatch, 10**9, odd)
    assert int(fused.pop("stepped")) == 2 * 19
    for name in plain.keys() - {"stepped"}:
        assert float((plain[name] - fused[name]).abs().max()) < 1e-12, name
