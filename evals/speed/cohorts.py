"""Clients side by side against clients one after another, on one device, without anything around them.

    python -m evals.speed.cohorts                          # on the GPU, if there is one, else on one CPU thread
    python -m evals.speed.cohorts --device cpu --clients 16 --sizes 4 8 16
    python -m evals.speed.cohorts --precision bfloat16 --sizes 32 100

Rows: `loop` is the plain PyTorch loop (a module, torch.optim.SGD, a client's weights loaded by load_state_dict);
`resident` the executor's one-by-one path; a number the executor's cohort of that size. The table goes to the
terminal, with --out also to a file.
"""

import argparse
import platform
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from evals.speed.small_resnet import SmallResNet18
from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort, Resident, channels_last_helps
from fedscale_ext.training.samples import ClientSamples

SHAPE, CLASSES, BATCH, SAMPLES = (1, 28, 28), 62, 10, 200
OTHER_LAYOUT = " in the other layout"
"""End of a cohorts' row whose channels lie in the order that executors do not choose: last, or before the maps."""
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: models.build(models.named_spec(name, SHAPE, CLASSES))
       for name in ("cnn_small", "cnn_leaf", "nasbench201_base")},
    "small_resnet18": lambda: SmallResNet18(SHAPE[0], CLASSES),
}  # fmt: skip


def conf(client: int, asked: Namespace) -> ClientConfig:
    """FedScale's defaults for a client's steps."""
    return ClientConfig(
        client_id=client, round=1, seed=1, model_key="model", local_steps=asked.steps, batch_size=BATCH,
        learning_rate=0.05, client_momentum=0.9, client_weight_decay=5e-4, precision=asked.precision,
    )  # fmt: skip


def clients(asked: Namespace, device: torch.device) -> list[ClientSamples]:
    """Random samples, on the device."""
    torch.manual_seed(0)
    return [
        ClientSamples(torch.randn(SAMPLES, *SHAPE, device=device), torch.randint(CLASSES, (SAMPLES,), device=device))
        for _ in range(asked.clients)
    ]


def loop(module: nn.Module, data: list[ClientSamples], asked: Namespace) -> None:
    """What a per-client simulator does."""
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    trainer = MultiModelClient(conf(0, asked), Workbench(data[0].x.device))
    for number, samples in enumerate(data):
        module.load_state_dict(start)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        drawn = torch.from_numpy(np.stack(trainer.batches(len(samples), conf(number, asked))))
        for rows in drawn.to(samples.y.device):
            optimizer.zero_grad()
            with torch.autocast(samples.x.device.type, torch.bfloat16, enabled=asked.precision == "bfloat16"):
                output = module(samples.x[rows])
            functional.cross_entropy(output.float(), samples.y[rows]).backward()
            optimizer.step()
    module.load_state_dict(start)


def resident(module: nn.Module, data: list[ClientSamples], asked: Namespace, keep: dict[str, Resident]) -> None:
    """The executor's one-by-one path."""
    device = data[0].x.device
    here = keep.setdefault("", Resident(module, device, channels_last=channels_last_helps(device)))
    start = here.start({name: tensor.clone() for name, tensor in module.state_dict().items()})
    bench = Workbench(device)
    for number, samples in enumerate(data):
        here.restore(start)
        MultiModelClient(conf(number, asked), bench).train(samples, here.module, conf(number, asked))
    here.restore(start)


def together(cohort: Cohort, start: dict[str, torch.Tensor], data: list[ClientSamples], asked: Namespace) -> None:
    """The executor's cohorts."""
    trainer = MultiModelClient(conf(0, asked), Workbench(data[0].x.device))
    for begin in range(0, len(data), cohort.clients):
        part = data[begin : begin + cohort.clients]
        cohort.restore(start)
        trainer.train_cohort(part, cohort, [conf(begin + number, asked) for number in range(len(part))])


def seconds(
    run: Callable[[], None], device: torch.device, repetitions: int, warm_up: Callable[[], None] | None = None
) -> list[float]:
    """Wall seconds of each repetition, after one that does not count, or after ``warm_up`` in its place."""
    (warm_up or run)()
    times = []
    for _ in range(repetitions):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return times


def make_cohort(module: nn.Module, size: int, device: torch.device, other_layout: bool = False) -> Cohort:
    """The stacked form of a module for ``size`` clients, in the layout that executors choose or in the other one."""
    network = stacked(module, SHAPE)
    assert network is not None
    channels_last = channels_last_helps(device) != other_layout
    return Cohort(network, module, SHAPE, size, device, channels_last=channels_last)


def prepared(
    name: str, row: str, data: list[ClientSamples], asked: Namespace, device: torch.device
) -> Callable[[], None]:
    """What trains all clients once, with its network built.

    ``row`` is loop, resident or the size of cohorts, which may be followed by ``OTHER_LAYOUT``.
    """
    module = MODELS[name]().to(device)
    if row == "loop":
        return lambda: loop(module, data, asked)
    if row == "resident":
        keep: dict[str, Resident] = {}
        return lambda: resident(module, data, asked, keep)
    size = min(int(row.removesuffix(OTHER_LAYOUT)), len(data))
    cohort = make_cohort(module, size, device, row.endswith(OTHER_LAYOUT))
    start = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    return lambda: together(cohort, start, data, asked)


def table(name: str, asked: Namespace, device: torch.device) -> list[str]:
    """Markdown rows of one model."""
    data = clients(asked, device)
    rows = ["loop", "resident", *map(str, asked.sizes)]
    runs = {row: prepared(name, row, data, asked, device) for row in rows}
    best = {row: seconds(run, device, asked.repetitions) for row, run in runs.items()}
    return [
        f"| {name} | {row} | {min(times):.3f} | {max(times):.3f} | {min(best['loop']) / min(times):.2f}x |"
        for row, times in best.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 32, 100])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, help="markdown file to write")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()}, one thread"
    lines = [
        f"{asked.clients} clients, {asked.steps} steps, batch {BATCH}, {asked.precision}, {name}, torch "
        f"{torch.__version__}; {asked.repetitions} repetitions; random data",
        "",
        "| model | clients at once | best s | worst s | against the loop |",
        "|---|---|---|---|---|",
    ]
    for model in asked.models:
        lines += table(model, asked, device)
    print("\n".join(lines))
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
