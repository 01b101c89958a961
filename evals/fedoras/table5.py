"""Table 5: FedorAS, FjORD at each width, ZeroFL, and selectors of participants (claim A3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.fedoras.arms import ACCURACY, KPARAMS, MMACS, PERPLEXITY, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import main
from evals.fedoras.tiers import each_tier, row, tier_label
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.jobs import summary
from evals.paper.orders import Order

WIDTHS = (0.25, 0.5, 0.75, 1.0)
ZEROFL, OORT, PYRAMID = "ZeroFL, 90 %", "Oort", "PyramidFL"
_FJORD_MMACS = ((35, 700), (139, 2790), (313, 6280), (556, 11160))
_FJORD = {"cifar10-h1000": (78.19, 78.63, 78.25, 77.19), "cifar10-h1": (78.54, 79.25, 78.66, 77.35),
          "cifar10-h0.1": (61.43, 60.81, 59.72, 57.44)}  # fmt: skip
_FEDORAS = {
    "cifar10-h1000": ((89.40, 111, 2960), (89.60, 140, 2930), (89.64, 256, 3350), (89.24, 329, 4320)),
    "cifar10-h1": ((85.99, 116, 2590), (86.30, 183, 2900), (86.34, 262, 3550), (86.46, 330, 4310)),
    "cifar10-h0.1": ((81.01, 117, 2170), (81.53, 159, 3130), (80.64, 238, 2490), (80.85, 345, 2610)),
}
_ZEROFL = {"cifar10-h1000": 82.82, "cifar10-h1": 81.04}
_FEDTRANS_MODELS = Path(__file__).resolve().parents[1] / "fedtrans" / "models"
_SMALL, _PAPER = ("smoke", "small"), ("paper",)


def fjord_label(width: float) -> str:
    return f"FjORD, p = {width:g}"


PUBLISHED = {
    data: {
        **{tier_label(tier): dict(zip((ACCURACY, MMACS, KPARAMS), values, strict=True))
           for tier, values in enumerate(_FEDORAS[data], start=1)},
        **{fjord_label(width): dict(zip((ACCURACY, MMACS, KPARAMS), (value, *cost), strict=True))
           for width, value, cost in zip(WIDTHS, _FJORD[data], _FJORD_MMACS, strict=True)},
    }
    for data in _FJORD
}  # fmt: skip


def fjord(data: str) -> list[Arm]:
    """FjORD at the paper's four widths, as many clients on each, as its own paper trains (an epoch, batches of 32); at
    small scale each width is within the budget of FedorAS's tier of that place."""
    keys: dict[str, Any] = {"method": "fjord", "fjord.p": list(WIDTHS), "fjord.each_width": True, "local_epochs": 1,
                           "batch_size": 32, "client_weight_decay": 1e-4, "bn_statistics": "federated",
                           "bn_statistics_clients": 20}  # fmt: skip
    return [Arm("FjORD", {**keys, "model": model, "fjord.groups": [clients // len(WIDTHS)] * len(WIDTHS)}, data,
                scales=scales)
            for model, clients, scales in (("resnet_tiny", 20, _SMALL), ("resnet18", 100, _PAPER))]  # fmt: skip


def zerofl(data: str) -> list[Arm]:
    """ZeroFL at 90 % sparsity."""
    keys = {"method": "zerofl", "local_epochs": 1, "zerofl.sparsity": 0.9, "zerofl.upload": "top_k_weights",
           "zerofl.mask_ratio": 0.2}  # fmt: skip
    paper = {ACCURACY: _ZEROFL[data], MMACS: 557, KPARAMS: 11170} if data in _ZEROFL else {}
    return [Arm(ZEROFL, {**keys, "model": "cnn_tiny_largest"}, data, paper, scales=_SMALL),
            Arm(ZEROFL, {**keys, "model": "resnet18"}, data, paper, scales=_PAPER)]  # fmt: skip


def selectors() -> list[Arm]:
    """FedAvg with participants by Oort and PyramidFL, on a ResNet; FedorAS beside them."""
    arms = []
    for label, mode, accuracy in ((OORT, "oort", 62.20), (PYRAMID, "pyramidfl", 63.84)):
        keys = {"method": "fedavg", "sample_mode": mode}
        paper = {ACCURACY: accuracy, MMACS: 2382, KPARAMS: 21290}
        small = {**keys, "model": str(_FEDTRANS_MODELS / "resnet18_speech_half.json")}
        arms += [Arm(label, small, "speech35", paper, scales=_SMALL),
                 Arm(label, {**keys, "model": "torchvision_resnet34"}, "speech35", paper, scales=_PAPER)]  # fmt: skip
    return [*arms, with_twins("speech35")]


def with_costs(runs: Sequence[Run]) -> list[Run]:
    """Rows by tier of FedorAS's jobs, by width of FjORD's, and the others with what their network takes."""
    rows = []
    for run in runs:
        published, method = PUBLISHED.get(run.arm.data), run.arm.keys["method"]
        if method == "fedoras":
            rows += each_tier(run, published, twins=False)
            continue
        job = summary(run.job)
        models = sorted((model["cost"] for model in job["models"]), key=lambda cost: cost["forward_macs"])
        costs = [{MMACS: cost["forward_macs"] / 1e6, KPARAMS: cost["parameters"] / 1e3} for cost in models]
        named = job["accuracy"]["named"]
        if method == "fjord":
            for width, cost in zip(WIDTHS, costs, strict=True):
                figures = {ACCURACY: 100 * named[f"p{width:g}"]["accuracy"], **cost}
                rows.append(row(run, fjord_label(width), figures, published))
        else:
            figures = {ACCURACY: 100 * named["global"]["accuracy"], **costs[-1]}
            rows.append(row(run, run.arm.label, figures, {run.arm.label: run.arm.paper}))
    return rows


ABOVE_FJORD = [Order(ACCURACY, tier_label(tier), fjord_label(width)) for tier, width in enumerate(WIDTHS, start=1)]
EXPERIMENT = Experiment(
    "table5",
    "Table 5: beside methods for heterogeneous devices",
    [
        *(arm for data in ("cifar10-h0.1", "cifar10-h1", "cifar10-h1000")
          for arm in (with_twins(data), *fjord(data), *(zerofl(data) if data in _ZEROFL else ()))),
        *selectors(),
        with_twins("shakespeare"),
    ],
    (ACCURACY, PERPLEXITY, MMACS, KPARAMS),
    bars_of(ACCURACY),
    note="ZeroFL's MACs are those of the dense network; a step takes a tenth where devices skip zeros. The paper has "
    "FjORD on Shakespeare, too: no recurrent network here is cut by width. Oort and PyramidFL choose the "
    "participants of FedAvg on a ResNet, as context. BatchNorm's running statistics are averaged with the "
    "weights. FjORD's widths share weights and not statistics: these are measured for each width on clients' "
    "training samples at the end. FjORD and ZeroFL train one epoch a round, FedorAS's supernet several. MMACs of "
    "FedorAS's tiers are counted as its brackets are, with normalisation and activations: some per cent above "
    "products.",
    rows=with_costs,
    orders=ABOVE_FJORD,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
