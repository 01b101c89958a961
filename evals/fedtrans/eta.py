"""Decay of sharing (Eq 5): a short run has few rounds in which larger models leave the smaller ones behind. Not in the
paper, whose 0.98 belongs to 1,000 to 2,000 rounds."""

from evals.fedtrans.arms import reference_arms, swept
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

EXPERIMENT = Experiment(
    "eta",
    "Decay of the soft aggregation",
    [
        *swept("eta", (0.5, 0.8, 0.9, 0.98), "eta"),
        Arm("no sharing", {"method": "fedtrans", "fedtrans.sharing": "none"}),
        *reference_arms(),
    ],
    plot=plots.bars("accuracy %", "TMACs", "participants / model"),
    note="At an age of t rounds a model's own weights have the weight 1, a smaller one's eta^t times their similarity.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
