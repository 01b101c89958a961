"""Arms that several tables and figures share. Equal keys make equal jobs, which are run once."""

from collections.abc import Mapping
from typing import Any

from evals.fedoras.settings import TWIN_ROUNDS, UNTIL_DONE
from evals.paper.experiment import Arm

FEDORAS = "FedorAS"
ACCURACY, PERPLEXITY, MMACS, KPARAMS = "test accuracy %", "perplexity", "MMACs", "Kparams"
MEAN, SPREAD, WORST, PEAK = "mean of clients %", "std of clients %", "worst client %", "peak MB"

Figures = Mapping[str, float]


def fedoras(data: str, label: str = FEDORAS, paper: Figures | None = None, **method_keys: Any) -> Arm:
    """FedorAS, its keys by the data set and ``own``; without twins. The supernet's rate is constant, as published."""
    keys = {f"fedoras.{name}": value for name, value in method_keys.items()}
    base = {"method": "fedoras", "rounds": UNTIL_DONE, "decay_factor": 1.0}
    return Arm(label, {**base, **keys}, data, paper or {})


def with_twins(data: str) -> Arm:
    """FedorAS, and the networks that it finds from random weights: Tables 6 and 7 and Figures 4 and 5 show its job."""
    return fedoras(data, "FedorAS and rand-init", twin_rounds=TWIN_ROUNDS)
