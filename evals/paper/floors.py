"""What a system has to be above before its accuracy says anything: a linear model, and one network trained centrally.

    python -m evals.paper.floors --paper hypemefed --data fashion-h0.5 --seeds 1 2 3

The linear model is a ridge regression on raw inputs (ridge.py). The central model is the network that FedAvg trains in
the evaluation, on as many steps as all participants of a job take together, with their batches, optimiser and learning
rates, but without augmentation; it is left out where that would take longer than --limit. Both train on the pooled
training samples of all clients and are tested as the systems are: on the test samples of each client ("accuracy %", a
mean over clients) and on all of them together ("global %"). The paper's folder records them as table floors_SCALE.
Without --data, all data sets of that folder's tables are run; each paper deals them to clients in its own way.
"""

import argparse
import importlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from evals.paper import output
from evals.paper.engine import sources_folder
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.floor_table import LINEAR, TESTED_ON, central_label, floors_name
from evals.paper.job_keys import resolved
from evals.paper.papers import PAPERS, SCALES, Paper
from evals.paper.ridge import Moments, blocks_of, fitted, right_of
from evals.paper.runs import Records
from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import batches, local_steps
from fedscale_ext.core.streams import stream
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.data.store import ClientRows, DataSet
from fedscale_ext.models.layers.final_layer import deepest

MODELS = ("linear", "central")
_WARM_STEPS, _TIMED_STEPS = 5, 15  # the first ones are slower


def job_config(paper: Paper, data: str, scale: str, seed: int, folder: Path, sources: Path) -> JobConfig:
    """The configuration of FedAvg's job on a data set of an evaluation; imports the data unless they are there."""
    keys = {"model": paper.base_model, **paper.keys_of(data, scale)}
    if paper.fedavg_model is not None:
        keys["model"] = paper.fedavg_model
    shared = {key: value for key, value in resolved(keys).items() if "." not in key}
    shared |= {"method": "fedavg", "seed": seed, "data_dir": str(paper.prepared(data, folder, sources))}
    return load_config(paper.folder / "job.yml", [f"{key}={json.dumps(value)}" for key, value in shared.items()])


def client_shares(right: np.ndarray, test: ClientRows) -> np.ndarray:
    """Share of each client's test samples that a model got right, float64 [clients], NaN without any; ``right`` is
    bool [test.rows]."""
    correct = np.diff(np.concatenate([[0], np.cumsum(right)])[test.offsets])
    return np.divide(correct, test.sizes, out=np.full(len(test.sizes), np.nan), where=test.sizes > 0)


def accuracies(right: np.ndarray, test: ClientRows) -> dict[str, float]:
    """Figures from which of ``test.rows`` a model got right, bool: the mean over clients with test samples, and the
    share of all samples, in per cent."""
    by_client = float(np.nanmean(client_shares(right, test)))
    return {"accuracy %": 100 * by_client, "global %": 100 * float(right.mean())}


def linear_figures(data: DataSet, seed: int, known: dict[str, Moments]) -> dict[str, float]:
    """The linear model's accuracies, its penalty, and the processor time it took. ``known`` keeps the sums over the
    training samples, by the data's digest, for the next seed."""
    begin = time.process_time()
    blocks = blocks_of(data)
    rows = np.sort(data.train.rows)
    if data.digest not in known:
        known[data.digest] = Moments.of(blocks, rows, data.num_classes)
    held_out = stream(seed, "floors", "held out")
    model, penalty = fitted(blocks, rows, data.num_classes, held_out, known[data.digest])
    figures = accuracies(right_of(model, blocks, data.test.rows), data.test)
    return {**figures, "penalty": penalty, "cpu s": time.process_time() - begin}


def total_steps(config: JobConfig, data: DataSet) -> int:
    """Steps that all participants of a job take together, if each takes as many as clients do on average."""
    args, job = config.fedscale, config.job
    each = [local_steps(int(size), args.batch_size, args.local_steps, job.local_epochs, {}).steps
            for size in data.train_sizes]  # fmt: skip
    return round(args.rounds * args.num_participants * float(np.mean(each)))


def central_figures(config: JobConfig, data: DataSet, limit_s: float) -> dict[str, float] | str:
    """The central model's accuracies, its steps and the processor time; or why it was not trained."""
    args, job = config.fedscale, config.job
    spec = models.configured_spec(args.model, data.input_shape, data.num_classes)
    module = models.build(spec)
    module.load_state_dict(models.initial_state(spec, job.seed))
    settings: dict[str, Any] = {"lr": args.learning_rate, "weight_decay": job.client_weight_decay}
    adam = job.client_optimizer == "adam"
    optimizer = (torch.optim.Adam(module.parameters(), **settings) if adam
                 else torch.optim.SGD(module.parameters(), momentum=job.client_momentum, **settings))  # fmt: skip
    rows, steps = np.sort(data.train.rows), total_steps(config, data)
    drawn = batches(len(rows), args.batch_size, steps, stream(job.seed, "floors", "batches"))
    begin = warm = time.process_time()
    for number, indices in enumerate(drawn):
        if number == _WARM_STEPS:
            warm = time.process_time()
        if number == _WARM_STEPS + _TIMED_STEPS:
            needed = (time.process_time() - warm) / _TIMED_STEPS * steps
            if needed > limit_s:
                return f"not run: {steps:,} steps would take about {needed:,.0f} s"
        past = (number * args.rounds // steps + 1) // args.decay_round
        optimizer.param_groups[0]["lr"] = max(args.learning_rate * args.decay_factor**past, args.min_learning_rate)
        x, y = data.tensors(rows[indices])
        optimizer.zero_grad()
        functional.cross_entropy(deepest(module(x), 2), y).backward()
        optimizer.step()
    module.eval()
    right = []
    with torch.no_grad():
        for begin_row in range(0, len(data.test.rows), args.test_bsz):
            x, y = data.tensors(data.test.rows[begin_row : begin_row + args.test_bsz])
            right.append((deepest(module(x), 2).argmax(1) == y).numpy())
    figures = accuracies(np.concatenate(right), data.test)
    return {**figures, "steps": float(steps), "cpu s": time.process_time() - begin}


def run_of(model: str, config: JobConfig, name: str, limit_s: float, known: dict[str, Moments]) -> Run:
    """One of ``MODELS`` on one data set with one seed; ``known`` as in :func:`linear_figures`."""
    data, seed = open_job_data(config), config.job.seed
    if model == "linear":
        return Run(Arm(LINEAR, data=name), name, seed, None, linear_figures(data, seed, known))
    arm = Arm(central_label(Path(config.fedscale.model).stem), data=name)
    figures = central_figures(config, data, limit_s)
    if isinstance(figures, str):
        return Run(arm, name, seed, None, failed=figures)
    return Run(arm, name, seed, None, figures)


def recorded_data(records: Records, scale: str) -> list[str]:
    """Data sets on which tables of a paper at this scale have an accuracy of finished jobs."""
    names = [row.data for _, table in sorted(records.tables.items()) if table.scale == scale
             for row in table.rows if row.runs and set(records.runs[row.runs[0]].figures) & set(TESTED_ON)]  # fmt: skip
    return list(dict.fromkeys(names))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the floors and write results; exit code 2 where data lack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", choices=PAPERS, nargs="+", default=PAPERS)
    parser.add_argument("--data", nargs="+", help="data sets of the paper (default: those of its results)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--models", choices=MODELS, nargs="+", default=MODELS)
    parser.add_argument("--limit", type=float, default=120.0, metavar="S",
                        help="seconds of processor time that a central model may take (%(default)g)")  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path("data"), help="data sets, below a folder for each paper")
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="the npz files (%(default)s)")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    for name in options.paper:
        paper = importlib.import_module(f"evals.{name}.settings").PAPER
        try:
            records = Records.load(paper.folder)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        names = options.data or recorded_data(records, options.scale)
        folder = (options.folder / name).absolute()
        if missing := paper.missing_of(names, folder, options.sources.absolute()):
            print(missing, file=sys.stderr)
            return 2
        words = ["--paper", name, "--data", *names, "--seeds", *map(str, options.seeds), "--scale", options.scale,
                 "--models", *options.models, "--limit", f"{options.limit:g}"]  # fmt: skip
        for data in names:
            configs = [job_config(paper, data, options.scale, seed, folder, options.sources.absolute())
                       for seed in options.seeds]  # fmt: skip
            known: dict[str, Moments] = {}
            runs = [run_of(model, config, data, options.limit, known)
                    for model in options.models for config in configs]  # fmt: skip
            for row in output.aggregated(runs):
                print(name, data, row["label"], row["seeds"], {key: round(one["mean"], 2)
                      for key, one in row["figures"].items()}, *row["failed"], flush=True)  # fmt: skip
            record(paper.folder, runs, f"python -m evals.paper.floors {shlex.join(words)}", options.scale)
    return 0


def record(folder: Path, runs: Sequence[Run], command: str, scale: str) -> None:
    """Record the runs in the place of earlier ones of the same model, data set and seed."""
    output.record(Experiment(output.FLOORS, "", []), runs, folder, floors_name(scale), command, scale)


if __name__ == "__main__":
    raise SystemExit(main())
