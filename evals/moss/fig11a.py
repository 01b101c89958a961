"""Figure 11a: differential privacy (claim M11)."""

from functools import partial
from itertools import pairwise

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, MOSS, ROUNDS, moss
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import with_types
from evals.paper.engine import Arm, Experiment
from evals.paper.orders import Order

EPSILONS = (1.0, 0.5, 0.1)


def label(epsilon: float) -> str:
    """The row of a round's epsilon."""
    return f"epsilon {epsilon:g}"


_PRIVATE = {"dp_target_quantile": 0.5, "dp_accounting": "participation"}
_LABELS = [MOSS, *map(label, EPSILONS)]  # Moss itself has none
WORSE = [
    order
    for more, less in pairwise(_LABELS)
    for order in (Order(ACCURACY, more, less), Order(ROUNDS, less, more))
]  # fmt: skip
EXPERIMENT = Experiment(
    "fig11a",
    "Figure 11a: differential privacy",
    [
        arm
        for data in APPLICATIONS
        for arm in (
            moss(data=data),
            *(Arm(label(epsilon), {"method": "moss", "dp_round_epsilon": epsilon, **_PRIVATE}, data)
              for epsilon in EPSILONS),
        )
    ],
    ALL_COLUMNS,
    plots.bars(ROUNDS, ACCURACY),
    note="The paper does not tell its mechanism: each device's change is clipped to the median norm, a type's mean "
    "noised as the classic bound asks for one round, delta = 1e-5 and nothing composed. With ten devices of a type "
    "the noise of a mean is ten times that with a hundred.",
    rows=partial(with_types, reference=MOSS),
    orders=WORSE,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
