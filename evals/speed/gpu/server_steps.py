"""Seconds of the server steps of HypeMeFed and Moss on the device, and at the end on the CPU if time is left."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from evals.hypemefed.hypernetwork_cost import EPOCHS, drawn_states, shapes
from evals.speed import moss_server_step
from evals.speed.gpu.measurements import Measurements, Setting
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams

PART, CPU_PART = "server steps", "server steps on the CPU"
_CPU = torch.device("cpu")
_EXPECTED_S = {"HypeMeFed": 20.0, "Moss": 30.0}
_CPU_EXPECTED_S = {"HypeMeFed": 10.0, "Moss": 100.0}  # as on two cores


def run(measurements: Measurements) -> None:
    """Measure both methods on the device."""
    _both(measurements, PART, measurements.setting.device, _EXPECTED_S)


def run_on_cpu(measurements: Measurements) -> None:
    """Measure both methods on the CPU, if the device is another one."""
    if measurements.setting.on_gpu:
        _both(measurements, CPU_PART, _CPU, _CPU_EXPECTED_S)


def _both(measurements: Measurements, part: str, device: torch.device, expected_s: Mapping[str, float]) -> None:
    setting = measurements.setting
    for method, step in {"HypeMeFed": _hypemefed, "Moss": _moss}.items():
        measurements.measure(
            part, 0.0 if setting.small else expected_s[method], lambda step=step: step(setting, device),
            method=method, device=device.type,
        )  # fmt: skip


def _hypemefed(setting: Setting, device: torch.device) -> dict[str, Any]:
    """Train on the participants of ResNet-18 and generate, k = 100; in the second of two rounds."""
    model = "UniMiB" if setting.small else "ResNet-18"
    states = drawn_states(model, torch.Generator().manual_seed(0))
    options = HyperNetworkParams(k=4 if setting.small else 100, hidden=8 if setting.small else 512,
                      epochs=1 if setting.small else EPOCHS)  # fmt: skip
    networks = HyperNetworks(shapes(model, 3), options, torch.Generator().manual_seed(1), device)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        networks.train(states)
        networks.generate(states)  # returns tensors on the CPU: nothing is under way any more
        times.append(time.perf_counter() - began)
    return {"work": f"{model}, k = {options.k}, {options.epochs} epochs, {len(states)} participants",
            "first_s": times[0], "seconds": times[1]}  # fmt: skip


def _moss(setting: Setting, device: torch.device) -> dict[str, Any]:
    """WIRE, FILE and WIRE for three types with proxies of the ResNet-18, one epoch; in the second of two rounds."""
    names = {"a": "lenet_6k", "b": "cnn_small"} if setting.small else moss_server_step.TYPES
    samples = 8 if setting.small else 100
    server, states, public = moss_server_step.setting(names, 1, samples, same_arch_transfer="copy")
    public, times = public.to(device), []
    for round in (1, 2) if setting.on_gpu and device != _CPU else (1,):
        began = time.perf_counter()
        exchange = server.step(round, states, dict.fromkeys(states, 100), public)
        times.append(time.perf_counter() - began)
    return {"work": f"{', '.join(names.values())}, {samples} public samples, one epoch", "first_s": times[0],
            "seconds": times[-1], "diverged": exchange.diverged}  # fmt: skip
