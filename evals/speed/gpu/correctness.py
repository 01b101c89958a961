"""Whether a GPU trains what a CPU trains: the same clients, steps and batches, compared after training.

The distance of two trained states is the norm of their difference over the norm of what training changed, the largest
of all clients. For server steps it is taken of what they made.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from evals.hypemefed.hypernetwork_cost import drawn_states, shapes
from evals.speed import moss_server_step
from evals.speed.cohorts import conf, make_cohort
from evals.speed.gpu.measurements import Measurements, Setting
from evals.speed.task import CLASSES, SAMPLES, SHAPE
from evals.speed.workload import module
from fedscale_ext.core.types import State
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.methods.moss.proxy_models import Public
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Resident, channels_last_helps
from fedscale_ext.training.samples import ClientSamples

PART = "correctness"
CPU = torch.device("cpu")
MODELS = ("cnn_small", "cnn_leaf", "nasbench201_base")
CLIENTS, STEPS = 3, 5
# Devices and cohorts add the same numbers up in other orders, which rounding shows: float64 has 53 bits, float32 24.
# Steps with BatchNorm on batches of 10 amplify it: on a CPU, nasbench201_base in float32 is 6e-4 from float64, cnn_leaf
# 1.5e-6. TF32, torch's default for convolutions in float32, has 11 bits.
# An error of the mathematics (a wrong mask, batch or momentum) changes a tenth of the update or more.
TOLERANCES = {"float64": 1e-8, "float32": 1e-2, "tf32": 1e-1}
SERVER_TOLERANCES = {"Moss": 1e-6, "HypeMeFed": 5e-2}  # float64; float32 through Adam, which divides by small gradients
_EXPECTED_S = 6.0  # of one check


def run(measurements: Measurements) -> None:
    """Make all checks and write a line for each."""
    small, on_gpu = measurements.setting.small, measurements.setting.on_gpu
    for name in MODELS[:1] if small else MODELS:
        for precision in ("float64", "float32", "tf32") if on_gpu else ("float64", "float32"):
            _training(measurements, name, precision)
    if not on_gpu:
        measurements.note(PART, check="CUDA graphs, eager", left_out="a CPU has no CUDA graphs")
    _server_step(measurements, "Moss", "float64", _moss)
    _server_step(measurements, "HypeMeFed", "float32", _hypemefed)


def _training(measurements: Measurements, name: str, precision: str) -> None:
    """Check a model's training in all pairs of ways."""
    small = measurements.setting.small
    size = (2, 2) if small else (CLIENTS, STEPS)
    for check, ways in _pairs(measurements.setting).items():
        measurements.measure(
            PART, 0.0 if small else _EXPECTED_S, lambda ways=ways: _compared(name, precision, ways, size),
            check=check, model=name, precision=precision, tolerance=TOLERANCES[precision],
        )  # fmt: skip


def _server_step(measurements: Measurements, method: str, precision: str, step: Callable[..., list[State]]) -> None:
    """Check a method's server step on the device against the CPU's."""
    setting = measurements.setting

    def compare() -> dict[str, float]:
        with _tf32(False):
            return {"distance": _apart(step(setting, CPU), step(setting, setting.device))}

    measurements.measure(
        PART, 0.0 if setting.small else 3 * _EXPECTED_S, compare, check=f"{setting.device.type}, CPU",
        model=f"{method}'s server step", precision=precision, tolerance=SERVER_TOLERANCES[method],
    )  # fmt: skip


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Whether cuDNN rounds the numbers of convolutions to TF32 in the block."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


Way = tuple[torch.device, str]  # device, and "one by one", "cohort" or "eager": a cohort without CUDA graphs


def _pairs(setting: Setting) -> dict[str, tuple[Way, Way]]:
    here = setting.device
    pairs: dict[str, tuple[Way, Way]] = {
        f"{here.type}, CPU": ((here, "one by one"), (CPU, "one by one")),
        "cohort, one by one": ((here, "cohort"), (here, "one by one")),
    }
    if setting.on_gpu:
        pairs["CUDA graphs, eager"] = ((here, "cohort"), (here, "eager"))
    return pairs


def _compared(name: str, precision: str, ways: tuple[Way, Way], size: tuple[int, int]) -> dict[str, float]:
    dtype = torch.float64 if precision == "float64" else torch.float32
    with _tf32(precision == "tf32"):  # convolutions round float32 to TF32
        one, other = (trained(name, dtype, *way, *size) for way in ways)
    return {"distance": distance(one, other, _state(name, dtype))}


def trained(
    name: str, dtype: torch.dtype, device: torch.device, way: str, clients: int = CLIENTS, steps: int = STEPS
) -> list[State]:
    """States of the clients after training, on the CPU.

    Args:
        name: The model.
        dtype: Type of weights and samples.
        device: Where the clients train.
        way: "one by one", "cohort", or "eager" for a cohort that records no CUDA graph.
        clients: Number of clients.
        steps: Steps of each.

    Returns:
        A state for each client.

    """
    asked = Namespace(steps=steps, precision="float32")
    confs = [conf(number, asked) for number in range(clients)]
    data, start = _samples(clients, dtype, device), _state(name, dtype)
    network = module(name).to(device, dtype)
    trainer = MultiModelClient(confs[0], Workbench(device))
    if way == "one by one":
        resident = Resident(network, device, channels_last=channels_last_helps(device))
        states = []
        for samples, own in zip(data, confs, strict=True):
            resident.restore(resident.start(start))
            trainer.train(samples, resident.module, own)
            states.append(_copied(resident.module.state_dict()))
        return states
    cohort = make_cohort(network, clients, device)
    cohort.records = cohort.records and way == "cohort"
    for _ in range(2):  # the second time replays a graph that is already recorded
        cohort.restore({key: tensor.to(device) for key, tensor in start.items()})
        for result in trainer.train_cohort(data, cohort, confs):
            if isinstance(result, Exception):
                raise result
    stack = cohort.trained([steps] * clients)
    return [_copied({key: stack[key][number] for key in start}) for number in range(clients)]


def distance(one: Sequence[State], other: Sequence[State], start: State) -> float:
    """Norm of the clients' differences over that of what training changed, the largest."""
    return max(_norm(a, b) / _norm(b, start) for a, b in zip(one, other, strict=True))


def _apart(one: Sequence[State], other: Sequence[State]) -> float:
    zeros = [{name: torch.zeros_like(tensor) for name, tensor in state.items()} for state in other]
    pairs = zip(one, other, zeros, strict=True)
    return max((_norm(a, b) / _norm(b, zero) for a, b, zero in pairs if b), default=0.0)


def _norm(one: State, other: State) -> float:
    squares = [
        float((one[name].double() - other[name].double()).square().sum())
        for name in one
        if one[name].is_floating_point()
    ]
    return sum(squares) ** 0.5


def _samples(clients: int, dtype: torch.dtype, device: torch.device) -> list[ClientSamples]:
    drawn = torch.Generator().manual_seed(0)
    return [
        ClientSamples(
            torch.randn(SAMPLES, *SHAPE, generator=drawn).to(device, dtype),
            torch.randint(CLASSES, (SAMPLES,), generator=drawn).to(device),
        )
        for _ in range(clients)
    ]


def _state(name: str, dtype: torch.dtype) -> State:
    return _copied(module(name).to(dtype).state_dict())


def _copied(state: dict[str, Tensor]) -> State:
    return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}


def _moss(setting: Setting, device: torch.device) -> list[State]:
    """Models after two small rounds of Moss's server, float64."""
    server, states, public = moss_server_step.setting({"a": "lenet_6k", "b": "cnn_small"}, 1, 8)
    public = Public(public.x.double(), public.labels).to(device)
    held = {
        key: {n: t.double() if t.is_floating_point() else t for n, t in each.items()} for key, each in states.items()
    }
    for round in (1, 2):
        held = server.step(round, held, dict.fromkeys(held, 10), public).models
    return list(held.values())


def _hypemefed(setting: Setting, device: torch.device) -> list[State]:
    """What HypeMeFed's server generates after training on the participants of a VGG."""
    states = drawn_states("UniMiB", torch.Generator().manual_seed(0))
    options = HyperNetworkParams(k=4 if setting.small else 50, hidden=8 if setting.small else 512, epochs=1)
    networks = HyperNetworks(shapes("UniMiB", 3), options, torch.Generator().manual_seed(1), device)
    networks.train(states)
    return networks.generate(states)
