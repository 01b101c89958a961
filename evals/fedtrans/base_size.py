"""When growing beats the base model: with bases that are ever smaller for the data. Not in the paper."""

from evals.fedtrans.settings import PAPER, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_FOLDER = PAPER.folder / "models"
_BASES = {
    "quarter of the channels": str(_FOLDER / "resnet18_speech_quarter.json"),
    "half of the channels": str(_FOLDER / "resnet18_speech_half.json"),
    "all channels": "resnet18_speech",
}
EXPERIMENT = Experiment(
    "base_size",
    "FedTrans and FedAvg on its base model by the size of the base",
    [
        Arm(f"{label}, {width}", {"method": method, "model": model}, "speech")
        for width, model in _BASES.items()
        for label, method in (("FedAvg", "fedavg"), ("FedTrans", "fedtrans"))
    ],
    ("accuracy %", "TMACs", "MACs of largest", "models", "participants / model"),
    plots.bars("accuracy %", "TMACs", "participants / model"),
    note="The weakest device affords the base, whatever its size; the others in proportion.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
