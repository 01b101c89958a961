"""The clock of Eq 5's decay: a model's age, or the rounds since the start, as the text says. Not in the paper.

    python -m evals.fedtrans.decay --seeds 1 2 3 --set rounds=400

Where the base is too small for the data, growing pays in the end, and sharing decides when: by age, each birth mixes
the child with its ancestors anew. Accuracy after 150, 400 and 1,000 rounds are of the same job.
"""

from collections.abc import Sequence
from dataclasses import replace

from evals.fedtrans.settings import PAPER, main
from evals.paper import jobs, plots
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order

ROUNDS = (150, 400, 1000)
_DATA = "mnist-h0.5"
_KEYS = {"model": str(PAPER.folder / "models" / "nasbench201_mnist_eighth.json"), "num_participants": 100,
         "fedtrans.gamma": 10, "fedtrans.delta": 30, "eval_interval": 50}  # fmt: skip
_AGE, _GLOBAL, _NONE, _BASE = "age, 0.98", "since the start, 0.98", "no sharing", "FedAvg, base model"
_SHARING = {
    _AGE: {"fedtrans.decay_clock": "age"},
    "age, 0.8": {"fedtrans.decay_clock": "age", "fedtrans.eta": 0.8},
    _GLOBAL: {"fedtrans.decay_clock": "global"},
    _NONE: {"fedtrans.sharing": "none"},
}


def after(round: int) -> str:
    """Name of the column of accuracies after a round."""
    return f"accuracy % after {round:,}"


def _by_round(runs: Sequence[Run]) -> list[Run]:
    """The runs with their accuracies after the rounds of :data:`ROUNDS` that they reached."""
    result = []
    for run in runs:
        accuracies = jobs.accuracy_by_round(run.log_dir) if run.log_dir is not None else {}
        columns = {after(number): accuracies[number] for number in ROUNDS if number in accuracies}
        result.append(replace(run, figures={**run.figures, **columns}))
    return result


EXPERIMENT = Experiment(
    "decay",
    "FedTrans by the clock of its decay, where the base is too small for the data",
    [
        *(Arm(label, {"method": "fedtrans", **_KEYS, **sharing}, _DATA) for label, sharing in _SHARING.items()),
        Arm(_BASE, {"method": "fedavg", **_KEYS}, _DATA),
    ],
    columns=(*map(after, ROUNDS), "TMACs", "models", "participants / model"),
    plot=plots.bars("accuracy %", "TMACs", "models"),
    rows=_by_round,
    orders=[Order(after(number), _GLOBAL, other) for number in ROUNDS for other in (_AGE, _NONE, _BASE)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
