"""Clients trained side by side equal clients trained one after another."""

import gc
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from client_settings import client_settings
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.submodel.exit_levels import MultiExitClient
from fedscale_ext.models.dropout import Dropout
from fedscale_ext.models.families import mobilenetv3, resnet, vit
from fedscale_ext.models.families.genotype import OPERATIONS
from fedscale_ext.models.families.nasbench201 import Cell, make
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.training.augment import Augmentation
from fedscale_ext.training.cohort import CohortStep
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort, Resident
from fedscale_ext.training.samples import ClientSamples

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)


def conf(client: int, **changes: object) -> ClientConfig:
    return client_settings(client, **{"local_steps": 20, **changes})


def samples(client: int, count: int, dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> ClientSamples:
    generator = torch.Generator().manual_seed(client)
    return ClientSamples(
        torch.randn(count, *shape, generator=generator).to(dtype), torch.randint(0, 4, (count,), generator=generator)
    )


def nasbench(arch: str) -> Callable[[], nn.Module]:
    stages = [[Cell("a", arch, 4, True)], [Cell("b", arch, 6, True)]]
    return lambda: models.build(make(SHAPE, 4, 4, (6,), stages))


def resnet_of_two_blocks() -> nn.Module:
    blocks = [resnet.Block("a", 3, 4), resnet.Block("b", 5, 6, 2, True)]
    return models.build(resnet.make(SHAPE, 4, 4, blocks, 7, 1, pool=True))


def inverted_residuals(dense: bool) -> nn.Module:
    blocks = [
        mobilenetv3.Block("a", 3, 4, 4, 2, "relu", 1, "none", True),
        mobilenetv3.Block("b", 5, 6, 5, 0, "hardswish", 2, "conv", False),
        mobilenetv3.Block("c", 3, 7, 5, 3, "hardswish", 1, "adapter", True),
    ]
    return models.build(mobilenetv3.make(SHAPE, 4, 4, 1, blocks, 6, 5, dense))


class Odd(nn.Module):
    """Uses what has no stacked layer (a transposed convolution), and leaves a parameter unused."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(1, 3, 3)
        self.bn = nn.BatchNorm2d(3)
        self.linear = nn.Linear(3, 4)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.relu(self.bn(self.up(x))).amax((2, 3)))


class Mixed(nn.Module):
    """Every other stacked layer: group norm, groups, concatenation, adaptive pooling, a linear without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(1, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, 8)
        self.bn = nn.BatchNorm2d(8, affine=False, track_running_stats=False)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(32, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.bn(functional.relu(self.norm(torch.cat([x, self.b(x)], dim=1))))
        return self.linear(self.flatten(self.pool(x)))


class OneChannelForAll(nn.Module):
    """Spatial attention: a map of one channel times a map of many."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 3, padding=1)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return self.linear((x * torch.sigmoid(self.b(x))).mean((2, 3)))


class Halved(nn.Conv2d):
    """A layer that looks like torch's and is not."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


def odd_layers() -> nn.Module:
    return nn.Sequential(Halved(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


def exits(backbone: str, dropout: float = 0.0, bias: bool = False) -> ModelSpec:
    """Three exits, at most two halvings."""
    widths = {"vgg": [(3, 4)] * 4, "cnn": [(4,), (3,), (5,)], "mlp": [(6,), (5,), (4,), (7,)]}
    return multi_exit.make(
        backbone, SHAPE, 4, widths.get(backbone, [(3, 4), (4, 3), (5, 2)]), common=backbone in ("vgg", "mlp"),
        pools={"vgg": (True, False, True, False), "mlp": None}.get(backbone, (True, False, True)),
        dropout=dropout, bias=bias,
    )  # fmt: skip


EXITS = ("vgg", "resnet18", "cnn", "mlp")

FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: models.build(models.named_spec("cnn_small", SHAPE, 4)),
    "cnn with a scaler": lambda: models.build(models.named_spec("cnn_small", SHAPE, 4).replace(scale=0.5)),
    "nasbench201": nasbench("|nor_conv_3x3~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"),
    "nasbench201 without a way": nasbench("|none~0|+|none~0|none~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"),
    "resnet": resnet_of_two_blocks,
    "mobilenetv3": lambda: inverted_residuals(dense=False),
    "mobilenetv3 made dense": lambda: inverted_residuals(dense=True),
    "vit": lambda: models.build(vit.make(SHAPE, 4, [("a", 2), ("b", 3)], 3, 6, 2, 5)),  # patches that do not fit
    "vgg with its last exit": lambda: models.build(exits("vgg").replace(heads="last")),
    "mixed": Mixed,
    "odd": Odd,
    "odd layers": odd_layers,
    "one channel for all": OneChannelForAll,
}


def both_ways(
    build: Callable[[], nn.Module],
    counts: list[int],
    dtype: torch.dtype = torch.float64,
    records: bool = False,
    factored: bool = False,
    trainer: type[MultiModelClient] = MultiModelClient,
    steps: Sequence[int] = (),
    **changes: object,
) -> float:
    """Largest difference of any tensor or figure between the two ways of training."""
    torch.manual_seed(0)
    module = build().to(dtype)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = stacked(build().to(dtype), SHAPE)
    assert network is not None
    step_settings = [{"local_steps": count} for count in steps] or [{}] * len(counts)
    confs = [conf(client, **{**changes, **settings}) for client, settings in enumerate(step_settings)]
    data = [samples(client, count, dtype) for client, count in enumerate(counts)]
    client = trainer(confs[0])
    names = network.sharable() if factored and isinstance(network, Stacked) else []
    assert bool(names) == factored
    cohort = Cohort(network, module, SHAPE, len(counts), CPU, channels_last=True, factored=names)
    cohort.records = records
    for _ in range(2 if records else 1):  # the second time the recording is there already
        cohort.restore(start)
        together = client.train_cohort(data, cohort, confs)
    assert len(cohort.recorded) == int(records)
    resident = Resident(module, CPU, channels_last=True)
    begin = resident.start(start)
    worst = 0.0
    states = cohort.trained([settings.local_steps for settings in confs])
    for index, (settings, client_data, other) in enumerate(zip(confs, data, together, strict=True)):
        resident.restore(begin)
        alone = client.train(client_data, resident.module, settings)
        assert isinstance(other, dict)
        for name, tensor in alone["update_weight"].items():
            worst = max(worst, float((tensor - states[name][index]).abs().max()))
        assert alone["trained_size"] == other["trained_size"] and other["success"]
        worst = max(worst, *(abs(alone[figure] - other[figure]) for figure in ("moving_loss", "utility")))
        moved = max(float((alone["update_weight"][name] - start[name]).abs().max()) for name in start)
        assert moved > 1e-3
    return worst


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


class Perceptron(nn.Module):
    """Linear layers on the input itself, and on what another layer made; the last one has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.second = nn.Linear(12, 7)
        self.last = nn.Linear(7, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.second(functional.relu(self.first(x.flatten(1))))))


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
    second, first, third = MultiModelClient(conf(0)).train_cohort(data, cohort, [conf(c) for c in range(3)])
    assert isinstance(second, FloatingPointError)
    assert isinstance(first, dict) and isinstance(third, dict)
    for tensor in cohort.trained([20, 20, 20]).values():
        assert bool(tensor[1].isfinite().all()) and bool(tensor[2].isfinite().all())


class Recorded:
    """A recording without a GPU: warms up as one with a GPU does, then steps plainly."""

    def __init__(self, step: CohortStep, x: Tensor, y: Tensor) -> None:
        self.clients, self.step, self.restart = step.clients, step, step.restart
        for _ in range(3):
            step(x, y)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        assert x.shape[1] == y.shape[1] == self.clients  # a recording is of one shape
        self.step.parameters = self.step._cohort.bind(self.clients, None)  # another recording bound the network
        return self.step(x, y)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are recorded as on a GPU."""
    monkeypatch.setattr("fedscale_ext.training.cuda_graph.RecordedStep", Recorded)


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("changes", [{}, {"prox_mu": 0.3}])
def test_what_recording_a_graph_trains_is_undone(changes: dict[str, object]) -> None:
    assert both_ways(FAMILIES["nasbench201"], [20, 9], records=True, **changes) < 1e-9


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("augments", [False, True])
def test_few_sizes_of_cohorts_are_recorded_and_clients_stay_what_they_are_alone(augments: bool) -> None:
    module = FAMILIES["nasbench201"]()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = stacked(FAMILIES["nasbench201"](), SHAPE)
    assert network is not None
    cohort = Cohort(network, module, SHAPE, 6, CPU, channels_last=True)
    cohort.records = True
    resident = Resident(FAMILIES["nasbench201"](), CPU, channels_last=True)
    for count in (3, 1, 4, 5, 6, 2):
        plain = [samples(client, 20, torch.float32) for client in range(count)]
        flips = Augmentation(False, torch.zeros(1, 1, 1)) if augments else None
        data = [ClientSamples(client_data.x, client_data.y, flips) for client_data in plain]
        confs = [conf(client) for client in range(count)]
        client = MultiModelClient(confs[0])
        cohort.restore(start)
        results = client.train_cohort(data, cohort, confs)
        states = cohort.trained([20] * count)
        assert len(results) == count
        for row, (client_data, settings, together) in enumerate(zip(data, confs, results, strict=True)):
            resident.restore(resident.start(start))
            alone = client.train(client_data, resident.module, settings)
            assert isinstance(together, dict) and together["utility"] == pytest.approx(alone["utility"], rel=1e-3)
            for name, tensor in alone["update_weight"].items():
                torch.testing.assert_close(states[name][row], tensor, rtol=1e-3, atol=1e-4)
    assert sorted(recording.clients for recording in cohort.recorded.values()) == [1, 2, 4, 6]


def test_a_dropped_cohort_with_recorded_steps_frees_its_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(wait_stream=lambda other: None)
    graph = SimpleNamespace(replay=lambda: None)
    for name, stand_in in {
        "Stream": lambda device: stream, "current_stream": lambda: stream, "stream": lambda entered: nullcontext(),
        "CUDAGraph": lambda: graph, "graph": lambda recorded: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr("fedscale_ext.training.cuda_graph._side_streams", {})
    module = FAMILIES["nasbench201"]()
    network = stacked(FAMILIES["nasbench201"](), SHAPE)
    assert network is not None
    cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
    cohort.records = True
    cohort.restore(module.state_dict())
    MultiModelClient(conf(0)).train_cohort([samples(c, 20, torch.float32) for c in (0, 1)], cohort, [conf(0), conf(1)])
    assert len(cohort.recorded) == 1
    dropped = weakref.ref(cohort)
    gc.disable()
    try:
        del cohort
        assert dropped() is None
    finally:
        gc.enable()


def test_ragged_batches_are_left_to_networks_that_can_mask_them() -> None:
    for family, takes in (("cnn", True), ("odd", False)):
        module = FAMILIES[family]()
        network = stacked(module, SHAPE)
        assert network is not None
        cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
        five, three = np.full(4, 5), np.full(4, 3)
        assert cohort.takes([five, five[:2]]) and cohort.takes([three, five]) == takes
