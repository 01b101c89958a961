"""Table 4: FedorAS, FedNAS and SPIDER across silos, in which everybody takes part."""

from dataclasses import replace

from evals.fedoras.arms import ACCURACY, FEDORAS, PEAK, fedoras
from evals.fedoras.searches import FEDNAS, PERSONAL, PERSONAL_SPREAD, best_tiers
from evals.fedoras.settings import PATH_STEPS, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order

SPIDER = "SPIDER"


def _fedoras(data: str, paper: float) -> Arm:
    """One tier of all devices; a step trains a path, of which a round has more than the others' have of mixtures."""
    arm = fedoras(data, paper={ACCURACY: paper}, tiers=1)
    return replace(arm, keys={**arm.keys, "local_steps": PATH_STEPS})


EXPERIMENT = Experiment(
    "table4",
    "Table 4: federated architecture search across silos",
    [
        Arm("FedNAS", {**FEDNAS, "personalise_epochs": 1}, "silos20-h0.5", {ACCURACY: 81.2}),
        _fedoras("silos20-h0.5", 90.6),
        Arm(SPIDER, {"method": "spider", "learning_rate": 0.01, "decay_factor": 1.0, "client_weight_decay": 1e-3,
                     "clip_norm": 5.0}, "silos8-h0.2", {PERSONAL: 92.0, PERSONAL_SPREAD: 2.0}),
        _fedoras("silos8-h0.2", 90.82),
    ],
    (ACCURACY, PERSONAL, PERSONAL_SPREAD, "personalised %", PEAK, "TMACs"),
    plots.bars(ACCURACY),
    note="Twenty clients at Dirichlet 0.5, eight at 0.2; FedNAS's 81.2 % is of 16 clients. FedorAS has one tier of all "
    "devices. SPIDER serves each client a network of its own. Its accuracy here is that of the global one. "
    "`clients' own` is that of the clients' networks, `personalised` that after an epoch of each client's own.",
    rows=best_tiers,
    orders=[Order(ACCURACY, FEDORAS, "FedNAS"), Order(ACCURACY, FEDORAS, SPIDER)],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
