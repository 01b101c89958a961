"""Figure 1b: no model is the best for most clients (claim F20)."""

from evals.fedtrans.settings import PAPER, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_NARROW = ((1 / 16, 2), (1 / 8, 3), (1 / 4, 4), (1 / 2, 6))  # times the MACs of 1x, channels of the first stage


def _model(times: float, channels: int) -> Arm:
    file = PAPER.folder / "models" / f"nasbench201_chars74k_{channels}.json"
    return Arm(f"{times:g}x", {"method": "fedavg", "model": str(file)}, x=times, scales=("small",))


EXPERIMENT = Experiment(
    "fig1b",
    "Figure 1b: share of clients whose best model each one is",
    [
        *(_model(times, channels) for times, channels in _NARROW),
        *(
            Arm(f"{times}x", {"method": "fedavg", "model": f"nasbench201_{times}x"}, x=times)
            for times in (1, 2, 4, 8, 16, 32, 64)
        ),
    ],
    ("accuracy %", "MACs of largest", "TMACs"),
    plots.best_models,
    shares=plots.best_shares,
    note="Seven NAS-Bench-201 models of doubling MACs, each trained by FedAvg with capacities ignored. Clients with "
    "the same accuracy on several models are shared out among them. Small: also narrower ones, down to a sixteenth of "
    "1x; the largest take hours on two cores, `--arms` leaves them out.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
