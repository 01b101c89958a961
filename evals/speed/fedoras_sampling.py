"""What sampling and instantiating paths adds to FedorAS's local steps; the issue allows 3 % of a step.

    python -m evals.speed.fedoras_sampling [--space cnn_tiny] [--batch 32] [--steps 20] [--repeats 5]

A client's local round is trained as executors do it, and the parts of it that a fixed model would not need are timed
by themselves in the same process: drawing the paths of all steps, and for each step choosing the path's operators and
collecting their parameters. Beside that, once per client: loading its subspace into the resident supernet. Processor
time counts, the quickest of the repeats: what shares the machine does not.
"""

import argparse
import time
from argparse import Namespace
from collections.abc import Callable

import torch

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.brackets import budget_tables
from fedscale_ext.methods.fedoras.client import FedorASClient, Paths
from fedscale_ext.methods.fedoras.path_sampling import drawn_paths
from fedscale_ext.methods.fedoras.subspace_sampling import operators, sample_subspace, total_bytes
from fedscale_ext.models.supernet.family import restricted
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport import wire

SHAPES = {"cnn_s": (1, 40, 51), "rnn": (1, 1, 80)}  # of the others: CIFAR's
LIMIT = 3.0  # per cent of a step
BUDGET = 0.5  # of the dearest path


def conf(asked: Namespace, budget: float) -> ClientConfig:
    """The paper's settings of a CIFAR client, but for the number of its steps."""
    return ClientConfig(
        client_id=1, round=1, seed=1, model_key="client", local_steps=asked.steps, batch_size=asked.batch,
        learning_rate=0.01, client_momentum=0.9, client_weight_decay=0.0,
        objective={"paths": {"budget": budget, "unsupported": [], "load": 0.0, "idle_gradient": "zero"}},
    )  # fmt: skip


def quickest(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the quickest of some runs after a first one."""
    work()
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


def measure(asked: Namespace) -> dict[str, float]:
    """Processor seconds: a client's ``step``, what ``sampling`` and ``instantiating`` paths take of it, and
    ``loading`` its subspace once."""
    torch.set_num_threads(1)
    shape, classes = SHAPES.get(asked.space, (3, 32, 32)), 90 if asked.space == "rnn" else 10
    spec = models.named_spec(asked.space, shape, classes)
    costs = budget_tables(spec, ())
    budget = BUDGET * float(costs.fixed_macs + costs.macs.max(1, where=costs.held, initial=0).sum())
    held = sample_subspace(costs, total_bytes(costs) // 2, stream("sampling"), budget)
    part = restricted(spec, operators(costs, held))
    bench, initial = Workbench(torch.device("cpu")), models.initial_state(spec, 1)
    state = {name: initial[name] for name in models.layout(part)}
    entry = {"version": 1, "spec": part.to_json(), "host": spec.to_json()}
    bench.keep({"models": {"client": entry}}, {"client": wire.tensors_to_bytes(state)})
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(asked.batch * asked.steps, *shape, generator=draw)
    if asked.space == "rnn":
        x = x.abs().mul(10).floor()
    data = ClientSamples(x, torch.randint(classes, (len(x),), generator=draw))
    settings = conf(asked, budget)
    client, module = FedorASClient(settings, bench), bench.module("client")
    paths, network = drawn_paths(costs, held, budget, 0.0, asked.steps, 1, 1, 1), Paths(module)
    return {
        "step": quickest(lambda: client.train(data, module, settings), asked.repeats) / asked.steps,
        "sampling": quickest(lambda: drawn_paths(costs, held, budget, 0.0, asked.steps, 1, 1, 1), 20) / asked.steps,
        "instantiating": quickest(lambda: [network.choose(costs.path(path)) for path in paths], 20) / asked.steps,
        "loading": quickest(lambda: Paths(bench.module("client")), asked.repeats),
    }


def arguments(argv: list[str] | None = None) -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="cnn_tiny")
    for name, default in (("batch", 32), ("steps", 20), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    asked = arguments(argv)
    found = measure(asked)
    share = 100 * (found["sampling"] + found["instantiating"]) / found["step"]
    print(f"{asked.space}, batches of {asked.batch}, {asked.steps} steps, one thread")
    for name in ("step", "sampling", "instantiating"):
        print(f"{name:14} {1e6 * found[name]:10.0f} us a step")
    print(f"{'loading':14} {1e6 * found['loading']:10.0f} us a client")
    verdict = "holds" if share < LIMIT else "does not hold"
    print(f"sampling and instantiating: {share:.2f} % of a step; below {LIMIT:g} %: {verdict}")
    every = share + 100 * found["loading"] / (asked.steps * found["step"])
    print(f"with the subspace's loading: {every:.2f} %")


if __name__ == "__main__":
    main()
