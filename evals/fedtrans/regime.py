"""When growing beats the base model: with enough participants for each model, and a base too small for the data. Not
in the paper."""

from evals.fedtrans.ledger import LARGEST
from evals.fedtrans.settings import PAPER, main
from evals.paper import plots
from evals.paper.engine import Arm, Experiment

PARTICIPANTS = (10, 40, 80)
_METHODS = (("FedAvg, base model", "fedavg"), ("FedTrans", "fedtrans"))


def _small_base(width: str) -> list[Arm]:
    """All clients take part, with a base of a share of the channels."""
    base, what = str(PAPER.folder / "models" / f"nasbench201_{width}.json"), f"100, {width} of the channels"
    rows = [(label, method, base) for label, method in _METHODS] + [(LARGEST, "fedavg", f"@largest:FedTrans, {what}")]
    return [
        Arm(f"{label}, {what}", {"method": method, "model": model, "num_participants": 100}, "cifar10")
        for label, method, model in rows
    ]


EXPERIMENT = Experiment(
    "regime",
    "FedTrans and FedAvg on its base model by participants per round and by the size of the base",
    [
        Arm(f"{label}, {number}", {"method": method, "num_participants": number}, "cifar10", x=number)
        for number in PARTICIPANTS
        for label, method in _METHODS
    ]
    + [arm for width in ("quarter", "half") for arm in _small_base(width)],
    plot=plots.bars("accuracy %", "TMACs", "participants / model"),
    note="The number is that of participants. The base model is the smallest: `--set model=nasbench201_2x` and larger "
    "ones show where it is large enough for the data; a quarter and half of its channels are too small for it.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
