"""What the paper leaves open, read otherwise: literal readings of its text, and no decay of the learning rate. Not in
the paper."""

from evals.fedtrans.arms import anchors, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_READINGS = (
    ("older models on the leading part", {"fedtrans.align": "prefix"}),
    ("Eq 5 as printed", {"fedtrans.normalise": "literal"}),
    ("decay since the start", {"fedtrans.decay_clock": "global"}),
    ("similarities added up", {"fedtrans.sim_reduce": "sum"}),
    ("equal shares of replicas", {"fedtrans.symmetry": "equal"}),
    ("loss of all participants", {"fedtrans.doc_loss": "all"}),
    ("a client's losses over its own so far", {"fedtrans.utility": "client_history"}),
    ("no learning-rate decay", {"decay_factor": 1.0}),
)
# of ResNets alone, so of the data set whose base is one
_WHOLE_BLOCKS = Arm("whole blocks widen", {"method": "fedtrans", "fedtrans.widen": "block"}, "speech_half")
EXPERIMENT = Experiment(
    "readings",
    "FedTrans by other readings of its paper",
    [
        fedtrans(),
        *(Arm(label, {"method": "fedtrans", **keys}) for label, keys in _READINGS),
        _WHOLE_BLOCKS,
        *anchors(),
    ],
    plot=plots.bars("accuracy %", "TMACs"),
    note="Each row changes one resolution of FedTrans's. Decay of the learning rate "
    "concerns FedAvg too, which keeps it here.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
