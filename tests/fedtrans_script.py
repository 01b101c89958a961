"""A small table of FedTrans's paper, as tests run its script and read its rows."""

from pathlib import Path
from typing import Any

from evals.fedtrans.arms import LARGEST, MIDDLE
from evals.fedtrans.settings import main
from evals.paper import output, plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.runs import Records

EXPERIMENT = Experiment(
    "try",
    "Two methods",
    [
        Arm("FedTrans", {"method": "fedtrans"}, paper={"accuracy %": 76.42}),
        Arm("largest", {"method": "fedavg", "model": LARGEST}),
        Arm("middle", {"method": "fedavg", "model": MIDDLE}),
        Arm("absent", {"method": "nobody"}),
    ],
    columns=("accuracy %", "TMACs", "models", "participants / model", "MACs of largest", "rounds"),
    plot=plots.bars("accuracy %"),
)


def call(experiment: Experiment, places: dict[str, Path], *more: str) -> int:
    """The exit code of an experiment's script at the smallest scale, with its folders and further options."""
    options = [word for name, path in places.items() for word in (f"--{name}", str(path))]
    return main(experiment, ["--scale", "smoke", "--set", "batch_size=5", *options, *more])


def rows_of(folder: Path, table: str = "try_smoke") -> list[dict[str, Any]]:
    """The recorded rows of a table."""
    return output.rows_of(Records.load(folder), table)
