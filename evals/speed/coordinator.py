"""Rounds of the coordinator alone, for a population of 500,000: seconds by phase, megabytes.

    python evals/speed/coordinator.py                                  # 100, 1,000 and 10,000 participants
    python evals/speed/coordinator.py --participants 1000 --method fedavg --profile

The aggregator, board, wire, collector and records are the real ones, over the in-process channel. Data and training
are stubs: a data set that knows nothing but how many samples each client has, and an executor that answers each unit
at once with figures and a sum of changes that pass every check. Each number of participants gets a fresh process.
FedTrans begins with its pool already grown to --models. The table goes to coordinator.md beside this file.
"""

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fedscale_ext import compat  # noqa: E402
from fedscale_ext.config import methods  # noqa: E402

compat.prepare()

from evals.speed.machine import model_name  # noqa: E402
from fedscale_ext.config.job_config import JobConfig, make_config  # noqa: E402
from fedscale_ext.core.confusion import gathered  # noqa: E402
from fedscale_ext.core.streams import stream  # noqa: E402
from fedscale_ext.core.types import Task  # noqa: E402
from fedscale_ext.data.store import ClientRows  # noqa: E402
from fedscale_ext.entry.in_process import run_in_process  # noqa: E402
from fedscale_ext.executor.executor import MultiModelExecutor  # noqa: E402
from fedscale_ext.executor.worker import Worker  # noqa: E402
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator  # noqa: E402
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator  # noqa: E402
from fedscale_ext.population.population import Population  # noqa: E402
from fedscale_ext.server.round.collect import SUM  # noqa: E402
from fedscale_ext.tasks.answers.confusion import CLASSES, SECTION, confusion_section  # noqa: E402
from fedscale_ext.tasks.evaluate import Evaluate  # noqa: E402
from fedscale_ext.tasks.evaluation_figures import COLUMNS  # noqa: E402
from fedscale_ext.tasks.kind import Answer, Kind  # noqa: E402
from fedscale_ext.tasks.reduction import template  # noqa: E402
from fedscale_ext.tasks.train import Train  # noqa: E402
from fedscale_ext.transport import wire  # noqa: E402

PAGE = Path(__file__).with_suffix(".md")
PHASES = ("select", "assign", "schedule", "train", "collect", "aggregate", "evolve", "record")
STEP = 1e-3  # what each client adds to every weight
_MOST_TEST_SAMPLES = 7


def stub_data(clients: int) -> SimpleNamespace:
    """What an executor reports of a data set without pixels: sizes from a fixed draw, some clients without tests."""
    rng = stream("coordinator", clients)
    no_rows = ClientRows(np.zeros(0, dtype=np.int64), np.zeros(clients + 1, dtype=np.int64))
    return SimpleNamespace(
        name="stub", generated=True, digest="0" * 64, input_shape=(1, 28, 28), num_classes=62,
        test_source="nothing", test_only_clients=0, notes=[], num_clients=clients,
        client_names=list(map(str, range(1, clients + 1))), train=no_rows, test=no_rows, y=no_rows.rows,
        train_sizes=rng.integers(5, 300, clients), test_sizes=rng.integers(0, _MOST_TEST_SAMPLES + 1, clients),
    )  # fmt: skip


def loss_of(client: int, round: int) -> float:
    """The loss that a client reports."""
    return 0.5 + (client * 7919 + round * 104729) % 1000 / 1000


class StubTrain(Train):
    """Every client adds STEP to every weight, at once."""

    def run(self, worker: Any, header: dict[str, Any]) -> Answer:
        args = worker.args
        results = []
        for item in header["items"]:
            samples = int(worker.data.train_sizes[item["client"] - 1])
            results.append(
                {
                    "client": item["client"],
                    "samples": samples,
                    "trained": args.local_steps * min(args.batch_size, samples),
                    "steps": args.local_steps,
                    "loss": loss_of(item["client"], header["round"]),
                    "utility": 1.0,
                }
            )
        weight = sum(item["weight"] for item in header["items"])
        start = worker.bench.state(header["items"][0]["model"])
        change = {name: torch.full_like(tensor, STEP * weight) for name, tensor in template(start).items()}
        return {"results": results, "weight": weight}, {SUM: wire.tensors_to_bytes(change)}


class StubEvaluate(Evaluate):
    """Every client has half of its test samples right. All are of class 0, and the others pass for class 1."""

    def run(self, worker: Any, header: dict[str, Any]) -> Answer:
        count = torch.from_numpy(worker.data.test_sizes[np.asarray(header["clients"]) - 1]).double()
        right = (count / 2).floor()
        sections = {"figures": wire.tensors_to_bytes(dict(zip(COLUMNS, (right, count, 2.0 * count), strict=True)))}
        if CLASSES in header:
            counts = torch.stack([right, count - right], 1).long().flatten().numpy()  # [clients * 2]
            owner, cells = np.repeat(np.arange(len(count)), 2), np.tile([0, 1], len(count))
            seen = counts > 0
            matrices = gathered(owner[seen], cells[seen], counts[seen], len(count), header[CLASSES])
            sections[SECTION] = confusion_section(matrices)
        return {}, sections


class StubWorker(Worker):
    """Knows the job's arguments."""

    args: argparse.Namespace


class StubExecutor(MultiModelExecutor):
    """The real executor on a stub of data and work."""

    clients: ClassVar[int]
    kinds: ClassVar[tuple[Kind, ...]] = (StubTrain(), StubEvaluate())

    def init_data(self) -> Any:
        data: Any = stub_data(self.clients)
        self.worker = StubWorker(data, self.bench, self.get_client_trainer, self._client_config, self.watch)
        self.worker.args = self.args
        return data, data


class GrownFedTrans(FedTransAggregator):
    """FedTrans that begins with a pool of ``grown`` models, made by its own transformations, and keeps it."""

    grown: ClassVar[int]

    def init_state(self, population: Population, task: Task) -> None:
        super().init_state(population, task)
        while len(self.pool) < self.grown:
            cells = list(self._cells())
            turn = cells[len(self.pool) % len(cells)]
            self.active.append({cell: float(cell == turn) for cell in cells})  # one cell at a time
            self.losses[-1] = [1.0] * (self.params.gamma + self.params.delta)
            self.evolve(0)
            if self.exhausted:
                raise SystemExit(f"no device affords more than {len(self.pool)} models: lower --models")
        self.losses = [[] for _ in self.losses]
        self.active.clear()
        self.exhausted = True

    def _cells(self) -> tuple[str, ...]:
        from fedscale_ext.models.cells import cell_family

        spec = self.pool.newest().spec
        return tuple(cell_family(spec).cell_ids(spec))


def configuration(folder: Path, method: str, participants: int, rounds: int, **keys: Any) -> JobConfig:
    """A job that evaluates in its first and its last round; ``keys`` are job_conf keys."""
    flat = {
        "job_name": "coordinator", "log_path": str(folder), "time_stamp": "run", "use_cuda": False,
        "method": method, "model": "nasbench201_base", "data_set": "femnist", "data_dir": str(folder),
        "rounds": rounds, "eval_interval": rounds + 1,
        "num_participants": participants, "overcommitment": 1.3, "filter_less": 6,
        "local_steps": 20, "batch_size": 10, "cohort_size": 1,
    }  # fmt: skip
    return make_config({}, flat | keys)


@contextmanager
def stubs(clients: int, models: int) -> Iterator[None]:
    """Methods run with the stub executor on so many clients; FedTrans with so many models."""
    executor = type("Executor", (StubExecutor,), {"clients": clients})
    classes = {
        "fedavg": type("StubFedAvg", (FedAvgAggregator,), {"Executor": executor}),
        "fedtrans": type("StubFedTrans", (GrownFedTrans,), {"Executor": executor, "grown": models}),
    }
    with mock.patch.object(methods, "method_class", classes.__getitem__):
        yield


def memory_mb(field: str) -> float:
    """A figure of /proc/self/status (Linux): VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def measure(arguments: argparse.Namespace, participants: int, cohort: int) -> dict[str, Any]:
    """Medians over the plain rounds of one job, and what its evaluation and checkpoint cost."""
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-4)  # two threads here stand for two processes: neither may hold the interpreter for long
    resident: list[float] = []
    spent: list[float] = []

    def look(event: Mapping[str, Any]) -> None:
        if event["event"] == "round":
            resident.append(memory_mb("VmRSS"))
            spent.append(time.process_time())

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # one round that evaluates, the timed ones, one with a checkpoint, and one more that evaluates
        rounds = arguments.rounds + 3
        keys = {"checkpoint_interval": rounds - 1, "seed": arguments.seed, "cohort_size": cohort}
        config = configuration(folder, arguments.method, participants, rounds, **keys)
        before = memory_mb("VmHWM")
        profile = cProfile.Profile()
        with stubs(arguments.population, arguments.models):
            if arguments.profile:
                profile.enable()
            summary = run_in_process(config, look)
            if arguments.profile:
                profile.disable()
                pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(60)
        log_dir = Path(summary["log_dir"])
        texts = (log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        files = sum(path.stat().st_size for path in log_dir.rglob("*") if path.is_file())
    lines = [json.loads(text) for text in texts]
    plain = range(1, arguments.rounds + 1)  # places in the list: rounds 2, 3, …

    def seconds(place: int, phase: str) -> float:
        # a round's line is written before its own writing has been timed
        return lines[place + (phase == "record")]["seconds"].get(phase, 0.0)

    phases = {phase: float(np.median([seconds(place, phase) for place in plain])) for phase in PHASES}
    # with what lies between the phases, and the writing of the round before
    walls = [lines[place]["wall_s"] for place in plain]
    return {
        "participants": len(lines[1]["participants"]),
        "cohort": cohort,
        "models": lines[-1]["models"],
        "seconds": phases,
        "round_s": float(np.median(walls)),
        "processor_s": float(np.median(np.diff(spent)[: arguments.rounds])),
        "evaluate_s": lines[-1]["seconds"]["evaluate"],
        "record_evaluation_s": lines[1]["seconds"]["record"] - phases["record"],
        "checkpoint_s": lines[-1]["seconds"]["record"] - phases["record"],
        "imports_mb": before,
        "peak_mb": memory_mb("VmHWM"),
        "growth_mb": float(np.diff(resident[1:-2]).mean()) if arguments.rounds > 1 else 0.0,
        "line_mb": len(texts[1]) / 1e6,
        "evaluation_line_mb": len(texts[-1]) / 1e6,
        "files_mb": files / 1e6,
    }


ROWS = {
    **{f"{phase}, s": lambda one, phase=phase: one["seconds"][phase] for phase in PHASES},
    "**round in all, s**": lambda one: one["round_s"],
    "… processor seconds, stub included": lambda one: one["processor_s"],
    "evaluation of all clients, s": lambda one: one["evaluate_s"],
    "… its record, s": lambda one: one["record_evaluation_s"],
    "checkpoint, s": lambda one: one["checkpoint_s"],
    "**peak memory of the process, MB**": lambda one: one["peak_mb"],
    "… of which imports, MB": lambda one: one["imports_mb"],
    "memory kept per round, MB": lambda one: one["growth_mb"],
    "line of metrics.jsonl, MB": lambda one: one["line_mb"],
    "… with an evaluation, MB": lambda one: one["evaluation_line_mb"],
    "files of the whole job, MB": lambda one: one["files_mb"],
}


def table(results: list[dict[str, Any]]) -> str:
    """Markdown, a column per number of participants."""
    head = ["participants", *(f"{one['participants']:,}" for one in results)]
    rows = [head, ["---", *["---:"] * len(results)]]
    rows += [["side by side on an executor", *(str(one["cohort"]) for one in results)]]
    rows += [[name, *(f"{figure(one):.4g}" for one in results)] for name, figure in ROWS.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def page(arguments: argparse.Namespace, results: list[dict[str, Any]]) -> str:
    """The recorded result: command, machine, load, table."""
    return f"""# The coordinator alone

`{" ".join(["python evals/speed/coordinator.py", *sys.argv[1:]])}`, {date.today()}: {arguments.method},
{results[0]["models"]} models, {arguments.population:,} clients, median of {arguments.rounds} rounds. Training and data
are stubs; `train` is the wait for the stub executor, with the executor's work and its side of the wire.
{os.cpu_count()} cores of {model_name()}, load average {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]},
torch {torch.__version__}, numpy {np.__version__}.

{table(results)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument(
        "--cohort", type=int, nargs="+", default=[1, 16], help="clients side by side; 1 makes most units"
    )
    parser.add_argument("--population", type=int, default=500_000)
    parser.add_argument("--models", type=int, default=8, help="models in FedTrans's pool")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--method", choices=["fedavg", "fedtrans"], default="fedtrans")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the aggregator's time goes")
    parser.add_argument("--print", action="store_true", help="print the table instead of writing coordinator.md")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(measure(arguments, *arguments.one)))
        return
    results = []
    for cohort, participants in product(arguments.cohort, arguments.participants):
        command = [sys.executable, __file__, *sys.argv[1:], "--one", str(participants), str(cohort)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(results[-1]), file=sys.stderr)
    if arguments.print:
        print(table(results))
    else:
        PAGE.write_text(page(arguments, results), encoding="utf-8")


if __name__ == "__main__":
    main()
