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
from string import Template
from typing import Any

from evals.paper import jobs, output
from evals.paper.orders import Order
from evals.paper.papers import SCALES, Paper

REFERENCE = "@"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Arm:
    """A row of a table or a point of a figure.

    ``keys`` are job_conf keys; a model ``@largest:LABEL`` (or middle, 0, 1, …) is that of the arm LABEL's job on the
    same data with the same seed, and the devices are that job's; ``initial_weights`` @ are that model's. Keys that
    begin with $ are no job_conf keys but what such a name stands for in the others; None takes a key of the data set's
    away. ``data`` is the paper's data set, or one of settings.py; ``paper`` holds the published figures by column,
    ``x`` the place on a swept axis, ``scales`` those at which it is run.
    """

    label: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    data: str = "femnist"
    paper: Mapping[str, float] = field(default_factory=dict)
    x: float | None = None
    scales: Sequence[str] = SCALES


@dataclass(frozen=True)
class Experiment:
    """A table or figure: ``columns`` are figures of :func:`jobs.figures`, ``plot`` draws the runs into a file,
    ``shares`` is what a figure says of the clients. ``rows`` makes what is shown of the finished jobs where that is
    not one row an arm, ``derived`` further rows of all of these and of kept ones; ``orders`` are told seed by seed, as
    paired differences. ``not_run``: data sets that have no job yet, for the picture."""

    name: str
    title: str
    arms: Sequence[Arm]
    columns: Sequence[str] = ("accuracy %", "TMACs", "models", "participants / model")
    plot: Callable[["Experiment", Sequence["Run"], Path], None] | None = None
    note: str = ""
    shares: Callable[[Sequence["Run"]], Mapping[str, float]] | None = None  # of clients, by arm
    rows: Callable[[Sequence["Run"]], list["Run"]] | None = None
    derived: Callable[[Sequence["Run"]], list["Run"]] | None = None
    orders: Sequence[Order] = ()
    not_run: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """A finished job of an arm; ``failed`` says why there is none, or that it was not run (yet). Without a folder, but
    with figures, it is known from an earlier results file."""

    arm: Arm
    data: str
    seed: int
    log_dir: Path | None
    figures: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


def main(paper: Paper, experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Run a script's jobs and write its results; the exit code: 1 where a job has no result, 2 where data lack, which
    is told before the first job begins."""
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
    given = parser.parse_args(argv)
    more = dict(map(_pair, given.set))
    for data in given.data or ():
        paper.split_name(data)
    experiment = replace(experiment, title=f"{experiment.title} ({given.scale})")
    name = "_".join([experiment.name, given.scale, *(given.data or ())])
    where = {key: getattr(given, key).absolute() for key in ("folder", "sources", "runs")}
    options = shlex.join(word for key in ("data", "arms", "set", "add") for word in _option(key, getattr(given, key)))
    seeds = " ".join(map(str, given.seeds))
    command = f"python -m evals.{paper.name}.{experiment.name} --scale {given.scale} --seeds {seeds} {options}".strip()
    plan = planned(paper, experiment, given.scale, given.data)
    chosen = _chosen([arm for arm, _ in plan], given.arms)
    jobs_planned = [(arm, data) for arm, data in plan if arm.label in chosen]
    if lacking := _lacking(paper, jobs_planned, given.scale, more, where["folder"], where["sources"]):
        print(lacking, file=sys.stderr)
        return 2
    rest = {(arm.label, data): Run(arm, data, given.seeds[0], None, failed=NOT_RUN) for arm, data in plan}
    now = {(arm.label, data, seed) for arm, data in jobs_planned for seed in given.seeds}
    order = [(arm.label, data) for arm, data in plan]
    kept, commands = [], [command]
    if given.add:
        kept, earlier, before = output.kept(given.results / name, now)
        commands = [*(one for one in earlier if kept and one != command), command]
        for run in kept:
            rest.pop((run.arm.label, run.data), None)
        if experiment.rows is not None:  # their names are not arms': an arm that the file does not name did run
            due = {(arm.label, data) for arm, data in jobs_planned}
            rest = {one: run for one, run in rest.items() if one in before or one in due}
            order = [*before, *(one for one in order if one not in before)]
    done: list[Run] = []
    for seed in given.seeds:
        for arm, data in jobs_planned:
            print(f"== {experiment.name}: {arm.label}, {data}, seed {seed}", flush=True)
            run = _run(paper, arm, data, seed, done, given.scale, more, **where)
            if run.failed:
                print(f"no result: {run.failed}", file=sys.stderr)
            done.append(run)
            rest.pop((arm.label, data), None)
            runs = sorted([*done, *rest.values()], key=lambda run: plan.index((run.arm, run.data)))
            output.write(experiment, runs, given.results / name, commands, given.scale, kept, order)
    print((given.results / f"{name}.md").read_text(encoding="utf-8"))
    return 1 if any(run.failed for run in done) else 0


def planned(paper: Paper, experiment: Experiment, scale: str, instead: Sequence[str] | None) -> list[tuple[Arm, str]]:
    """Each arm with the name of its data set at a scale, each of these pairs once; with ``instead``, each label's
    arm on each of these. SystemExit where these are dealt out already, and the script sweeps the partition."""
    wanted = [arm for arm in experiment.arms if scale in arm.scales]
    if not instead:
        pairs = [(arm, paper.data_at(arm.data, scale)) for arm in wanted]
    else:
        pairs = []
        for data in instead:
            for arm in _one_of_each_label(paper, wanted, scale, data):
                name = _dealt(arm, data, experiment)
                pairs.append((replace(arm, data=name, paper=_published(paper, wanted, arm, data)), name))
    return list({(arm.label, data): (arm, data) for arm, data in reversed(pairs)}.values())[::-1]


def _one_of_each_label(paper: Paper, arms: Sequence[Arm], scale: str, data: str) -> list[Arm]:
    """Of arms with one label, the first, or the one that is for this data set: its model may fit nothing else."""
    own = {arm.label: arm for arm in reversed(arms) if paper.data_at(arm.data, scale) == data}
    first = {arm.label: arm for arm in reversed(arms)}
    return [own.get(label, first[label]) for label in dict.fromkeys(arm.label for arm in arms)]


def _dealt(arm: Arm, data: str, experiment: Experiment) -> str:
    """The data set, dealt out as the arm of a swept partition says."""
    _, dash, how = arm.data.partition("-")
    if arm.x is None or not dash:
        return data
    if "-" in data:
        sys.exit(f"{experiment.name} deals the samples out by itself: name {data.partition('-')[0]} alone")
    return data + dash + how


def _published(paper: Paper, arms: Sequence[Arm], arm: Arm, data: str) -> Mapping[str, float]:
    """The paper's figures of an arm on this data set, or where the script has none of this name, on the same kind of
    data, or of its only data set; none where it is none of these."""
    if data in {paper.data_at(one.data, scale) for one in arms for scale in SCALES}:  # one of the paper's own
        return arm.paper if data in {paper.data_at(arm.data, scale) for scale in SCALES} else {}
    kind = paper.data[paper.split_name(data)[0]].kind
    own = [one for one in arms if one.label == arm.label]
    for one in own:
        if paper.data[paper.split_name(paper.data_at(one.data, "paper"))[0]].kind == kind:
            return one.paper
    return arm.paper if len({one.data for one in arms}) == 1 else {}


def _chosen(arms: Sequence[Arm], wanted: Sequence[str] | None) -> set[str]:
    """Labels of the arms to run; ends the script where one is unknown, or lacks the arm that its model comes from."""
    known = {arm.label: arm for arm in arms}
    if wanted is None:
        return set(known)
    for label in wanted:
        if label not in known:
            sys.exit(f"there is no arm {label!r}; there are {', '.join(map(repr, known))}")
        source = str(known[label].keys.get("model", "")).partition(":")[2]
        if source and source not in wanted:
            sys.exit(f"{label!r} trains a model of {source!r}: name that in --arms too")
    return set(wanted)


def _lacking(
    paper: Paper, planned: Sequence[tuple[Arm, str]], scale: str, more: Mapping[str, str], folder: Path, sources: Path
) -> str:
    """One sentence on data that the jobs want and that are not there, and the ways out; empty where all are."""
    wanted = {(arm.label, data): _data_of(paper, arm, data, scale, more) for arm, data in planned}
    said = paper.missing_of(list(dict.fromkeys(name for own in wanted.values() for name in own)), folder, sources)
    there = {data: arm for arm, data in planned if not paper.missing_of(wanted[arm.label, data], folder, sources)}
    # a script that deals the samples out by itself is told the data set alone
    named = dict.fromkeys(data if arm.x is None else data.partition("-")[0] for data, arm in there.items())
    instead = f"run what is there with --data {' '.join(named)}" if named else "name other data sets with --data"
    return f"{said}; or {instead}" if said else ""


def _data_of(paper: Paper, arm: Arm, data: str, scale: str, more: Mapping[str, str]) -> list[str]:
    """Names of the data sets of a job: its clients', and that of its public samples."""
    keys = filled({**paper.keys_of(data, scale), **arm.keys, **more})
    return [data, *([str(keys["public_dir"])] if "public_dir" in keys else [])]


def _run(
    paper: Paper, arm: Arm, data: str, seed: int, done: Sequence[Run], scale: str, more: Mapping[str, str], *,
    folder: Path, sources: Path, runs: Path,
) -> Run:  # fmt: skip
    try:
        own = paper.keys_of(data, scale)
        keys = {**own, **arm.keys, **more}
        if str(arm.keys.get("model", "")).startswith(REFERENCE):
            keys["model"] = arm.keys["model"]  # that of another arm, whichever model --set gives that one
        _check_method(str(keys.get("method", "fedavg")))
        if str(keys.get("model", "")).startswith(REFERENCE):
            which, source = _referred(str(keys["model"]), data, seed, done)
            keys["capacity_model"] = {"model": paper.base_model, **own, **source.arm.keys, **more}["model"]
            keys["model"] = which
            if keys.get("initial_weights") == REFERENCE:
                keys["initial_weights"] = str(Path(which).with_suffix(".safetensors"))
        keys = {key: value for key, value in filled(keys).items() if _wanted(key, str(keys.get("method", "fedavg")))}
        keys["data_dir"] = str(paper.prepared(data, folder, sources))
        if "public_dir" in keys:  # named as data sets are
            keys["public_dir"] = str(paper.prepared(str(keys["public_dir"]), folder, sources))
        log_dir = jobs.train(keys, data, seed, paper.folder / "job.yml", runs, in_process=scale == "smoke")
        return Run(arm, data, seed, log_dir, jobs.figures(log_dir))
    except (jobs.Failed, SystemExit) as error:
        return Run(arm, data, seed, None, failed=str(error))


def filled(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without those that begin with $, which are put in where other values name them (as they are where a
    value is a name and nothing else), and without None."""
    known = {key[1:]: value for key, value in keys.items() if key.startswith("$")}

    def put_in(value: Any) -> Any:
        if isinstance(value, list):
            return [put_in(each) for each in value]
        if not isinstance(value, str) or "$" not in value:
            return value
        return known[value[1:]] if value[1:] in known else Template(value).substitute(known)

    return {key: put_in(value) for key, value in keys.items() if not key.startswith("$") and value is not None}


def _referred(reference: str, data: str, seed: int, done: Sequence[Run]) -> tuple[str, Run]:
    """The file of a model, and the run whose it is."""
    which, _, label = reference[len(REFERENCE) :].partition(":")
    for run in done:
        if (run.arm.label, run.data, run.seed) == (label, data, seed) and run.log_dir is not None:
            return jobs.model_file(run.log_dir, which), run
    raise jobs.Failed(f"there is no finished job {label!r} to take the model from")


def _check_method(name: str) -> None:
    from fedscale_ext.config.methods import method_names

    if name not in method_names():
        raise jobs.Failed(f"there is no method {name!r} here")


def _wanted(key: str, method: str) -> bool:
    """A method's own key goes to its jobs alone."""
    owner, dot, _ = key.partition(".")
    return not dot or owner == method


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        sys.exit(f"--set {text}: write it as key=value")
    return key, value


def _option(key: str, values: Sequence[str] | bool | None) -> list[str]:
    if isinstance(values, bool):
        return [f"--{key}"] if values else []
    if key != "set":
        return [f"--{key}", *values] if values else []
    return [f"--set={value}" for value in values or ()]


def sources_folder() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
