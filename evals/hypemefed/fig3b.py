"""Figure 3b: how like the first layers of networks of different depth are, with and without exits (claim H4)."""

from collections.abc import Sequence

from evals.hypemefed.arms import everyone_on
from evals.hypemefed.cka import cka, first_features, test_samples
from evals.hypemefed.settings import BACKBONE, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order

CKA = "CKA"
_DEPTHS = {"S": 1, "M": 2, "L": 3}
_JOBS = [("S", "X"), ("M", "X"), ("L", "X"), ("M", "O"), ("L", "O")]  # with one exit, X and O are the same
PAIRS = {
    "S-L (X-X)": ("S X", "L X", 0.6761), "S-L (X-O)": ("S X", "L O", 0.7812),
    "M-L (X-X)": ("M X", "L X", 0.6764), "M-L (O-O)": ("M O", "L O", 0.9407),
    "M-L (X-O)": ("M X", "L O", 0.7165), "M-L (O-X)": ("M O", "L X", 0.8343),
}  # fmt: skip
ORDERS = [
    Order(CKA, "S-L (X-O)", "S-L (X-X)"),
    *(Order(CKA, f"M-L {more}", "M-L (X-X)") for more in ("(O-O)", "(X-O)", "(O-X)")),
]
_PRELIMINARY = {BACKBONE: "cnn3"}


def similarities(runs: Sequence[Run]) -> list[Run]:
    """A row per pair of networks."""
    rows = []
    jobs = {(run.data, run.seed, run.arm.label): run for run in runs}
    for data, seed in dict.fromkeys((run.data, run.seed) for run in runs):
        by_label = {label: run for (d, s, label), run in jobs.items() if (d, s) == (data, seed)}
        features = {}
        for label, run in by_label.items():
            model = run.job / "models" / f"exit{_DEPTHS[label[0]]}.safetensors"
            features[label] = first_features(model, test_samples(run.job))
        for pair, (one, other, published) in PAIRS.items():
            if one in by_label and other in by_label:
                figures = {CKA: cka(features[one], features[other])}
                rows.append(Run(Arm(pair, {}, data, {CKA: published}), data, seed, by_label[one].log_dir, figures))
    return rows


EXPERIMENT = Experiment(
    "fig3b",
    "Figure 3b: CKA between first layers",
    [
        Arm(f"{depth} {exits}", {**everyone_on(_DEPTHS[depth]), "hypemefed.multi_exit": exits == "O", **network}, data)
        for data, network in (("unimib", {}), ("svhn", {}), ("fashionmnist-iid", _PRELIMINARY))
        for depth, exits in _JOBS
    ],
    (CKA,),
    plots.grouped(CKA),
    note="S, M and L are networks up to the first, second and last exit. All clients train each of them from the same "
    "initial values, with all exits of it (O) or its last one alone (X). First layers: what the first convolution "
    "gives behind BatchNorm and ReLU, on the clients' test samples together (at most 2,000).",
    rows=similarities,
    orders=ORDERS,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
