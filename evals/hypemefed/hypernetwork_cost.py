"""What a hypernetwork costs: the naive one beside k components (Shin et al., SenSys 2024, Table 1 and section 5.5).

    python -m evals.hypemefed.hypernetwork_cost
    python -m evals.hypemefed.hypernetwork_cost --cell STL10 k=100 bfloat16 --threads 1

Each cell runs in a process of its own: one round's training and generation for the participants of the paper's
three VGGs and of ResNet-18, on weights drawn as torch initialises them. Peak memory is what the process held beyond
what it held before. A naive network that does not fit is computed, not run. Claims H6 and H7 and the limits on the
server's step (3 s, 1.5 GB) come from this. Seconds are given by the clock and of processor time: the second is what
counts where other processes share the machine.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch

from evals.hypemefed.floor import core_gflops, training_gflop
from evals.speed.machine import model_name
from fedscale_ext import models
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.pairs import pairs
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.methods.hypemefed.sizes import parameters, peak_bytes
from fedscale_ext.models.multi_exit.family import prefix

RESULTS = Path(__file__).resolve().parent
# a named model, its input and classes, and participants by level
MODELS = {
    "SVHN": ("multi_exit_vgg_svhn", (3, 32, 32), 10, (3, 4, 3)),
    "STL10": ("multi_exit_vgg_stl10", (3, 96, 96), 10, (3, 4, 3)),
    "UniMiB": ("multi_exit_vgg_unimib", (1, 18, 25), 8, (2, 2, 2)),
    "ResNet-18": ("multi_exit_resnet18", (3, 32, 32), 100, (3, 4, 3)),
}
VGGS = ("SVHN", "STL10", "UniMiB")
COMPONENTS = {"naive": "all", "k=25": 25, "k=50": 50, "k=100": 100, "k=200": 200, "k=all": "all"}
# MB, million parameters, milliseconds per epoch: Table 1, whose "all" is the naive network, and section 5.4
PAPER: dict[tuple[str, str], tuple[float, ...]] = {
    ("UniMiB", "naive"): (455.34, 227.37, 226.56), ("UniMiB", "k=25"): (5.60, 1.40, 91.14),
    ("UniMiB", "k=50"): (5.68, 1.42, 91.54), ("UniMiB", "k=100"): (5.83, 1.46, 92.24),
    ("UniMiB", "k=200"): (6.14, 1.54, 92.34), ("ResNet-18", "naive"): (44740.0, 5590.0),
    ("ResNet-18", "k=100"): (113.28, 14.0)}  # fmt: skip
EPOCHS = 25
STEP_LIMIT_S, STEP_LIMIT_MB = 3, 1500
SHORT = ("k=25", "k=50", "k=100")  # measured several times


def shapes(model: str, level: int) -> dict[str, tuple[int, ...]]:
    """The convolutions of the blocks that a client of this level holds."""
    name, shape, classes, _ = MODELS[model]
    whole = models.named_spec(name, shape, classes)
    state = models.initial_state(prefix(whole, level), 0)
    return {name: tuple(value.shape) for name, value in state.items() if name.startswith("block") and value.dim() == 4}


def drawn_states(model: str, draw: torch.Generator) -> list[dict[str, torch.Tensor]]:
    """Weights of the paper's participants of a model, drawn as torch initialises them."""
    return [
        {name: torch.randn(shape, generator=draw) / (27 * shape[1]) ** 0.5 for name, shape in held.items()}
        for e, count in enumerate(MODELS[model][-1], start=1)
        for held in [shapes(model, e)]
        for _ in range(count)
    ]


def naive_parameters(model: str) -> list[int]:
    """Numbers in the naive network of each pair."""
    all_pairs, _ = pairs(shapes(model, 3), {"conv"})
    return [parameters(pair, HyperNetworkParams(variant="naive")) for pair in all_pairs]


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if platform.system() == "Linux" else 2**20)


def cell(model: str, label: str, precision: str, threads: int | None = None) -> dict[str, Any]:
    """Train and generate for one round, in this process."""
    torch.set_num_threads(1)
    naive = label == "naive"
    epochs = 1 if naive else EPOCHS
    options = HyperNetworkParams(
        k=COMPONENTS[label], epochs=epochs, variant="naive" if naive else "low_rank", precision=precision
    )
    draw = torch.Generator().manual_seed(0)
    states = drawn_states(model, draw)
    whole = shapes(model, 3)
    before = psutil.Process().memory_info().rss / 2**20
    networks = HyperNetworks(whole, options, draw, threads=1 if naive else threads)
    clock = [(time.perf_counter(), time.process_time())]
    networks.train(states)
    clock.append((time.perf_counter(), time.process_time()))
    generated = networks.generate(states)
    clock.append((time.perf_counter(), time.process_time()))
    names = {f"{pair.target}.weight" for pair in networks.pairs}
    assert all(names <= {*state, *each} for state, each in zip(states, generated, strict=True))
    wall, cpu = ([later - earlier for earlier, later in pairwise(column)] for column in zip(*clock, strict=True))
    memory = peak_mb()
    floor = {} if naive else {"gflop": training_gflop(networks, states),
                              "core_gflops": core_gflops(getattr(torch, precision))}  # fmt: skip
    return {
        "parameters": networks.parameters,
        "peak_mb": memory - before,
        "process_mb": memory,
        "epoch_s": wall[0] / epochs,
        "epoch_cpu_s": cpu[0] / epochs,
        "step_s": None if naive else sum(wall),
        "step_cpu_s": None if naive else sum(cpu),
        "train_cpu_s": cpu[0],
        **floor,
    }


def measured(model: str, label: str, precision: str, repeats: int) -> dict[str, Any]:
    """One process, the quickest of some for short cells, or what is known without where the memory does not suffice."""
    row: dict[str, Any] = {"model": model, "label": label, "precision": precision}
    if label == "naive":
        sizes = naive_parameters(model)
        needed = peak_bytes(sizes, threads=1)
        row |= {"parameters": sum(sizes), "needed_mb": needed / 2**20}
        if needed > 0.8 * psutil.virtual_memory().available:
            return row | {"not_run": f"needs {needed / 2**30:.0f} GiB"}
    command = [sys.executable, "-m", "evals.hypemefed.hypernetwork_cost", "--cell", model, label, precision]
    rows = []
    for _ in range(repeats if label in SHORT else 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS.parents[2])
        rows.append(json.loads(done.stdout))
    best = min(rows, key=lambda each: each["epoch_cpu_s"])
    return row | best | {"step_s": min((each["step_s"] for each in rows if each["step_s"]), default=None)}


def judged(rows: list[dict[str, Any]]) -> list[str]:
    """The claims, a sentence each."""
    by = {(row["model"], row["label"], row["precision"]): row for row in rows}
    lines = []
    for model in MODELS:
        naive, small = by[model, "naive", "float32"], by[model, "k=100", "float32"]
        less = 100 * (1 - small["parameters"] / naive["parameters"])
        text = f"{model}: k=100 has {less:.2f} % fewer parameters than the naive network"
        if "peak_mb" in naive:
            memory = 100 * (1 - small["peak_mb"] / naive["peak_mb"])
            faster, by_clock = (naive[key] / small[key] for key in ("epoch_cpu_s", "epoch_s"))
            text += f", {memory:.2f} % less peak memory, an epoch {faster:.1f}x faster ({by_clock:.1f}x by the clock)"
        else:
            text += ". The naive one was not run"
        lines.append(text + ".")
    for precision in ("float32", "bfloat16"):
        row = by["STL10", "k=100", precision]
        met = row["step_s"] < STEP_LIMIT_S, row["process_mb"] < STEP_LIMIT_MB
        time_met, memory_met = ("met" if each else "NOT met" for each in met)
        lines.append(
            f"The server's step, STL10, 10 participants, {precision}: {row['step_s']:.1f} s by the clock "
            f"({STEP_LIMIT_S} s: {time_met} in this run), {row['step_cpu_s']:.1f} s of processor time: at least "
            f"{row['step_cpu_s'] / 2:.1f} s on two idle cores; "
            f"{row['process_mb'] / 1000:.2f} GB (1.5 GB: {memory_met}). Training alone has {row['gflop']:.0f} GFLOP of "
            f"products, {row['gflop'] / row['core_gflops']:.1f} s at the {row['core_gflops']:.0f} GFLOP/s that a core "
            "reached."
        )
    return lines


def markdown(content: dict[str, Any]) -> str:
    """The table "paper / here" and the claims."""
    head = ["model", "", "products", "MB at 4 B", "M parameters", "peak MB", "ms/epoch", "processor ms/epoch", "step s"]
    machine = content["machine"]
    lines = ["# Cost of the hypernetwork: naive and by components", "", f"`{content['command']}`", ""]
    lines += [f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, "
              f"torch {machine['torch']}; load average {machine['load_before']} before, {machine['load_after']} after. "
              "With a load above the number of cores, the clock tells the others' work too.", ""]  # fmt: skip
    lines += ["Each cell: paper / here; the paper's are Table 1, UniMiB, on a GPU, and section 5.4, "
              "ResNet-18. Low-rank cells are means over 25 "
              "epochs with the factorisation, in as many threads as cores. The naive one is a single first epoch in "
              "one thread, which pays for fresh memory too. Cells of k=25 to 100 are the quickest of several, "
              "all others one process.", ""]  # fmt: skip
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in content["rows"]:
        paper = PAPER.get((row["model"], row["label"]), ()) if row["precision"] == "float32" else ()
        cells = [_cell(row["parameters"] * 4 / 1e6, paper[:1]), _cell(row["parameters"] / 1e6, paper[1:2])]
        if "not_run" in row:
            cells += [f"{row['needed_mb']:,.0f}, computed", _cell(None, paper[2:]) + " not run", "–", "–"]
        else:
            cells += [f"{row['peak_mb']:,.0f}", _cell(row["epoch_s"] * 1e3, paper[2:])]
            cells += [f"{row['epoch_cpu_s'] * 1e3:,.0f}", f"{row['step_s']:.2f}" if row["step_s"] else "–"]
        lines.append("| " + " | ".join([row["model"], row["label"], row["precision"], *cells]) + " |")
    return "\n".join([*lines, "", *(f"- {line}" for line in content["claims"]), ""])


def _cell(here: float | None, paper: tuple[float, ...]) -> str:
    return "".join(f"{value:g} / " for value in paper) + ("–" if here is None else f"{here:,.2f}")


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Memory at 4 B per parameter, peak memory and processor time of an epoch, by model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (("parameters", 4 / 1e6, "MB at 4 B per parameter"), ("peak_mb", 1.0, "peak memory, MB"),
              ("epoch_cpu_s", 1e3, "processor ms per epoch"))  # fmt: skip
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    labels = list(COMPONENTS)
    for axis, (key, scale, title) in zip(axes, panels, strict=True):
        for index, model in enumerate(VGGS):
            here = {row["label"]: row for row in rows if row["model"] == model and row["precision"] == "float32"}
            xs = [labels.index(label) + (index - 1) * 0.27 for label in here if key in here[label]]
            ys = [here[label][key] * scale for label in here if key in here[label]]
            axis.bar(xs, ys, 0.27, label=model, color=f"C{index}")
            if key == "peak_mb" and "not_run" in here["naive"]:
                spot = labels.index("naive") + (index - 1) * 0.27
                axis.bar(spot, here["naive"]["needed_mb"], 0.27, fill=False, hatch="//", edgecolor=f"C{index}")
        axis.set_yscale("log")
        axis.set_xticks(range(len(labels)), labels)
        axis.set_title(title)
    axes[0].legend()
    axes[1].set_xlabel("hatched: computed, not run")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", nargs=3, help="measure one model, label and precision here, and print JSON")
    parser.add_argument(
        "--repeats", type=int, default=3, help="processes for each short cell, of which the quickest counts"
    )
    parser.add_argument("--threads", type=int, help="of a single cell; otherwise as many as cores")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the picture into this png file")
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(cell(*arguments.cell, arguments.threads)))
        return
    load = f"{os.getloadavg()[0]:.1f}"
    cells = [(model, label, "float32") for model in VGGS for label in COMPONENTS] + [("STL10", "k=100", "bfloat16")]
    cells += [("ResNet-18", label, "float32") for label in ("naive", "k=100")]
    rows = []
    for each in cells:
        rows.append(measured(*each, arguments.repeats))
        print(json.dumps(rows[-1]), flush=True)
    machine = {"processor": model_name(), "cores": os.cpu_count(), "torch": torch.__version__,
               "memory_gib": psutil.virtual_memory().total / 2**30,
               "load_before": load, "load_after": f"{os.getloadavg()[0]:.1f}"}  # fmt: skip
    command = f"python -m evals.hypemefed.hypernetwork_cost --repeats {arguments.repeats}"
    content = {"command": command, "machine": machine, "rows": rows, "claims": judged(rows)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "hypernetwork_cost.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "hypernetwork_cost.md").write_text(markdown(content), encoding="utf-8")
    if arguments.plot is not None:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
