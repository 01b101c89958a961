"""Rows of FedNAS's and SPIDER's jobs beside FedorAS's: what they reach, and the memory of a client's step."""

from collections.abc import Sequence
from dataclasses import replace

from evals.fedoras.arms import ACCURACY, FEDORAS, PEAK
from evals.fedoras.tiers import figures_of, results, row
from evals.paper.experiment import Run
from evals.paper.jobs import summary
from evals.paper.orders import Order
from fedscale_ext.methods.fedoras.figures import NAMES

PERSONAL, PERSONAL_SPREAD = "clients' own %", "clients' own std %"
# of DARTS, which the public code steps by
FEDNAS = {"method": "fednas", "learning_rate": 0.025, "client_weight_decay": 3e-4, "clip_norm": 5.0}
BEST = [Order(ACCURACY, FEDORAS, other) for other in ("FedNAS", "FedNAS, half the batch")]


def best_tiers(runs: Sequence[Run]) -> list[Run]:
    """Each job as a row: FedorAS's with its best tier on the test samples, as the paper tells it, its highest peak, and
    what all tiers took, twins left out; others with the accuracy of their global network, and of what clients are
    served."""
    return [_of_fedoras(run) if run.arm.keys["method"] == "fedoras" else _of_another(run) for run in runs]


def _of_fedoras(run: Run) -> Run:
    tiers = [figures_of(tier) for tier in results(run)["tiers"]]
    figures = {name: max(one[name] or 0.0 for one in tiers) for name in (ACCURACY, PEAK)}
    stages = [stage for stage in results(run)["stages"] if stage["stage"] != NAMES["twin"]]
    figures["TMACs"] = sum(stage["training_macs"] for stage in stages) / 1e12
    figures["network MB"] = sum(stage["download_bytes"] + stage["upload_bytes"] for stage in stages) / 1e6
    return row(run, FEDORAS, figures, {FEDORAS: run.arm.paper})


def _of_another(run: Run) -> Run:
    clients = [share for share in summary(run.job)["accuracy"]["per_client"] if share is not None]
    mean = sum(clients) / len(clients)
    spread = (sum((share - mean) ** 2 for share in clients) / len(clients)) ** 0.5
    clientwise = {} if run.arm.keys["method"] == "fednas" else {PERSONAL: 100 * mean, PERSONAL_SPREAD: 100 * spread}
    peak = max(one["peak_mb"] for one in results(run)["memory"])
    return replace(run, figures={**run.figures, ACCURACY: run.figures["global %"], PEAK: peak, **clientwise})
