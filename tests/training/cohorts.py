"""Networks and samples of small cohorts, and their training side by side beside one after another."""

from collections.abc import Callable, Sequence

import torch
from client_settings import NO_BENCH, client_settings
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.families import mobilenetv3, resnet, vit
from fedscale_ext.models.families.nasbench201 import Cell, make
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.models.stacked.network import Stacked, stacked
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
    client = trainer(confs[0], NO_BENCH)
    names = network.sharable(trainer.tap) if factored and isinstance(network, Stacked) else []
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


class Perceptron(nn.Module):
    """Linear layers on the input itself, and on what another layer made; the last one has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.second = nn.Linear(12, 7)
        self.last = nn.Linear(7, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.second(functional.relu(self.first(x.flatten(1))))))
