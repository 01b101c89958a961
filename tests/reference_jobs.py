"""Smallest jobs of every method, and digests of what they give: for changes of the code that change no result.

    python tests/reference_jobs.py write before.json
    python tests/reference_jobs.py compare before.json

Each job runs unbroken, then once more, ended after its first round and resumed; some run by four executor processes,
too. All runs of a job must agree to the last bit. Digests hold for one machine and its versions of torch and NumPy,
since rounding differs between processors: write them there, from the code as it was before the change.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from job_results import result, states
from methods.small_space import written
from tiny_job import tiny_data, write_job_file

import fedscale_ext
from fedscale_ext.core.errors import UserError

PARTS = ("rounds", "models", "sentences")
_ALIKE = ("rounds", "models", "states")  # in all runs of a job
_LAST_TESTS = ("personalised", "on_all")
_GROWING = {"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9, "rounds": 4}
_EXITS = {"model": "multi_exit_cnn3"}
_LEVELS = {"capacity_spread": 16.0, "model": "cnn_small"}
_RANGES, _THREE_RANGES = ["1-4", "5-7"], ["1-2", "3-4", "5-7"]
_PRUNED = {"model": "lenet_6k", "local_steps": 6, "rounds": 3, "cohort_size": 2}
_TYPED = {"model": "lenet_6k", "public_samples": 8, "num_participants": 5}


def _types(method: str, **more: Any) -> dict[str, Any]:
    params = {"types": ["single_exit_mlp", "lenet_6k"], "ranges": _RANGES, **more}
    return {**_TYPED, "method": method, **{f"{method}.{name}": value for name, value in params.items()}}


def _pruned(method: str, **more: Any) -> dict[str, Any]:
    return {**_PRUNED, "method": method, **{f"{method}.{name}": value for name, value in more.items()}}


def jobs(space: Path) -> dict[str, dict[str, Any]]:
    """Name and settings of each job; ``space`` is the file of a small supernet."""
    supernet = {"model": str(space), "num_participants": 6, "local_steps": 4}
    return {
        "fedavg": {"method": "fedavg"},
        "fedavg_cohorts": {"method": "fedavg", "cohort_size": 3, "personalise_epochs": 1, "test_on_all": True},
        "fedavg_options": {"method": "fedavg", "model": "cnn_small", "control_variates": True, "prox_mu": 0.1,
                           "bn_statistics": "federated"},
        "fedavg_adam": {"method": "fedavg", "model": "cnn_small", "client_optimizer": "adam", "overcommitment": 1.5},
        "fedavg_private": {"method": "fedavg", "model": "cnn_small", "dp_clip_norm": 1.0, "dp_noise_multiplier": 0.5},
        "fedprox": {"method": "fedprox"},
        "fedadam": {"method": "fedadam"},
        "fedyogi": {"method": "fedyogi"},
        "qfedavg": {"method": "qfedavg"},
        "local": {"method": "local"},
        "oort": {"method": "fedavg", "sample_mode": "oort", "rounds": 3},
        "pyramidfl": {"method": "fedavg", "sample_mode": "pyramidfl", "rounds": 3},
        "fedtrans": {"method": "fedtrans", **_GROWING},
        "fedtrans_cohorts": {"method": "fedtrans", **_GROWING, "cohort_size": 3, "num_participants": 7},
        "heterofl": {"method": "heterofl", **_LEVELS},
        "fedrolex": {"method": "fedrolex", **_LEVELS, "cohort_size": 2},
        "fjord": {"method": "fjord", **_LEVELS},
        "splitmix": {"method": "splitmix", **_LEVELS},
        "fluid": {"method": "fluid", **_LEVELS, "rounds": 4},
        "scalefl": {"method": "scalefl", **_EXITS, "scalefl.widths": [0.5, 0.75, 1.0], "scalefl.exits": [1, 2, 3]},
        "depthfl": {"method": "depthfl", **_EXITS},
        "hypemefed": {"method": "hypemefed", **_EXITS, "hypemefed.groups": [3, 2, 2], "hypemefed.hidden": 8,
                      "hypemefed.epochs": 2, "hypemefed.k": 8, "num_participants": 6, "record_internals": True},
        "fedoras": {"method": "fedoras", **supernet, "fedoras.brackets": [0.08], "fedoras.allocation": "shares",
                    "fedoras.dynamic_budget": 0.3, "fedoras.supernet_rounds": 1, "fedoras.evaluations": 6,
                    "fedoras.population": 4, "fedoras.parents": 2, "fedoras.finetune_rounds": 2, "rounds": 3,
                    "filter_less": 3},
        "fednas": {"method": "fednas", **supernet, "fednas.search_rounds": 2, "rounds": 3},
        "spider": {"method": "spider", **supernet, "spider.proj_start": 1, "spider.proj_recovery": 1,
                   "spider.shrink": "operator", "rounds": 3},
        "moss": {**_types("moss", epochs=1), "record_internals": True},
        "fedmd": _types("fedmd", pretrain_epochs=1, private_epochs=2, digest_batch=4),
        "dsfl": _types("dsfl", epochs=1, samples=6),
        "fedgems": _types("fedgems", server_epochs=2),
        "feddf": _types("feddf", steps=6, patience=4),
        "fedet": _types("fedet", steps=4, representation=8),
        "fedproto": {**_types("fedproto", representation=8), "cohort_size": 2},
        "fedtgp": {**_types("fedtgp", representation=8, epochs=5), "cohort_size": 2},
        "fd": {**_types("fd"), "cohort_size": 2},
        "lgfedavg": {**_types("lgfedavg", representation=8), "cohort_size": 2},
        "fml": {**_types("fml", alpha=0.4), "cohort_size": 2},
        "fedkd": {**_types("fedkd"), "cohort_size": 2},
        "fedgh": {**_types("fedgh", representation=8), "cohort_size": 2},
        "fedmrl": {**_types("fedmrl", width=6), "cohort_size": 2},
        "fedgen": {**_types("fedgen", representation=8, steps=5), "cohort_size": 2},
        "fedl2g": {**_types("fedl2g", representation=8, warm_up=1), "cohort_size": 2},
        "hermes": _pruned("hermes", threshold=0.2, step=0.5, ranges=_THREE_RANGES),
        "lotteryfl": _pruned("lotteryfl"),
        "tailorfl": _pruned("tailorfl", ranges=_THREE_RANGES),
        "fedmask": _pruned("fedmask", ranges=_THREE_RANGES),
        "fedskel": _pruned("fedskel", ranges=_THREE_RANGES),
        "zerofl": _pruned("zerofl"),
    }  # fmt: skip


BY_FOUR_PROCESSES = (
    "fedavg_cohorts",
    "fedtrans_cohorts",
    "heterofl",
    "hypemefed",
    "fedoras",
    "moss",
    "fedmd",
    "hermes",
)


def digests(log_dir: Path, summary: Mapping[str, Any]) -> dict[str, str]:
    """Sha256 of each of :data:`PARTS`: every round's figures, clients' ones among them; the models' specs and
    weights; and the sentences that the job tells people at its end. Beside them, that of all states between rounds."""
    job = result(log_dir)
    for entry in job["rounds"][:-1]:  # a job that was ended early made its last tests there
        for name in _LAST_TESTS:
            entry.pop(name, None)
    models = hashlib.sha256()
    for key, (spec, state) in job["models"].items():
        models.update(_json([key, spec]))
        for name, tensor in sorted(state.items()):
            models.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            models.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    sentences = [summary.get("notices"), _without_times(summary.get("results"))]
    return {
        "rounds": hashlib.sha256(_json(job["rounds"])).hexdigest(),
        "models": models.hexdigest(),
        "sentences": hashlib.sha256(_json(sentences)).hexdigest(),
        "states": hashlib.sha256(_json(states(log_dir))).hexdigest(),
    }


def _without_times(value: Any) -> Any:
    """A method's results without how long anything took."""
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if "wall" not in key}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


class _Runs:
    """The runs of all jobs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = write_job_file(tiny_data(folder), folder)
        self.jobs = jobs(written(folder))

    def run(self, job: str, name: str, **more: Any) -> dict[str, str]:
        """Run a job under a name and digest it; what it prints is shown if it fails."""
        keys = {"eval_interval": 1, "num_executors": 2, **self.jobs[job], "job_name": name, **more}
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                summary = fedscale_ext.run(self.conf, progress=False, **keys)
        except Exception:
            print(said.getvalue(), file=sys.stderr)
            raise
        return digests(Path(summary["log_dir"]), summary)

    def all_ways(self, job: str) -> tuple[dict[str, str], list[str]]:
        """A job's digests, and the ways of running it in which it comes out otherwise."""
        unbroken = self.run(job, f"{job}_unbroken")
        self.run(job, f"{job}_broken", rounds=1)
        ways = {"resumed": self.run(job, f"{job}_broken", resume=True)}
        if job in BY_FOUR_PROCESSES:
            ways["four processes"] = self.run(job, f"{job}_four", processes=True, worker_ips=["localhost:[4]"])
        return unbroken, [way for way, parts in ways.items() if any(parts[part] != unbroken[part] for part in _ALIKE)]


def main() -> int:
    """Write or compare; exit code 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", nargs="+", help="some of the jobs instead of all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    before = json.loads(args.file.read_text()) if args.action == "compare" else {}
    after: dict[str, dict[str, str]] = {}
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDSCALE_EXT_STATE"] = f"{folder}/state"
        runs = _Runs(Path(folder))
        for job in args.jobs or runs.jobs:
            try:
                after[job], differing = runs.all_ways(job)
            except UserError as error:
                print(f"{job:20} FAILED: {error}", flush=True)
                faults += 1
                continue
            changed = [part for part in PARTS if job in before and before[job][part] != after[job][part]]
            new = args.action == "compare" and job not in before
            faults += bool(differing or changed or new)
            verdict = [f"{way} differs" for way in differing] + [f"{part} changed" for part in changed]
            fine = "not in the file" if new else "as it was" if before else "written"
            print(f"{job:20} {', '.join(verdict) or fine}", flush=True)
    if args.action == "write":
        args.file.write_text(json.dumps(after, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
