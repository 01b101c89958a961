"""Table 4: FedorAS, FedNAS and SPIDER across silos, in which everybody takes part."""

from evals.fedoras.arms import ACCURACY, FEDORAS, PEAK, fedoras
from evals.fedoras.searches import PERSONAL, PERSONAL_SPREAD, best_tiers
from evals.fedoras.settings import main
from evals.paper import plots
from evals.paper.engine import Arm, Experiment
from evals.paper.orders import Order

SPIDER = "SPIDER"
EXPERIMENT = Experiment(
    "table4",
    "Table 4: federated architecture search across silos",
    [
        Arm("FedNAS", {"method": "fednas", "learning_rate": 0.025, "client_weight_decay": 3e-4, "clip_norm": 5.0,
                       "personalise_epochs": 1}, "silos20-h0.5", {ACCURACY: 81.2}),
        fedoras("silos20-h0.5", paper={ACCURACY: 90.6}, tiers=1),
        Arm(SPIDER, {"method": "spider", "client_weight_decay": 1e-3, "clip_norm": 5.0}, "silos8-h0.2",
            {PERSONAL: 92.0, PERSONAL_SPREAD: 2.0}),
        fedoras("silos8-h0.2", paper={ACCURACY: 90.82}, tiers=1),
    ],
    (ACCURACY, PERSONAL, PERSONAL_SPREAD, "personalised %", PEAK, "TMACs"),
    plots.bars(ACCURACY),
    note="Twenty clients at Dirichlet 0.5, eight at 0.2; FedNAS's 81.2 % is of 16 clients. FedorAS has one tier of all "
    "devices. SPIDER serves each client a network of its own; its accuracy here is that of the global one, `clients' "
    "own` that of theirs, `personalised` after an epoch of each client's own.",
    rows=best_tiers,
    orders=[Order(ACCURACY, FEDORAS, "FedNAS"), Order(ACCURACY, FEDORAS, SPIDER)],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
