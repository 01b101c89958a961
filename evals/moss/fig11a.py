"""Figure 11a: differential privacy (claim M11)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, MOSS, ROUNDS, local, more_accurate, moss
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import TYPES, UNSETTLED, columns
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.jobs import summary
from evals.paper.orders import Order

EPSILONS = (1.0, 0.5, 0.1)
MULTIPLIERS = (0.01, 0.03, 0.1)  # of the clipping norm; an epsilon of one round is 4.84 and more
NOISE_NORM = "noise norms"


def label(epsilon: float) -> str:
    """The row of a round's epsilon."""
    return f"epsilon {epsilon:g}"


def little(multiplier: float) -> str:
    """The row of a noise multiplier that the formula has no epsilon for."""
    return f"noise multiplier {multiplier:g}"


def with_noise(runs: Sequence[Run]) -> list[Run]:
    """Each run by type, and how long the noise is that a type's mean gets, in norms that changes are clipped to: the
    multiplier, times the root of the number of parameters, by the type's devices that take part."""
    shown = []
    for run in by_type(runs):
        job = summary(run.job)
        if job["privacy"] is not None:
            sizes = {model["key"]: model["cost"]["parameters"] for model in job["models"]}
            types, times = job["results"]["types"][: len(TYPES)], job["privacy"]["noise_multiplier"]
            norms = [times * math.sqrt(sizes[row["type"]]) / row["clients"] for row in types]
            by_column = dict(zip(columns(NOISE_NORM), [*norms, float(np.mean(norms))], strict=True))
            run = replace(run, figures={**run.figures, **by_column, "epsilon of the job": job["privacy"]["epsilon"]})
        shown.append(run)
    return shown


def _chain(labels: Sequence[str]) -> tuple[list[Order], list[Order]]:
    """Accuracy falls, and rounds grow, from each to the next."""
    both = list(pairwise(labels))
    return [more_accurate(more, less) for more, less in both], [Order(ROUNDS, less, more) for more, less in both]


def _arms(data: str) -> list[Arm]:
    private = {"method": "moss", "dp_target_quantile": 0.5, "dp_accounting": "participation"}
    arms = [Arm(label(epsilon), {**private, "dp_round_epsilon": epsilon}, data) for epsilon in EPSILONS]
    arms += [Arm(little(times), {**private, "dp_noise_multiplier": times}, data) for times in MULTIPLIERS]
    return [moss(data=data), *arms, local(data)]


WORSE, MORE_ROUNDS = _chain([MOSS, *map(label, EPSILONS)])  # Moss itself has none
LITTLE_WORSE, LITTLE_MORE_ROUNDS = _chain([MOSS, *map(little, MULTIPLIERS)])
EXPERIMENT = Experiment(
    "fig11a",
    "Figure 11a: differential privacy",
    [arm for data in APPLICATIONS for arm in _arms(data)],
    (*ALL_COLUMNS, UNSETTLED, *columns(NOISE_NORM), "epsilon of the job"),
    plots.bars(ROUNDS, ACCURACY),
    note="The paper does not name its mechanism. Here each device's change is clipped to the median norm, and a type's "
    "mean is noised as the classic bound asks for one round. delta is 1e-5, and nothing is composed. The formula "
    "is a deviation of 4.84 / epsilon clipping norms on a type's sum (columns noise norms). With 100 devices and "
    "11.2 million parameters, a round's noise is 162 times the clipping norm for epsilon 1, and 1,620 times for 0.1. "
    "With ten devices and 67,000 parameters it is 125 and 1,250 times. So the paper's mild losses suggest another "
    "mechanism. Rows of a noise multiplier have noise from a part of the clipping norm to a few times it. The "
    "job's epsilon, by the accountant, is large there.",
    rows=with_noise,
    orders=[*WORSE, *MORE_ROUNDS, *LITTLE_WORSE, *LITTLE_MORE_ROUNDS],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
