"""Clients trained side by side equal clients trained one after another."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.methods.submodel.exit_levels import MultiExitClient
from fedscale_ext.models.families.genotype import OPERATIONS
from fedscale_ext.models.layers.dropout import Dropout
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort

from .cohorts import CPU, EXITS, FAMILIES, SHAPE, Halved, Odd, Perceptron, both_ways, conf, exits, nasbench, samples


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cohort_equals_its_clients_one_after_another(family: str) -> None:
    assert both_ways(FAMILIES[family], [20, 31, 5]) < 1e-9


@pytest.mark.parametrize("backbone", EXITS)
@pytest.mark.parametrize("counts", [[20, 31, 5], [2, 20, 3, 1]])
def test_exits_are_trained_together_alike(backbone: str, counts: list[int]) -> None:
    spec = exits(backbone)
    assert both_ways(lambda: models.build(spec), counts, trainer=MultiExitClient, own_classes=True) < 1e-9
    assert both_ways(lambda: models.build(spec.replace(exits=2)), counts, trainer=MultiExitClient, clip_norm=0.5) < 1e-9


@pytest.mark.parametrize("backbone", EXITS)
@pytest.mark.parametrize("counts", [[20, 31, 5], [2, 20, 3, 1]])
def test_clients_draw_the_same_masks_of_dropout_alone_and_together(backbone: str, counts: list[int]) -> None:
    spec = exits(backbone, dropout=0.4, bias=True)
    torch.manual_seed(5)
    assert both_ways(lambda: models.build(spec), counts, trainer=MultiExitClient) < 1e-9


def test_clients_who_leave_early_do_not_disturb_the_masks_of_others() -> None:
    spec = exits("cnn", dropout=0.4)
    worst = both_ways(lambda: models.build(spec), [20, 20, 3], trainer=MultiExitClient, steps=[20, 7, 3])
    assert worst < 1e-9


@pytest.mark.parametrize(
    "changes",
    [
        {"prox_mu": 0.3},
        {"clip_norm": 0.2},
        {"client_momentum": 0.0},
        {"client_momentum": 0.0, "client_weight_decay": 0.0, "prox_mu": 0.3, "clip_norm": 0.5},
    ],
)
def test_every_part_of_the_optimiser_is_per_client(changes: dict[str, object]) -> None:
    assert both_ways(FAMILIES["nasbench201"], [12, 9], **changes) < 1e-9


@pytest.mark.parametrize("family", ["cnn", "nasbench201", "mixed", "resnet", "mobilenetv3", "vit"])
def test_clients_with_less_than_a_batch_are_masked_exactly(family: str) -> None:
    assert both_ways(FAMILIES[family], [2, 20, 3, 1]) < 1e-9


@pytest.mark.parametrize("family", ["nasbench201", "odd"])
def test_clients_with_fewer_steps_leave_early(family: str) -> None:
    assert both_ways(FAMILIES[family], [20, 20, 20, 20], steps=[20, 20, 7, 3]) < 1e-9


@pytest.mark.parametrize("family", [FAMILIES["cnn"], Perceptron])
@pytest.mark.parametrize(
    "changes",
    [
        {"client_momentum": 0.0, "client_weight_decay": 0.0},
        {"client_momentum": 0.9, "client_weight_decay": 0.01},
        {"client_momentum": 0.5, "client_weight_decay": 0.01, "prox_mu": 0.3},
        {"client_momentum": 0.0, "client_weight_decay": 0.01, "prox_mu": 0.3},
    ],
)
def test_factors_of_a_linear_layer_equal_its_weights(
    family: Callable[[], nn.Module], changes: dict[str, object]
) -> None:
    assert both_ways(family, [20, 31, 5], factored=True, **changes) < 1e-9
    assert both_ways(family, [2, 20, 3, 1], factored=True, **changes) < 1e-9  # ragged batches


def test_factors_of_clients_who_leave_early() -> None:
    assert both_ways(FAMILIES["cnn"], [20, 20, 20, 20], factored=True, steps=[20, 20, 7, 3]) < 1e-9


def test_a_single_value_per_channel_is_an_error_as_it_is_alone() -> None:
    deep = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Flatten(1), nn.Linear(4, 4))
    network = stacked(copy.deepcopy(deep), SHAPE)
    assert isinstance(network, Stacked)
    cohort, confs = Cohort(network, deep, SHAPE, 2, CPU, channels_last=True), [conf(0), conf(1)]
    for counts in ((20, 1), (1, 1)):
        data = [samples(client, count, torch.float32) for client, count in enumerate(counts)]
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            MultiModelClient(confs[0], NO_BENCH).train_cohort(data, cohort, confs)


class Tapping(MultiModelClient):
    """Its loss calls the tapped layer, too."""

    tap = "second"

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        return self.losses(output, labels) + self.tapped(features.detach().flip(-1)).square().mean(-1)


def test_a_tapped_layer_keeps_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_ways(Perceptron, [20, 31, 5], factored=True, trainer=Tapping) < 1e-9
    monkeypatch.setattr(Stacked, "sharable", lambda *_: ["second.weight"])
    with pytest.raises(RuntimeError, match="called twice"):  # rather than lose a gradient
        both_ways(Perceptron, [20, 31, 5], factored=True, trainer=Tapping)


class NotReached(Perceptron):
    """No backward pass comes to the first layer, whose bias is frozen, nor to another whose output is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first.bias.requires_grad_(False)
        self.unused = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.unused(x.flatten(1))
        return super().forward(x)


def test_a_layer_without_a_backward_pass_keeps_weights() -> None:
    assert both_ways(NotReached, [20, 31, 5], factored=True) < 1e-9


def test_layers_that_are_called_twice_or_have_no_bias_are_not_factored() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(self.a(x.flatten(1))))

    twice, perceptron = stacked(Twice(), SHAPE), stacked(Perceptron(), SHAPE)
    assert isinstance(twice, Stacked) and twice.sharable() == ["b.weight"]
    assert isinstance(perceptron, Stacked) and perceptron.sharable() == ["first.weight", "second.weight"]


def test_layers_that_share_a_weight_have_no_cohort_form() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.a(x.flatten(1))))

    assert stacked(Tied(), SHAPE) is None


def test_one_step_in_float32_is_equal_to_rounding() -> None:
    assert both_ways(FAMILIES["nasbench201"], [20, 4, 7], torch.float32, local_steps=1) < 1e-5


def test_networks_with_stacked_layers_use_them() -> None:
    for family in FAMILIES.keys() - {"nasbench201 without a way", "odd", "odd layers", "one channel for all"}:
        assert isinstance(stacked(FAMILIES[family](), SHAPE), Stacked), family
    assert isinstance(stacked(Odd(), SHAPE), Mapped)


def test_every_operation_of_a_cell_has_a_stacked_form() -> None:
    for operation in OPERATIONS[1:]:
        arch = f"|{operation}~0|+|none~0|none~1|+|none~0|nor_conv_1x1~1|none~2|"
        assert isinstance(stacked(nasbench(arch)(), SHAPE), Stacked), operation


def test_a_network_that_draws_has_no_cohort_form() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(functional.dropout(x.flatten(1), 0.5, self.training))

    assert stacked(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4)), SHAPE) is None
    assert stacked(Functional(), SHAPE) is None
    assert stacked(nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 4)), SHAPE) is not None


class Small(nn.Module):
    """A convolution, BatchNorm and a linear layer, for the tests to change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 4, 4), nn.BatchNorm2d(4), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.relu(self.norm(self.conv(x))).flatten(1))


class Frozen(Small):
    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self.norm.eval()
        return self


class WithoutGradient(Small):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = functional.relu(self.norm(self.conv(x)))
        return self.linear(x.flatten(1))


class Keyword(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(self.conv(input=x)).flatten(1))


class Gated(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return self.linear(torch.mul(x, other=x[:, :1]).flatten(1))


class Cast(Small):
    """Its code asks for float32, in which the trial runs then."""

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(self.conv(x.to(torch.float32))).flatten(1))


class Average(Small):
    def __init__(self) -> None:
        super().__init__()
        self.norm.momentum = None  # the mean of all steps' statistics


class Counting(Small):
    """Sets another buffer in each step."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return super().forward(x)


def hooked(register: Callable[[Small], object]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        module = Small()
        register(module)
        return module

    return build


def normed(norm: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    return hooked(lambda module: norm(module.conv))


def test_a_network_that_casts_to_float32_trains_in_cohorts() -> None:
    assert isinstance(stacked(Cast(), SHAPE), Mapped)


UNUSUAL: dict[str, tuple[Callable[[], nn.Module], type | None]] = {
    "a frozen BatchNorm": (Frozen, None),  # a cohort would count its steps
    "no gradient": (WithoutGradient, Mapped),
    "a new buffer": (Counting, None),  # which a cohort would leave as it was
    "a new integer": (lambda: Counting(torch.int64), None),
    "a keyword": (Keyword, Mapped),
    "a tensor by keyword": (Gated, Mapped),
    "a mean of all steps": (Average, None),
    "a hook": (hooked(lambda module: module.conv.register_forward_hook(lambda m, x, y: 3 * y)), Mapped),
    "a hook before": (hooked(lambda module: module.conv.register_forward_pre_hook(lambda m, x: (3 * x[0],))), Mapped),
    "a hook backward": (
        hooked(lambda module: module.linear.register_full_backward_hook(lambda m, x, y: tuple(g and 3 * g for g in x))),
        None,
    ),
    "a tensor's hook": (hooked(lambda module: module.conv.weight.register_hook(lambda gradient: 3 * gradient)), None),
    "a spectral norm": (normed(nn.utils.spectral_norm), None),
    "a weight norm": (normed(nn.utils.weight_norm), None),
    "a parametrized norm": (normed(nn.utils.parametrizations.weight_norm), Mapped),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_what_tracing_ignores_trains_in_a_cohort_as_alone_or_not_at_all(unusual: str) -> None:
    build, form = UNUSUAL[unusual]
    assert type(stacked(build(), SHAPE)) is (form or type(None))
    if form is not None:
        assert both_ways(build, [20, 20, 20]) < 1e-9


def test_only_dropout_by_streams_is_drawn_in_a_cohort_and_never_into_a_recorded_graph() -> None:
    for dropout in (0.0, 0.4):
        module = models.build(exits("cnn", dropout))
        network = stacked(module, SHAPE)
        assert isinstance(network, Stacked) and network.draws == bool(dropout)
        cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
        assert cohort.draws == bool(dropout) and not cohort.records
    unknown = nn.Sequential(Halved(1, 4, 3), nn.Flatten(), Dropout(0.5), nn.Linear(144, 4))
    assert stacked(unknown, SHAPE) is None  # no layer that a mask per client could be handed to


@pytest.mark.parametrize("count", [10, 3])
def test_a_client_whose_loss_is_not_finite_fails_alone(count: int) -> None:
    # with 3 samples the last client's batch has rows that are no samples
    module = FAMILIES["nasbench201"]()
    network = stacked(FAMILIES["nasbench201"](), SHAPE)
    assert network is not None
    data = [samples(0, 10, torch.float32), samples(1, 10, torch.float32), samples(2, count, torch.float32)]
    data[0].x[:] = float("nan")
    cohort = Cohort(network, module, SHAPE, 3, CPU, channels_last=True)
    cohort.restore(module.state_dict())
    second, first, third = MultiModelClient(conf(0), NO_BENCH).train_cohort(data, cohort, [conf(c) for c in range(3)])
    assert isinstance(second, FloatingPointError)
    assert isinstance(first, dict) and isinstance(third, dict)
    for tensor in cohort.trained([20, 20, 20]).values():
        assert bool(tensor[1].isfinite().all()) and bool(tensor[2].isfinite().all())


def test_ragged_batches_are_left_to_networks_that_can_mask_them() -> None:
    for family, takes in (("cnn", True), ("odd", False)):
        module = FAMILIES[family]()
        network = stacked(module, SHAPE)
        assert network is not None
        cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
        five, three = np.full(4, 5), np.full(4, 3)
        assert cohort.takes([five, five[:2]]) and cohort.takes([three, five]) == takes
