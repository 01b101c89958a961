"""When hypernetworks help: fewer deep clients, more rounds, deeper and wider networks. Not in the paper."""

from evals.hypemefed.arms import GLOBAL, OWN_EXIT, hypemefed
from evals.hypemefed.settings import BACKBONE, GROUPED, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import Keys
from evals.paper.orders import Order
from evals.paper.papers import SCALES

_FREE = {**{f"{method}.groups": None for method in GROUPED}, "hypemefed.levels": "fix",
         "capacity_model": BACKBONE.formatted("multi_exit_{}")}  # fmt: skip
SETTINGS: dict[str, Keys] = {
    "as in the paper": {},
    "one in ten deep": {**_FREE, "hypemefed.shares": [0.45, 0.45, 0.1]},
    "one in two deep": {**_FREE, "hypemefed.shares": [0.25, 0.25, 0.5]},
    "200 rounds": {"rounds": 200},
    "the paper's widths": {BACKBONE: "vgg_svhn"},
    "ten exits": {BACKBONE: "cnn10", **_FREE},
}
_SWITCHES: dict[str, Keys] = {
    "on": {},
    "off": {"hypemefed.missing": "trained"},
    "old layers": {"hypemefed.missing": "stale"},
    "on after a quarter": {"hypemefed.warmup": 0.25},
    "on, weight 0.3": {"hypemefed.generated_weight": 0.3},
    "on, running statistics": {"bn_statistics": "running"},
    "off, running statistics": {"hypemefed.missing": "trained", "bn_statistics": "running"},
}
EXPERIMENT = Experiment(
    "regime",
    "When hypernetworks help",
    [
        Arm(
            f"{setting}: {switch}",
            {**hypemefed().keys, **keys, **how},
            data,
            scales=("small", "paper") if "rounds" in keys else SCALES,
        )
        for data in ("unimib", "svhn")
        for setting, keys in SETTINGS.items()
        for switch, how in _SWITCHES.items()
    ],
    (GLOBAL, OWN_EXIT, "global %", "accuracy %"),
    plots.bars(GLOBAL),
    note="Off: each layer is the mean over those who trained it. Old layers: what a client lacks stays in the mean as "
    "the round began with it, which is what the public code computes. Other rows change one thing: no generation "
    "in the first quarter of the rounds, or 0.3 of their client's weight for generated layers. Rows with running "
    "statistics test with the averages of clients' BatchNorm statistics, from training without generated weights. "
    "All other rows re-estimate the statistics. Rows without `accuracy, late %` are older, and were tested with "
    "those of training where they do not say otherwise.",
    orders=[
        Order(GLOBAL, f"{setting}: {switch}", f"{setting}: off")
        for setting in SETTINGS
        for switch in _SWITCHES
        if not switch.startswith("off")
    ]
    + [
        Order(GLOBAL, f"{setting}: on, running statistics", f"{setting}: off, running statistics")
        for setting in SETTINGS
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
