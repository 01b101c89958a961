"""Figure 9: the transformed models beside known architectures (claim F12)."""

from evals.fedtrans.arms import FEDTRANS, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import ModelOf, WeightsOf

_KNOWN = ("efficientnet_v2_s", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "resnet18", "resnet34")
_TRANSFORMED = [ModelOf(FEDTRANS, k) for k in range(3)]
EXPERIMENT = Experiment(
    "fig9",
    "Figure 9: accuracy and MACs of architectures",
    [
        fedtrans(),
        *(
            Arm(f"transformed m{k}", {"method": "fedavg", "model": model, "initial_weights": WeightsOf(model)})
            for k, model in enumerate(_TRANSFORMED)
        ),
        *(Arm(name, {"method": "fedavg", "model": f"torchvision_{name}"}) for name in _KNOWN),
    ],
    ("accuracy %", "MACs of largest", "TMACs"),
    plots.scatter("MACs of largest"),
    note="Transformed models are those of FedTrans's job, which FedAvg trains further on all clients, capacities "
    "ignored. Known architectures are trained in the same way from scratch. TMACs are those of the row's own job.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
