"""Rows of evals/claims.md from the results of this folder's scripts: see evals/paper/ledger.py for the rule.

    python -m evals.fedtrans.ledger [--results DIR] [--scale small]

Claims about a shape or a spread (F12, F16, F18, F19, F20, where F14 and F17 fall) are for people to judge from the
tables.
"""

from collections.abc import Sequence

from evals.fedtrans.arms import BY_TIME
from evals.fedtrans.settings import PAPER
from evals.paper.ledger import main
from evals.paper.orders import Order

ACCURACY, COST = "accuracy %", "TMACs"
LARGEST = "FedAvg, largest, capacities ignored"
BASELINES = ("HeteroFL", "SplitMix", "FLuID")


def more_accurate(more: str, less: str) -> Order:
    """By three points: the small data sets have 660 to 2,000 test samples (sheet, section 10)."""
    return Order(ACCURACY, more, less, noise=3.0)


def below_each(column: str, others: Sequence[str], factor: float = 1.0) -> list[Order]:
    return [Order(column, other, "FedTrans", factor) for other in others]


CLAIMS: dict[str, tuple[str, list[Order]]] = {
    "F1": ("table2", [more_accurate("FedTrans", "HeteroFL")]),
    "F2": ("table2", [more_accurate("FedTrans", "SplitMix")]),
    "F3": ("table2", [more_accurate("FedTrans", "FLuID"), more_accurate("FedTrans", BY_TIME)]),
    "F4": ("table2", below_each(COST, BASELINES, 1.6)),
    "F5": ("table2", [*below_each("mean model MB", BASELINES), *below_each("network MB / round", BASELINES)]),
    "F6": ("table2", [Order("IQR %", other, "FedTrans", data="speech") for other in ("HeteroFL", "FLuID")]),
    "F7": ("table1", [more_accurate("FedTrans", "FedTrans (l2s)")]),
    "F8": ("table3", [
        more_accurate(more, less) for more, less in (
            ("FedTrans", "FedTrans-l"), ("FedTrans-l", "FedTrans-ls"), ("FedTrans-ls", "FedTrans-lsw"),
            ("FedTrans-lsw", "FedTrans-lswd"))
    ]),
    "F9": ("table3", [Order(COST, "FedTrans-lsw", "FedTrans-ls")]),
    "F10": ("table4", [more_accurate("FedTrans", LARGEST), Order(COST, LARGEST, "FedTrans")]),
    "F11": ("fig8", [more_accurate("FedTrans + FedProx", "FedProx, middle model"),
                     more_accurate("FedTrans + FedYogi", "FedYogi, middle model"),
                     Order(COST, "FedProx, middle model", "FedTrans + FedProx"),
                     Order(COST, "FedYogi, middle model", "FedTrans + FedYogi")]),
    "F13": ("table6", below_each("completion s", (LARGEST,)) + below_each("completion std s", (LARGEST,))),
    "F14": ("fig10a", [Order("models", "beta = 0.1", "beta = 0.001"), Order(COST, "beta = 0.1", "beta = 0.001")]),
    "F15": ("fig10b", [Order(COST, "gamma = 5", "gamma = 30")]),
    "F17": ("fig12", [Order(COST, "alpha = 0.5", "alpha = 1")]),
}  # fmt: skip


if __name__ == "__main__":
    main(CLAIMS, PAPER.folder / "results", __doc__)
