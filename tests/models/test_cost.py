"""The measured cost against closed formulas (multiply-accumulates per sample)."""

import pytest
import torch
from torch import nn

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.models.counting import measure


class Behind(nn.Module):
    """A layer behind a 1x1 scale, so that the gradient of its input is computed too."""

    def __init__(self, layer):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.layer = layer

    def forward(self, x):
        return self.layer(x * self.scale)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x):  # [B, tokens, width]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return (q @ k.transpose(1, 2)).softmax(-1) @ v


def on_meta(make):
    with torch.device("meta"):
        return make()


CONV = 6 * 4 * 3 * 3 * (8 * 7)  # out * in * kernel * positions
STRIDED = 6 * 4 * 3 * 3 * (4 * 4)
DEPTHWISE = 4 * 5 * 5 * (8 * 7)
GROUPED = 6 * (4 // 2) * 3 * 3 * (8 * 7)
TRANSPOSED = 4 * 6 * 2 * 2 * (8 * 7)  # in * out * kernel * input positions
LINEAR = 10 * 7


@pytest.mark.parametrize(
    ("make", "shape", "forward"),
    [
        (lambda: nn.Conv2d(4, 6, 3, padding=1), (4, 8, 7), CONV),
        (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), (4, 8, 7), STRIDED),
        (lambda: nn.Conv2d(4, 4, 5, padding=2, groups=4), (4, 8, 7), DEPTHWISE),
        (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 8, 7), GROUPED),
        (lambda: nn.ConvTranspose2d(4, 6, 2, stride=2), (4, 8, 7), TRANSPOSED),
        (lambda: nn.Linear(10, 7), (10,), LINEAR),
    ],
)
def test_a_layer_costs_its_formula_and_twice_that_backward(make, shape, forward):
    first, behind = measure(on_meta(make), shape), measure(on_meta(lambda: Behind(make())), shape)
    assert first.forward_macs == behind.forward_macs == forward
    assert first.training_macs == 2 * forward  # the gradient of the network's input is not computed
    assert behind.training_macs == 3 * forward


def test_costs_are_counted_while_the_caller_looks_for_nan():
    with torch.autograd.set_detect_anomaly(True):
        cost = measure(on_meta(lambda: nn.Linear(10, 7)), (10,))
        assert torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
    assert (cost.forward_macs, cost.training_macs) == (LINEAR, 2 * LINEAR)


def test_attention():
    tokens, width = 5, 8
    project, products = tokens * width * 3 * width, 2 * tokens * tokens * width
    cost = measure(on_meta(lambda: Attention(width)), (tokens, width))
    assert cost.forward_macs == project + products
    assert cost.training_macs == 2 * project + 3 * products


def test_parameters_and_bytes():
    module = on_meta(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    module[0].bias.requires_grad_(False)
    cost = measure(module, (1, 5, 5))
    assert cost.parameters == 18 + 2 + 2
    assert cost.bytes == 4 * (18 + 2 + 4 * 2) + 8  # and num_batches_tracked as int64


def test_base_by_hand():
    big, small = 28 * 28, 14 * 14
    stem, head = 9 * 8 * big, 16 * 62
    cells = 2 * 9 * (8 * 8 * big + 16 * 16 * small)
    reduction = small * (9 * 8 * 16 + 9 * 16 * 16 + 8 * 16)
    cost = models.cost(models.named_spec("nasbench201_base", (1, 28, 28), 62))
    forward = stem + cells + reduction + head
    assert cost == Cost(forward, 3 * forward - stem, cost.parameters, cost.bytes)


def test_what_the_counter_cannot_see_is_refused():
    with pytest.raises(UserError, match="no multiply-accumulates"):
        measure(on_meta(lambda: nn.BatchNorm2d(3)), (3, 4, 4))


def test_the_cost_of_a_spec_is_measured_once(monkeypatch):
    spec = models.named_spec("cnn_small", (1, 16, 16), 3)
    first = models.cost(spec)
    monkeypatch.setattr("fedscale_ext.models.families.cnn.build", lambda spec: pytest.fail("measured again"))
    assert models.cost(models.named_spec("cnn_small", (1, 16, 16), 3)) is first
