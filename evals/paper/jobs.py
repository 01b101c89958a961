"""One job of the evaluation: trained now, continued, or done before, and the figures that the paper reports of it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.config.methods import method_class
from fedscale_ext.methods.submodel.capacity_levels import ShrinkingAggregator
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.convergence import converged_round, mean_accuracies
from fedscale_ext.metrics.cost import spent
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.util.commit import ABSENT, CHANGED

_STOP_RULE = {"stop_gain": 0.01, "stop_patience": 10, "stop_unit": "rounds"}  # FedTrans, appendix A.1


class Failed(Exception):
    """Why a job has no result; one sentence."""


def train(keys: Mapping[str, Any], data_name: str, seed: int, job: Path, runs: Path, *, in_process: bool) -> Path:
    """Log folder of the finished job with these job_conf keys beside those of the file ``job``.

    Jobs with equal keys are one job, whichever table asks for it; one that was interrupted goes on where it was.
    """
    name = f"{keys.get('method', 'fedavg')}_{data_name}_{digest(keys)}_{seed}"
    log_dir = runs / "logs" / name / "run"
    if (log_dir / "summary.json").is_file():
        return log_dir
    identity = {"job_name": name, "log_path": str(runs), "time_stamp": "run", "seed": seed}
    begun = any((log_dir / "checkpoints").glob("checkpoint-*.safetensors"))
    if in_process:
        _in_process(job, {**keys, **identity, "resume": begun})
    else:
        settings = [f"--set={key}={json.dumps(value)}" for key, value in {**keys, **identity}.items()]
        command = [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(job), *settings]
        environment = {**os.environ, "FEDSCALE_EXT_STATE": str(runs / "state")}
        code = subprocess.run([*command, "--resume"] if begun else command, env=environment).returncode
        if code:
            raise Failed(f"job {name} ended with code {code}")
    return log_dir


def _in_process(job: Path, keys: dict[str, Any]) -> None:
    import fedscale_ext
    from fedscale_ext.core.errors import UserError

    try:
        fedscale_ext.run(job, progress=False, **keys)
    except UserError as error:
        raise Failed(str(error)) from None


def digest(keys: Mapping[str, Any]) -> str:
    """Ten hex digits of the keys, places aside.

    A file of a model or of weights stands for what it holds, a folder of public data for its name.
    """
    decisive = {key: _held(value) for key, value in keys.items() if key != "data_dir"}
    if "public_dir" in decisive:
        decisive["public_dir"] = Path(decisive["public_dir"]).name
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]


def _held(value: Any) -> Any:
    if isinstance(value, list):
        return [_held(each) for each in value]
    if isinstance(value, str) and value.endswith(".json"):
        return json.loads(Path(value).read_text(encoding="utf-8"))
    if isinstance(value, str) and value.endswith(".safetensors"):
        return hashlib.sha256(Path(value).read_bytes()).hexdigest()
    return value


def summary(log_dir: Path) -> dict[str, Any]:
    """summary.json of a finished job."""
    return json.loads((log_dir / "summary.json").read_text(encoding="utf-8"))


def code_version(log_dir: Path) -> str | None:
    """Twelve digits of the commit that trained a job, and whether its files differed; None if it is not known."""
    header = json.loads((log_dir / "header.json").read_text(encoding="utf-8"))
    return short_commit(str(header.get("versions", {}).get("commit", ABSENT)))


def short_commit(commit: str) -> str | None:
    """Twelve digits of a commit as jobs record it, and whether files differed; None if it is not known."""
    return None if commit == ABSENT else commit[:12] + (CHANGED if commit.endswith(CHANGED) else "")


def model_file(log_dir: Path, which: str | int) -> str:
    """Spec file of the ``largest`` or ``middle`` model of a job by MACs, or of its k-th: 0, 1, …"""
    ranked = sorted(summary(log_dir)["models"], key=lambda model: model["cost"]["forward_macs"])
    index = {"largest": len(ranked) - 1, "middle": len(ranked) // 2}[which] if isinstance(which, str) else which
    if index >= len(ranked):
        raise Failed(f"{log_dir.parent.name} has {len(ranked)} models, not {index + 1}")
    key = ranked[index]["key"]
    return str(log_dir / "models" / f"{key}.json")


def figures(log_dir: Path) -> dict[str, float]:
    """What papers measure, and what stands beside it; MACs and bytes of all clients and rounds.

    "accuracy" is the clients' mean, each on the model that it is served, "global" the whole model's accuracy on the
    test samples of all clients together, "late" the mean of either over the evaluations in the last quarter of the
    rounds.
    """
    job = summary(log_dir)
    clientwise, cost, time, clients = job["accuracy"], job["cost"], job["time"], job["clients"]
    lines = (log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines]
    coordinator = [sum(one["seconds"].get(part, 0.0) for part in ("assign", "aggregate", "evolve")) for one in rounds]
    last = rounds[-max(1, len(rounds) // 10) :]
    by_column = {
        "accuracy %": 100 * clientwise["mean"],
        "IQR %": 100 * clientwise["iqr"],
        "worst %": 100 * clientwise["worst"],
        "TMACs": cost["training_macs"] / 1e12,
        "TMACs forward": cost["forward_macs"] / 1e12,
        "suite MB": cost["storage_suite_mb"],
        "mean model MB": cost["mean_model_mb"],
        "network MB": cost["network_total_mb"],
        "network MB / round": cost["network_per_round_mb"],
        "completion s": time["round_completion_mean_s"],
        "completion std s": time["round_completion_std_s"],
        "models": len(job["models"]),
        "MACs of largest": max(model["cost"]["forward_macs"] for model in job["models"]),
        "coordinator ms / round": 1e3 * float(np.mean(coordinator)),
        "training losses": float(clients["participations"]),  # one in each update
        "rounds": job["rounds"],
        "wall s": time["wall_s"],
        "round s": float(np.mean([one["round_duration_s"] for one in rounds])),
    }
    if not issubclass(method_class(job["method"]), ShrinkingAggregator):  # whose models are parts of one
        by_column["participants / model"] = float(np.mean([len(one["participants"]) / one["models"] for one in last]))
    late = [value for round, value in global_accuracies(log_dir) if round > 0.75 * job["rounds"]]
    late_means = [mean for round, mean in client_means(log_dir) if round > 0.75 * job["rounds"]]
    if late_means:
        by_column["accuracy, late %"] = 100 * float(np.mean(late_means))
    if late:
        by_column |= {"global %": 100 * late[-1], "global, late %": 100 * float(np.mean(late))}
    if job.get("personalised"):
        by_column["personalised %"] = 100 * job["personalised"]["mean"]
    if "unmasked" in clientwise:
        by_column["unmasked %"] = 100 * clientwise["unmasked"]["mean"]
    return by_column | at_convergence(log_dir)


def at_convergence(log_dir: Path) -> dict[str, float]:
    """Rounds, cost and best accuracy of a job up to where FedTrans's stop rule first held; none where it never did.

    By the job's ``stop_gain``, ``stop_patience`` and ``stop_unit``, or the appendix's 1 % over 10 rounds."""
    config = {**_STOP_RULE, **{key: value for key, value in summary(log_dir)["config"].items() if value is not None}}
    records = read_records(log_dir / "metrics.jsonl")
    seen = mean_accuracies(records)
    end = converged_round(seen, config["stop_gain"], config["stop_patience"], config["stop_unit"])
    if end is None:  # a cost of all rounds would be one at equal rounds, which decides nothing
        return {}
    until = spent(record for record in records if record.round <= end)
    return {
        "rounds to convergence": float(end),
        "TMACs at convergence": until.training_macs / 1e12,
        "TMACs forward at convergence": until.forward_macs / 1e12,
        "network MB at convergence": until.network_mb,
        "accuracy at convergence %": 100 * max(value for round, value in seen if round <= end),
    }


def global_accuracies(log_dir: Path) -> list[tuple[int, float]]:
    """(round, accuracy of the whole model in [0, 1]) of each evaluation; none for a job without such a model."""
    lines = (log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    named = [(one["round"], one["evaluation"]["named"]) for one in map(json.loads, lines) if one["evaluation"]]
    return [(round, models["global"][0]) for round, models in named if "global" in models]


def client_means(log_dir: Path) -> list[tuple[int, float]]:
    """(round, mean accuracy of the clients in [0, 1], each on the model that it is served) of each evaluation."""
    records = read_records(log_dir / "metrics.jsonl")
    return [(record.round, accuracy(record.evaluation).mean) for record in records if record.evaluation]


def accuracy_by_cost(log_dir: Path) -> list[tuple[float, float]]:
    """(TMACs of training so far, mean client accuracy in %) of each evaluation."""
    records = read_records(log_dir / "metrics.jsonl")
    spent = np.cumsum([record.training_macs for record in records]) / 1e12
    return [(float(macs), 100 * accuracy(record.evaluation).mean)
            for macs, record in zip(spent, records, strict=True) if record.evaluation]  # fmt: skip


def accuracy_by_round(log_dir: Path) -> dict[int, float]:
    """Round -> mean client accuracy in %, of each evaluation."""
    return {
        record.round: 100 * accuracy(record.evaluation).mean
        for record in read_records(log_dir / "metrics.jsonl")
        if record.evaluation
    }


def client_accuracies(log_dir: Path) -> np.ndarray:
    """float64 [clients], NaN for a client without test samples."""
    values = summary(log_dir)["accuracy"]["per_client"]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
