"""Table 6: the networks that are found, from the supernet's weights and from random ones (claims A1, A2)."""

from collections.abc import Sequence

from evals.fedoras.arms import ACCURACY, KPARAMS, MMACS, PERPLEXITY, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import main
from evals.fedoras.tiers import RANDOM, SUPERNET, by_tier, figures_of, has_twins, results, row, tier_label
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.floor_table import above_both
from evals.paper.orders import Order, Row

GAIN = "gain pp"
ALPHAS = ("1000", "1", "0.1")
_PUBLISHED = {
    "cifar10-h1000": ((89.40, 89.60, 89.64, 89.24), (89.05, 87.84, 86.18, 81.27)),
    "cifar10-h1": ((85.99, 86.30, 86.34, 86.46), (87.12, 86.29, 85.10, 80.10)),
    "cifar10-h0.1": ((81.01, 81.53, 80.64, 80.85), (70.61, 70.30, 68.29, 64.87)),
    "cifar100-h0.1": ((45.25, 45.84, 45.42, 45.07), (36.30, 39.26, 39.06, 36.77)),
    "speech12": ((80.19, 80.47, 81.0, 80.56), (81.92, 79.94, 78.57, 79.36)),
    "shakespeare": ((3.43, 3.39, 3.38, 3.40, 3.42), (3.44, 3.50, 3.47, 3.52, 3.60)),
}
PUBLISHED = {
    data: {
        tier_label(tier, weights): {PERPLEXITY if data == "shakespeare" else ACCURACY: value}
        for weights, values in zip((SUPERNET, RANDOM), both, strict=True)
        for tier, value in enumerate(values, start=1)
    }
    for data, both in _PUBLISHED.items()
}


def gain_label(tier: int, alpha: str) -> str:
    return f"gain of tier {tier} at alpha {alpha}"


def with_gains(runs: Sequence[Run]) -> list[Run]:
    """Rows by tier, and by how much the supernet's weights are better on CIFAR-10, all alphas together (claim A2)."""
    rows = by_tier(PUBLISHED)(runs)
    for run in runs:
        name, _, alpha = run.arm.data.partition("-h")
        for tier in results(run)["tiers"] if name == "cifar10" else ():
            if has_twins(tier):
                with_it, without = (figures_of(tier, weights)[ACCURACY] for weights in (SUPERNET, RANDOM))
                assert with_it is not None and without is not None
                gain = row(run, gain_label(tier["tier"], alpha), {GAIN: with_it - without})
                rows.append(Run(gain.arm, "cifar10", run.seed, run.log_dir, gain.figures))
    return rows


def above(data: str = "", tiers: Sequence[int] = (1, 2, 3, 4)) -> list[Order]:
    """The supernet's weights above random ones in each tier."""
    return [Order(ACCURACY, tier_label(tier), tier_label(tier, RANDOM), data=data) for tier in tiers]


def beside_a_better_linear_model(rows: Sequence[Row], floor_rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """Gains of tiers whose networks, with both weights, are below a linear model: they have no floor of their own."""
    by_name = {(each["data"], each["label"]): each for each in rows}
    reasons = {}
    for alpha in ALPHAS:
        for tier in range(1, 5):
            pair = [by_name.get((f"cifar10-h{alpha}", tier_label(tier, weights))) for weights in (SUPERNET, RANDOM)]
            both = [each for each in pair if each is not None and ACCURACY in each["figures"]]
            if len(both) == 2 and above_both(floor_rows, ACCURACY, *both) is not None:
                reasons["cifar10", gain_label(tier, alpha)] = "is of networks below a linear model"
    return reasons


def arms() -> list[Arm]:
    return [with_twins(data) for data in ("cifar10-h0.1", "cifar10-h1", "cifar10-h1000", "cifar100-h0.1", "speech12",
                                          "shakespeare")]  # fmt: skip


EXPERIMENT = Experiment(
    "table6",
    "Table 6: networks from the supernet's weights and from random ones",
    arms(),
    (ACCURACY, PERPLEXITY, MMACS, KPARAMS, GAIN),
    bars_of(ACCURACY),
    note="Accuracy, and perplexity (exp of the mean loss), over all test samples. Random weights train on the clients "
    "of the tier and above. They begin at the supernet's learning rate, which falls to a tenth as a cosine (text: "
    "by steps). The paper's perplexities are means over batches and all 80 symbols, these are of the symbol that "
    "follows them. `texts` has perplexities that can be compared.",
    rows=with_gains,
    orders=above(),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
