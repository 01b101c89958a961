"""What keeps a round's participants from being spread over too many models. Not in the paper."""

from evals.fedtrans.arms import anchors, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_FAST = {"method": "fedtrans", "fedtrans.delta": 15}
EXPERIMENT = Experiment(
    "dilution",
    "FedTrans: a round's participants, spread over few or many models",
    [
        *anchors("speech")[:1],
        fedtrans("speech"),
        Arm("delta = 15", _FAST, "speech"),
        Arm("delta = 15, served after 20 rounds", {**_FAST, "fedtrans.serve_min_rounds": 20}, "speech"),
        Arm("delta = 15, children fit half of the devices", {**_FAST, "fedtrans.cap_quantile": 0.5}, "speech"),
        Arm("FedAvg, base model, 80 participants", {"method": "fedavg", "num_participants": 80}, "speech"),
        Arm("FedTrans, 80 participants", {"method": "fedtrans", "num_participants": 80}, "speech"),
    ],
    plot=plots.bars("accuracy %", "TMACs", "participants / model"),
    note="Delta sets how often a model may be added; the other options are off by default.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
