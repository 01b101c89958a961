"""An entry for FedScale's leaderboard: what its rules ask for, checked before anything is written.

The rules (fedscale.ai/docs/leader_overview): test accuracy as FedScale's evaluation has it, its mean (torch.mean) and
unbiased deviation (torch.std) over the seeds 0 to 4; method, data set and whether other data were used; FedScale's
version; what repeats the result: the commit, the configuration, the command; the number of parameters; and which
hyperparameters were tried, those chosen with a star.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from fedscale_ext.config.job_config import decisive, make_config
from fedscale_ext.config.recorded import recorded_keys
from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.core.errors import UserError, enumerated
from fedscale_ext.data.named_files import differing_files
from fedscale_ext.report.compare.arm_labels import differences
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.commit import ABSENT, CHANGED
from fedscale_ext.util.reading import MEGA, read_json
from fedscale_ext.util.yaml_reading import load_yaml

SEEDS = (0, 1, 2, 3, 4)
CLIENTS = {"openimage": 13_771, "femnist": 3_400, "speech": 2_618}  # of FedScale's data sets
_TOLERANCE = 0.1
_ALWAYS = ("method", "data_set", "model", "learning_rate", "local_steps", "batch_size")  # also where they are defaults
_MOST_NAMED = 4  # at most so many settings that differ are named


@dataclass(frozen=True)
class Tuned:
    """A hyperparameter that was tuned: the values that were tried, and the one chosen."""

    key: str
    tried: Sequence[str]
    chosen: str

    def __str__(self) -> str:
        return f"{self.key}: {', '.join(f'{value}*' if value == self.chosen else value for value in self.tried)}"


def board_data(job: LoadedJob) -> str | None:
    """The leaderboard's name of a job's data set; None where it has none for it."""
    name = data_set_name(job.header["config"]["data_set"])
    return name if name in CLIENTS else None


def of_its_size(job: LoadedJob) -> bool:
    """Tell whether a job on a leaderboard data set has about as many clients as FedScale's data set."""
    num_clients = CLIENTS[str(board_data(job))]
    return abs(job.header["num_clients"] - num_clients) <= _TOLERANCE * num_clients


def lacks(jobs: Sequence[LoadedJob], tuned: Sequence[Tuned] | None, commit: str | None) -> list[str]:
    """List what a complete entry of these jobs still lacks, each in a few words."""
    problems = []
    seeds = sorted(job.seed for job in jobs)
    if missing := [seed for seed in SEEDS if seed not in seeds]:
        problems.append(
            f"seeds {enumerated(missing)} are missing" if len(missing) > 1 else f"seed {missing[0]} is missing"
        )
    if other := [seed for seed in dict.fromkeys(seeds) if seed not in SEEDS or seeds.count(seed) > 1]:
        problems.append(f"seeds {enumerated(other)} must not count: it takes each of 0 to 4 once")
    if differ := [*differences(jobs), *differing_files(*(job.named_files for job in jobs))]:
        more = f" and {len(differ) - _MOST_NAMED} more" if len(differ) > _MOST_NAMED else ""
        problems.append(f"the jobs differ in {enumerated(differ[:_MOST_NAMED])}{more}, not only in their seed")
    early = [job.name for job in jobs if not job.finished or job.summary["rounds"] < job.rounds_asked]
    if early:
        problems.append(f"{enumerated(early)} did not finish all rounds")
    if not all(job.summary["accuracy"] and job.summary["accuracy"]["tested"] for job in jobs):
        problems.append("clients were not tested in all jobs")
    problems += _lacks_of_data(jobs[0])
    if tuned is None:
        problems.append("the tuned hyperparameters are not named: --tuned key=tried,chosen*, or --tuned none")
    if commit is None:
        problems += _lacks_of_commit(jobs)
    return problems


def _lacks_of_data(job: LoadedJob) -> list[str]:
    if job.header["data"]["generated"]:
        return ["the data are generated, not real"]
    data = board_data(job)
    if data is None:
        return [f"the leaderboard has no data set {job.header['config']['data_set']}, only {enumerated(list(CLIENTS))}"]
    if not of_its_size(job):
        clients = job.header["num_clients"]
        return [f"the data are not FedScale's: {clients:,} clients, where its {data} has {CLIENTS[data]:,}"]
    return []


def _lacks_of_commit(jobs: Sequence[LoadedJob]) -> list[str]:
    commits = {str(job.header["versions"].get("commit", ABSENT)) for job in jobs}
    if len(commits) > 1:
        return ["the jobs ran on different commits"]
    (one,) = commits
    if one == ABSENT:
        return ["the commit that ran them is not known: --commit ID"]
    if one.endswith(CHANGED):
        return ["they ran on code with changes that are not committed"]
    return []


def lacks_of_tuned(job: LoadedJob, tuned: Tuned) -> list[str]:
    """Tell whether the jobs ran with another value than the one named as chosen."""
    names = (tuned.key, f"{job.header['method']}.{tuned.key}")
    name = next((name for name in names if name in job.settings), None)
    known = None if name is None else job.settings[name]
    same = str(known) == tuned.chosen or (name is not None and known == _as_configured(name, tuned.chosen))
    return [] if same else [f"the jobs ran with {tuned.key} {known}, not with the chosen {tuned.chosen}"]


def _as_configured(key: str, text: str) -> Any:
    """The value, as JSON has it, that a job has from --set KEY=TEXT; the text itself where it is refused."""
    try:
        value = load_yaml(text)
    except ValueError:
        value = text
    try:
        return json.loads(json.dumps(make_config({}, {key: value}).echo()[key]))
    except UserError:
        return text


def entry(
    jobs: Sequence[LoadedJob], tuned: Sequence[Tuned], *, commit: str | None, contact: str, external_data: str
) -> dict[str, Any]:
    """The entry of jobs that lack nothing, as JSON values."""
    jobs = sorted(jobs, key=lambda job: job.seed)
    first = jobs[0]
    values = torch.tensor([job.summary["accuracy"]["sample_weighted"] for job in jobs], dtype=torch.float64)
    parameters = [[int(model["cost"]["parameters"]) for model in job.summary["models"]] for job in jobs]
    return {
        "fedscale_version": first.header["versions"]["fedscale"],
        "fedscale_ext_version": first.header["versions"]["fedscale_ext"],
        "commit": commit or first.header["versions"]["commit"],
        "method": first.header["method"],
        "external_data": external_data,
        "dataset": board_data(first),
        "model": Path(first.header["config"]["model"]).stem,
        "model_specs": [model["spec"] for model in first.summary["models"]],
        "clients": first.header["num_clients"],
        "test_accuracy_mean": float(torch.mean(values)),
        "test_accuracy_std": float(torch.std(values, unbiased=True)),
        "test_accuracy": {str(job.seed): float(value) for job, value in zip(jobs, values, strict=True)},
        "rounds": first.summary["rounds"],
        "hours": float(torch.tensor([job.summary["time"]["virtual_s"] for job in jobs]).mean()) / 3600,
        "parameters_largest_model": max(map(max, parameters)),
        "parameters_all_models": [sum(each) for each in parameters],
        "tuned_hyperparameters": [str(one) for one in tuned],
        "hyperparameters": dict(first.header["params"]),
        "versions": dict(first.header["versions"]),
        "contact": contact,
    }


def configuration(job: LoadedJob) -> str:
    """YAML that gives a job's settings again, seed and places left out; UserError where it would not."""
    asked = {key: value for key, value in decisive(job.header["config"]).items() if key != "seed"}
    keys = recorded_keys(asked)
    always = [key for key in _ALWAYS if key != "local_steps" or asked.get("local_epochs") is None]
    settings = {key: asked[key] for key in asked if key in keys or key in always}
    again = make_config({}, settings).decisive()
    for key, value in asked.items():
        if key in again and again[key] != value:
            raise UserError(f"the settings of {job.name} cannot be written down again: {key} would be "
                            f"{again.get(key)!r}, not {value!r}")  # fmt: skip
    flat = {"job_name": _stem(job), **settings, "rounds": job.rounds_asked}
    text = yaml.safe_dump(
        {"worker_ips": ["localhost"], "job_conf": [{key: value} for key, value in flat.items()]},
        sort_keys=False,
        allow_unicode=True,
    )
    return text


def _stem(job: LoadedJob) -> str:
    return "_".join([job.header["method"], str(board_data(job)), Path(job.header["config"]["model"]).stem])


def write(folder: Path, jobs: Sequence[LoadedJob], content: Mapping[str, Any]) -> list[Path]:
    """Write an entry as JSON, as Markdown, and the configuration that repeats it; the paths. UserError where the folder
    has an entry of this name from other settings."""
    first = min(jobs, key=lambda job: job.seed)
    stem = _stem(first)
    paths = [folder / f"{stem}{ending}" for ending in (".json", ".md", ".yml")]
    command = f"fedscale driver start {stem}.yml --seeds 0-4"
    settings = configuration(first)
    content = {**content, "command": command, "configuration": settings}
    if paths[0].is_file() and _configuration_of(paths[0]) != settings:
        raise UserError(
            f"{paths[0]} is the entry of jobs with other settings: name another folder with -o, or remove it"
        )
    try:
        write_atomic(paths[2], f"# {command}\n{settings}")
        write_atomic(paths[1], _markdown(content))
        write_atomic(paths[0], json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{folder} cannot be written to: {error.strerror}; name another folder with -o") from None
    return paths


def _configuration_of(path: Path) -> str | None:
    """The configuration of the entry in a file; None where it cannot be read."""
    try:
        content = read_json(path, MEGA)
    except (OSError, ValueError):
        return None
    return content.get("configuration") if isinstance(content, dict) else None


def _markdown(content: Mapping[str, Any]) -> str:
    accuracy = f"{content['test_accuracy_mean']:.4f} ± {content['test_accuracy_std']:.4f}"
    rows = {
        "FedScale version": f"{content['fedscale_version']}, with fedscale_ext {content['fedscale_ext_version']}",
        "Commit": content["commit"],
        "Method": content["method"],
        "External data": content["external_data"],
        "Data set": f"{content['dataset']}, {content['clients']:,} clients",
        "Model": content["model"],
        "Test accuracy (seeds 0 to 4)": accuracy,
        "Rounds": str(content["rounds"]),
        "Hours on FedScale's clock": f"{content['hours']:.1f}",
        "Parameters": f"{content['parameters_largest_model']:,} (largest model)",
        "Tuned hyperparameters (chosen: *)": "; ".join(content["tuned_hyperparameters"]) or "none",
        "Contact": content["contact"] or "–",
    }
    table = "\n".join(f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in rows.items())
    each = ", ".join(f"{seed}: {value:.4f}" for seed, value in content["test_accuracy"].items())
    return (
        f"# {content['method']} on {content['dataset']}\n\n| | |\n|---|---|\n{table}\n\nBy seed: {each}.\n\n"
        f"```bash\n{content['command']}\n```\n\n```yaml\n{content['configuration']}```\n"
    )
