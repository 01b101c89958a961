"""When growing beats the base model: with enough participants for each model, and a base too small for the data. Not
in the paper."""

from evals.fedtrans.ledger import LARGEST
from evals.fedtrans.settings import PAPER, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import Keys, ModelOf
from evals.paper.orders import Order

PARTICIPANTS = (10, 40, 80)
_METHODS = (("FedAvg, base model", "fedavg"), ("FedTrans", "fedtrans"))


def _small_base(data: str, width: str, file: str) -> list[Arm]:
    """A hundred take part in each round, with a base of a share of the channels."""
    base, what = str(PAPER.folder / "models" / f"{file}.json"), f"100, {width} of the channels"
    rows: list[tuple[str, Keys]] = [(label, {"method": method, "model": base}) for label, method in _METHODS]
    # every device affords the whole of the data set's base model, of which this is a part
    rows.append(("FedTrans with room", {"method": "fedtrans", "model": base, "capacity_model": PAPER.base_model}))
    rows.append((LARGEST, {"method": "fedavg", "model": ModelOf(f"FedTrans, {what}")}))
    return [Arm(f"{label}, {what}", {**keys, "num_participants": 100}, data) for label, keys in rows]


EXPERIMENT = Experiment(
    "regime",
    "FedTrans and FedAvg on its base model by participants per round and by the size of the base",
    [
        Arm(f"{label}, {number}", {"method": method, "num_participants": number}, "cifar10", x=number)
        for number in PARTICIPANTS
        for label, method in _METHODS
    ]
    + _small_base("cifar10", "quarter", "nasbench201_quarter")
    + _small_base("cifar10", "half", "nasbench201_half")
    + _small_base("cifar10", "eighth", "nasbench201_eighth")
    + _small_base("mnist-h0.5", "quarter", "nasbench201_mnist_quarter")
    + _small_base("mnist-h0.5", "eighth", "nasbench201_mnist_eighth"),
    plot=plots.bars("accuracy %", "TMACs", "participants / model"),
    note="The number is that of participants. The base model is the smallest. A half of its channels, a quarter and an "
    "eighth are too small for the data; `--set model=nasbench201_2x` and larger ones show where it is large "
    "enough. The weakest device affords just the base. With room, it affords the one with all channels.",
    orders=[
        Order(
            "accuracy %", f"FedTrans, 100, {width} of the channels", f"FedAvg, base model, 100, {width} of the channels"
        )
        for width in ("half", "quarter", "eighth")
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
