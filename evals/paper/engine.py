"""What the scripts of all papers share: a table or figure is a list of arms, each a job per data set and seed.

    python -m evals.paper.table3 --scale small --seeds 1 2 3

Finished jobs are not run again and interrupted ones continue, so that a script may be stopped at any time; scripts
share jobs that are equal. After each job the script writes it into runs.jsonl and tables.json of its paper's folder,
and makes the page results.md of both. What a table has of other arms and seeds stays.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evals.paper import jobs, output
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.job_keys import ModelOf, recorded, resolved, with_models
from evals.paper.papers import SCALES, Paper
from evals.paper.runs import NOT_RUN, PAGE, Records, Table
from fedscale_ext.core.errors import UserError

_ROOT = Path(__file__).resolve().parents[2]


def main(paper: Paper, experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Run a script's jobs and record their results.

    Returns the exit code: 0, or 1 if a job has no result, or 2 if data are missing, if the recorded files are broken,
    or if the table has jobs of other keys. These are reported before the first job begins.
    """
    options = _options(paper, experiment, argv)
    try:
        return _run_all(paper, experiment, options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def _run_all(paper: Paper, experiment: Experiment, options: argparse.Namespace) -> int:
    more = dict(map(_pair, options.set))
    for data in options.data or ():
        paper.split_name(data)
    name = "_".join(
        [experiment.name, options.scale, *(options.data or ()), *([options.table] if options.table else [])]
    )
    folders = {key: getattr(options, key).absolute() for key in ("folder", "sources", "runs")}
    command = _command(paper, experiment, options)
    plan = planned(paper, experiment, options.scale, options.data)
    chosen = _chosen([arm for arm, _ in plan], options.arms)
    jobs_planned = [(arm, data) for arm, data in plan if arm.label in chosen]
    earlier = Records.load(options.results).tables.get(name)
    _check_settings(name, earlier, command)
    if missing := _missing(paper, jobs_planned, options.scale, more, folders["folder"], folders["sources"]):
        raise UserError(missing)
    rest = {(arm.label, data): Run(arm, data, options.seeds[0], None, failed=NOT_RUN) for arm, data in plan}
    order = list(rest)
    if earlier is not None:
        rows = [(row.label, row.data) for row in earlier.rows]
        for row in earlier.rows:
            if row.runs:
                rest.pop((row.label, row.data), None)
        if experiment.rows is not None:  # their names are not arms': an arm that the table does not name did run
            due = {(arm.label, data) for arm, data in jobs_planned}
            rest = {row: run for row, run in rest.items() if row in rows or row in due}
            order = [*rows, *(row for row in order if row not in rows)]
    done: list[Run] = []
    shown: list[Run] = []
    for seed in options.seeds:
        for arm, data in jobs_planned:
            print(f"== {experiment.name}: {arm.label}, {data}, seed {seed}", flush=True)
            run = _run(paper, arm, data, seed, done, options.scale, more, **folders)
            if run.failed:
                print(f"no result: {run.failed}", file=sys.stderr)
            done.append(run)
            rest.pop((arm.label, data), None)
            runs = sorted([*done, *rest.values()], key=lambda run: plan.index((run.arm, run.data)))
            shown = output.record(experiment, runs, options.results, name, command, options.scale, order)
    records = Records.load(options.results)
    table = records.tables[name]
    remarks = output.remarks_on(records, table)
    lines = output.section(experiment, name, table, output.rows_of(records, name), remarks=remarks)
    print("\n".join([*output.introduction(experiment), *lines, f"written to {options.results / PAGE}"]))
    if options.plot is not None:
        titled = replace(experiment, title=f"{experiment.title} ({options.scale})")
        output.draw(titled, shown, [data for _, data in plan], options.plot)
    return 1 if any(run.failed for run in done) else 0


def _check_settings(name: str, earlier: Table | None, command: str) -> None:
    """Jobs that --set gave other keys are of another table."""
    if earlier is None or not earlier.commands:
        return
    known = [output.settings_of(one) for one in earlier.commands]
    if output.settings_of(command) not in known:
        settings = " ".join(known[-1]) or "no --set"
        raise UserError(f"table {name} has jobs with {settings}: give the same, or name another table with --table")


def _options(paper: Paper, experiment: Experiment, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"{experiment.title}. {experiment.note}")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--data", nargs="+", help="data sets instead of the script's own, as in speech cifar10-h0.5")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="rows to run instead of all; others stay as they are")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a job_conf key for all jobs")
    parser.add_argument("--table", metavar="WORD", help="record a table of its own, whose name ends in this word")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the picture into this png file at the end")
    parser.add_argument("--folder", type=Path, default=Path("data"), help="where data sets are, or are imported to")
    parser.add_argument("--sources", type=Path, default=sources_folder(), help="folder of the npz files of real data "
                        "(default: what FEDSCALE_EXT_SHARED_DATA names, else shared/data beside this checkout: "
                        "%(default)s)")  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path("logs") / paper.name, help="where the jobs' folders are")
    parser.add_argument("--results", type=Path, default=paper.folder,
                        help="folder of runs.jsonl, tables.json and results.md (%(default)s)")  # fmt: skip
    return parser.parse_args(argv)


def _command(paper: Paper, experiment: Experiment, options: argparse.Namespace) -> str:
    """The command line that gives the same results, without folders."""
    table = [f"--table={options.table}"] if options.table else []
    words = [*_words_of("data", options.data), *_words_of("arms", options.arms), *_words_of("set", options.set), *table]
    seeds = " ".join(map(str, options.seeds))
    module = f"evals.{paper.name}.{experiment.name}"
    return f"python -m {module} --scale {options.scale} --seeds {seeds} {shlex.join(words)}".strip()


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
        effective = effective_keys(paper, arm, data, seed, done, scale, more)
        keys = job_keys(effective, data, seed, done)
        keys["data_dir"] = str(paper.prepared(data, folder, sources))
        if "public_dir" in keys:  # named as data sets are
            keys["public_dir"] = str(paper.prepared(str(keys["public_dir"]), folder, sources))
        log_dir = jobs.train(keys, data, seed, paper.folder / "job.yml", runs, in_process=scale == "smoke")
        named = {name: _relative(value) for name, value in recorded(effective).items()}
        named |= {name: _typed(text) for name, text in more.items() if effective.get(name) == text}
        if (model := effective.get("model")) != keys.get("model"):  # of another job: which one, its contents say
            named["model"] = f"{model} {jobs.digest({'model': keys['model']})}"
        return Run(arm, data, seed, log_dir, jobs.figures(log_dir), keys=named, code=jobs.code_version(log_dir))
    except (jobs.Failed, SystemExit) as error:
        return Run(arm, data, seed, None, failed=str(error))


def job_keys(effective: Mapping[str, Any], data: str, seed: int, done: Sequence[Run]) -> dict[str, Any]:
    """Return effective keys with files in place of models of other arms' jobs; jobs.Failed if there is none."""
    return with_models(effective, lambda model: _model_file(model, data, seed, done))


def _typed(text: str) -> Any:
    """The value that --set gave: equal jobs are equal, whether an arm or --set names a number."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _relative(value: Any) -> Any:
    """Path of a file of this repository below its root: results are read on other machines."""
    path = Path(value) if isinstance(value, str) else None
    return path.relative_to(_ROOT).as_posix() if path is not None and path.is_relative_to(_ROOT) else value


def effective_keys(
    paper: Paper, arm: Arm, data: str, seed: int, done: Sequence[Run], scale: str, more: Mapping[str, str]
) -> dict[str, Any]:
    """Return the job_conf keys of an arm's job, but for its folders of data; models of other jobs are ``ModelOf``.

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


def _words_of(key: str, values: Sequence[str] | None) -> list[str]:
    if key != "set":
        return [f"--{key}", *values] if values else []
    return [f"--set={value}" for value in values or ()]


def sources_folder() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
