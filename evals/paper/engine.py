"""What the scripts of all papers share: a table or figure is a list of arms, each a job per data set and seed.

    python -m evals.paper.table3 --scale small --seeds 1 2 3

Finished jobs are not run again and interrupted ones continue, so that a script may be stopped at any time; scripts
share jobs that are equal. After each job the script writes results/NAME_SCALE.json, .md (paper / here) and .png.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.paper import jobs, output
from evals.paper.job_keys import Keys, ModelOf, resolved, with_models
from evals.paper.orders import Order
from evals.paper.papers import SCALES, Paper

NOT_RUN = "not run"


@dataclass(frozen=True)
class Arm:
    """A row of a table or a point of a figure: one job for each seed.

    Args:
        label: name of the row.
        keys: job_conf keys that the row adds to those of its data set and scale. None takes a key of these away. See
            :mod:`evals.paper.job_keys` for values that differ between data sets, and for models of other arms' jobs.
            A job that trains another arm's model has the devices of that arm's job.
        data: a data set of the paper, or one of settings.py.
        paper: published figures by column.
        x: value on the axis of a sweep.
        scales: the scales at which the row is run.
    """

    label: str
    keys: Keys = field(default_factory=dict)
    data: str = "femnist"
    paper: Mapping[str, float] = field(default_factory=dict)
    x: float | None = None
    scales: Sequence[str] = SCALES


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Args:
        name: name of the script and of its results files.
        title: heading of the results.
        arms: the rows.
        columns: the figures shown, names of :func:`jobs.figures` or of what ``rows`` and ``derived`` add.
        plot: draws the runs into a file.
        note: what a reader has to know; it stands below the heading.
        shares: share of clients by arm, for a column of its own.
        rows: makes the rows shown from the finished jobs. Default: one row an arm.
        derived: makes further rows from the rows shown, those of an earlier results file included.
        orders: claims that one arm is above another. The results have their differences, paired by seed.
        not_run: data sets without a job yet; the picture names them.
    """

    name: str
    title: str
    arms: Sequence[Arm]
    columns: Sequence[str] = ("accuracy %", "TMACs", "models", "participants / model")
    plot: Callable[["Experiment", Sequence["Run"], Path], None] | None = None
    note: str = ""
    shares: Callable[[Sequence["Run"]], Mapping[str, float]] | None = None
    rows: Callable[[Sequence["Run"]], list["Run"]] | None = None
    derived: Callable[[Sequence["Run"]], list["Run"]] | None = None
    orders: Sequence[Order] = ()
    not_run: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """The job of an arm with one seed, or its figures from an earlier results file.

    Args:
        arm: the row.
        data: name of the data set, such as ``cifar10-h0.5``.
        seed: seed of the job.
        log_dir: log folder of the finished job. None: there is no job, or only its figures are known.
        figures: values by column.
        failed: why there is no result; empty where there is one.
    """

    arm: Arm
    data: str
    seed: int
    log_dir: Path | None
    figures: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


def main(paper: Paper, experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Run a script's jobs and write its results.

    Returns the exit code: 0, or 1 if a job has no result, or 2 if data are missing. Missing data are reported before
    the first job begins.
    """
    options = _options(paper, experiment, argv)
    more = dict(map(_pair, options.set))
    for data in options.data or ():
        paper.split_name(data)
    experiment = replace(experiment, title=f"{experiment.title} ({options.scale})")
    name = "_".join([experiment.name, options.scale, *(options.data or ())])
    folders = {key: getattr(options, key).absolute() for key in ("folder", "sources", "runs")}
    command = _command(paper, experiment, options)
    plan = planned(paper, experiment, options.scale, options.data)
    chosen = _chosen([arm for arm, _ in plan], options.arms)
    jobs_planned = [(arm, data) for arm, data in plan if arm.label in chosen]
    if missing := _missing(paper, jobs_planned, options.scale, more, folders["folder"], folders["sources"]):
        print(missing, file=sys.stderr)
        return 2
    rest = {(arm.label, data): Run(arm, data, options.seeds[0], None, failed=NOT_RUN) for arm, data in plan}
    now = {(arm.label, data, seed) for arm, data in jobs_planned for seed in options.seeds}
    order = [(arm.label, data) for arm, data in plan]
    earlier_runs: list[Run] = []
    commands = [command]
    if options.add:
        earlier_runs, earlier_commands, earlier_rows = output.earlier_results(options.results / name, now)
        commands = [*(one for one in earlier_commands if earlier_runs and one != command), command]
        for run in earlier_runs:
            rest.pop((run.arm.label, run.data), None)
        if experiment.rows is not None:  # their names are not arms': an arm that the file does not name did run
            due = {(arm.label, data) for arm, data in jobs_planned}
            rest = {row: run for row, run in rest.items() if row in earlier_rows or row in due}
            order = [*earlier_rows, *(row for row in order if row not in earlier_rows)]
    done: list[Run] = []
    for seed in options.seeds:
        for arm, data in jobs_planned:
            print(f"== {experiment.name}: {arm.label}, {data}, seed {seed}", flush=True)
            run = _run(paper, arm, data, seed, done, options.scale, more, **folders)
            if run.failed:
                print(f"no result: {run.failed}", file=sys.stderr)
            done.append(run)
            rest.pop((arm.label, data), None)
            runs = sorted([*done, *rest.values()], key=lambda run: plan.index((run.arm, run.data)))
            output.write(experiment, runs, options.results / name, commands, options.scale, earlier_runs, order)
    print((options.results / f"{name}.md").read_text(encoding="utf-8"))
    return 1 if any(run.failed for run in done) else 0


def _options(paper: Paper, experiment: Experiment, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"{experiment.title}. {experiment.note}")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--data", nargs="+", help="data sets instead of the script's own, as in speech cifar10-h0.5")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="rows to run instead of all; others stay as not run")
    parser.add_argument("--add", action="store_true", help="keep what else the results file has, without its jobs: "
                        "pictures that need those (boxes, curves) show the new ones alone")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a job_conf key for all jobs")
    parser.add_argument("--folder", type=Path, default=Path("data"), help="where data sets are, or are imported to")
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="folder of the npz files of real data "
                        "(default: what FEDSCALE_EXT_SHARED_DATA names, else shared/data beside this checkout: "
                        "%(default)s)")  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path("logs") / paper.name, help="where the jobs' folders are")
    parser.add_argument("--results", type=Path, default=paper.folder / "results")
    return parser.parse_args(argv)


def _command(paper: Paper, experiment: Experiment, options: argparse.Namespace) -> str:
    """The command line that gives the same results, without folders."""
    words = shlex.join(word for key in ("data", "arms", "set", "add") for word in _words_of(key, getattr(options, key)))
    seeds = " ".join(map(str, options.seeds))
    module = f"evals.{paper.name}.{experiment.name}"
    return f"python -m {module} --scale {options.scale} --seeds {seeds} {words}".strip()


def planned(paper: Paper, experiment: Experiment, scale: str, instead: Sequence[str] | None) -> list[tuple[Arm, str]]:
    """Return each arm with the name of its data set at a scale, each of these pairs once.

    Args:
        paper: the evaluation that the experiment is of.
        experiment: whose arms.
        scale: the scale.
        instead: data sets in place of the experiment's own; each label's arm is run on each of these.

    Raises:
        SystemExit: ``instead`` names a partition, and the script sweeps partitions.
    """
    arms = [arm for arm in experiment.arms if scale in arm.scales]
    if not instead:
        pairs = [(arm, paper.data_at(arm.data, scale)) for arm in arms]
    else:
        pairs = []
        for data in instead:
            for arm in _one_of_each_label(paper, arms, scale, data):
                name = _with_partition(arm, data, experiment)
                pairs.append((replace(arm, data=name, paper=_published(paper, arms, arm, data)), name))
    return list({(arm.label, data): (arm, data) for arm, data in reversed(pairs)}.values())[::-1]


def _one_of_each_label(paper: Paper, arms: Sequence[Arm], scale: str, data: str) -> list[Arm]:
    """Of arms with one label, the first, or the one that is for this data set: its model may fit nothing else."""
    for_data = {arm.label: arm for arm in reversed(arms) if paper.data_at(arm.data, scale) == data}
    first = {arm.label: arm for arm in reversed(arms)}
    return [for_data.get(label, first[label]) for label in dict.fromkeys(arm.label for arm in arms)]


def _with_partition(arm: Arm, data: str, experiment: Experiment) -> str:
    """Name of the data set with the arm's partition, if the arm is of a sweep of partitions."""
    _, dash, partition = arm.data.partition("-")
    if arm.x is None or not dash:
        return data
    if "-" in data:
        sys.exit(f"{experiment.name} deals the samples out by itself: name {data.partition('-')[0]} alone")
    return data + dash + partition


def _published(paper: Paper, arms: Sequence[Arm], arm: Arm, data: str) -> Mapping[str, float]:
    """Return the published figures of an arm on a data set that ``--data`` names.

    They are those of this data set; else of the arm of this label on the same kind of data; else, where all arms are on
    one data set, those of that.
    """
    if data in {paper.data_at(one.data, scale) for one in arms for scale in SCALES}:  # one of the paper's own
        return arm.paper if data in {paper.data_at(arm.data, scale) for scale in SCALES} else {}
    kind = paper.data[paper.split_name(data)[0]].kind
    for one in (one for one in arms if one.label == arm.label):
        if paper.data[paper.split_name(paper.data_at(one.data, "paper"))[0]].kind == kind:
            return one.paper
    return arm.paper if len({one.data for one in arms}) == 1 else {}


def _chosen(arms: Sequence[Arm], labels: Sequence[str] | None) -> set[str]:
    """Labels of the arms to run.

    SystemExit if a label is unknown, or if the arm that a model comes from is not among them.
    """
    known = {arm.label: arm for arm in arms}
    if labels is None:
        return set(known)
    for label in labels:
        if label not in known:
            sys.exit(f"there is no arm {label!r}; there are {', '.join(map(repr, known))}")
        model = known[label].keys.get("model")
        if isinstance(model, ModelOf) and model.arm not in labels:
            sys.exit(f"{label!r} trains a model of {model.arm!r}: name that in --arms too")
    return set(labels)


def _missing(
    paper: Paper, plan: Sequence[tuple[Arm, str]], scale: str, more: Mapping[str, str], folder: Path, sources: Path
) -> str:
    """One sentence on data that the jobs need and that are missing, and the ways out; empty where all are there."""
    needed = {(arm.label, data): _data_of(paper, arm, data, scale, more) for arm, data in plan}
    missing = paper.missing_of(
        list(dict.fromkeys(name for names in needed.values() for name in names)), folder, sources
    )
    if not missing:
        return ""
    complete = {data: arm for arm, data in plan if not paper.missing_of(needed[arm.label, data], folder, sources)}
    # a script that sweeps partitions takes the name of the data set without one
    names = dict.fromkeys(data if arm.x is None else data.partition("-")[0] for data, arm in complete.items())
    instead = f"run what is there with --data {' '.join(names)}" if names else "name other data sets with --data"
    return f"{missing}; or {instead}"


def _data_of(paper: Paper, arm: Arm, data: str, scale: str, more: Mapping[str, str]) -> list[str]:
    """Names of the data sets of a job: its clients', and that of its public samples."""
    keys = resolved({**paper.keys_of(data, scale), **arm.keys, **more})
    return [data, *([str(keys["public_dir"])] if "public_dir" in keys else [])]


def _run(
    paper: Paper, arm: Arm, data: str, seed: int, done: Sequence[Run], scale: str, more: Mapping[str, str], *,
    folder: Path, sources: Path, runs: Path,
) -> Run:  # fmt: skip
    try:
        keys = job_keys(paper, arm, data, seed, done, scale, more)
        keys["data_dir"] = str(paper.prepared(data, folder, sources))
        if "public_dir" in keys:  # named as data sets are
            keys["public_dir"] = str(paper.prepared(str(keys["public_dir"]), folder, sources))
        log_dir = jobs.train(keys, data, seed, paper.folder / "job.yml", runs, in_process=scale == "smoke")
        return Run(arm, data, seed, log_dir, jobs.figures(log_dir))
    except (jobs.Failed, SystemExit) as error:
        return Run(arm, data, seed, None, failed=str(error))


def job_keys(
    paper: Paper, arm: Arm, data: str, seed: int, done: Sequence[Run], scale: str, more: Mapping[str, str]
) -> dict[str, Any]:
    """Return the job_conf keys of an arm's job, but for its folders of data.

    Args:
        paper: the evaluation that the arm is of.
        arm: the arm.
        data: name of the data set.
        seed: seed of the job.
        done: runs so far, which the models of other arms' jobs come from.
        scale: the scale.
        more: keys that ``--set`` gives to all jobs. A model among them is not for arms that train another arm's model.

    Raises:
        jobs.Failed: there is no such method, or no finished job that the model is to come from.
    """
    data_keys = paper.keys_of(data, scale)
    keys: dict[Any, Any] = {**data_keys, **arm.keys, **more}
    method = str(keys.get("method", "fedavg"))
    _check_method(method)
    model = arm.keys.get("model")
    if isinstance(model, ModelOf):
        source = _finished(model.arm, data, seed, done)
        devices = {"model": paper.base_model, **data_keys, **source.arm.keys, **more}["model"]
        keys |= {"model": model, "capacity_model": devices}
        keys = with_models(keys, lambda model: _model_file(model, data, seed, done))
    return {key: value for key, value in resolved(keys).items() if _is_for(key, method)}


def _finished(label: str, data: str, seed: int, done: Sequence[Run]) -> Run:
    """The run of an arm on this data with this seed; jobs.Failed without a finished job."""
    for run in done:
        if (run.arm.label, run.data, run.seed) == (label, data, seed) and run.log_dir is not None:
            return run
    raise jobs.Failed(f"there is no finished job {label!r} to take the model from")


def _model_file(model: ModelOf, data: str, seed: int, done: Sequence[Run]) -> str:
    log_dir = _finished(model.arm, data, seed, done).log_dir
    assert log_dir is not None
    return jobs.model_file(log_dir, model.which)


def _check_method(name: str) -> None:
    from fedscale_ext.config.methods import method_names

    if name not in method_names():
        raise jobs.Failed(f"there is no method {name!r} here")


def _is_for(key: str, method: str) -> bool:
    """Whether a job of the method takes the key: a method's own keys go to its jobs alone."""
    owner, dot, _ = key.partition(".")
    return not dot or owner == method


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        sys.exit(f"--set {text}: write it as key=value")
    return key, value


def _words_of(key: str, values: Sequence[str] | bool | None) -> list[str]:
    if isinstance(values, bool):
        return [f"--{key}"] if values else []
    if key != "set":
        return [f"--{key}", *values] if values else []
    return [f"--set={value}" for value in values or ()]


def sources_folder() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
