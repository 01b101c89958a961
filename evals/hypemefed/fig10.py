"""Figure 10: generating BatchNorm and exits too (claim H9)."""

from dataclasses import replace

from evals.hypemefed.arms import GLOBAL, hypemefed
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment
from evals.paper.orders import Order

PERSONAL = "personalised %"
CONV, *MORE = ("convolutions", "and BatchNorm", "and exits", "and both")
_GENERATE = {CONV: "conv", **dict(zip(MORE, ("+bn", "+fc", "+bn+fc"), strict=True))}
_EPOCHS = {"personalise_epochs": 5}
EXPERIMENT = Experiment(
    "fig10",
    "Figure 10: what hypernetworks generate",
    [
        replace(arm, keys={**arm.keys, **_EPOCHS})
        for data in ("unimib", "svhn", "stl10")
        for label, generate in _GENERATE.items()
        for arm in [hypemefed(label, data, generate=generate)]
    ],
    (GLOBAL, "global %", "accuracy %", PERSONAL),
    plots.bars(GLOBAL, PERSONAL),
    note="Personalised: each client's accuracy after five epochs of its own on what it is served (the paper: a few). "
    "It was recorded by an earlier version, which tested with BatchNorm's running statistics of these epochs.",
    orders=[Order(column, CONV, other) for column in (GLOBAL, PERSONAL) for other in MORE],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
