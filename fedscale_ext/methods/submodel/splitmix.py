"""Split-Mix (Hong et al., ICLR 2022): narrow base nets that are trained apart and mixed for those who afford several.

The paper's split and mix, as the authors' code has them:

* A model is split into B = 1 / r base nets of width r with weights of their own.
* A client that affords k bases trains k each round: the first from a sampler that all clients share and that deals out
  every base once before any comes again, the others at random without replacement. All see the same batches of all
  its data, as in the code, where one loop over batches steps every base.
* The server averages each base by its clients' samples; k bases are served as the mean of their logits. Which k: the
  first of b0, b1, …, as in the code (which can also sort them by validation accuracy), so that budgets are nested.
* ``rescale_init``: weights and biases start as those of the full model would. In the code, they have a uniform
  distribution whose bound has the full model's fan-in. So they are sqrt(r) times the usual values if channels that a
  layer reads were split away. Convolutions that are drawn by He et al.'s fan-out are scaled by sqrt(r) if channels that
  they write were split away. Vision transformers have the full model's scale in any case, as have networks of the
  user's own, which are cut from a whole one.
* BatchNorm keeps no running statistics in training; those of testing are re-estimated (``bn_statistics``).

Departures from the paper and the public code:

* On class-skewed data, the code trains with a masked loss: it sets logits of classes that a batch lacks to zero. The
  job key ``own_classes``, off by default, masks the classes that a client lacks. It also averages a class's rows only
  over clients that have the class.
* The code gives clients one of four budgets in equal shares. Here the budget is what a client affords.
* ``rescale_layer``: while training, the code divides layers' outputs by r in front of BatchNorm. BatchNorm with a
  batch's own statistics divides that factor out again, but for its eps, which then counts r^2 times as much; nor does
  a gradient change. So there is no such division here. Layers without BatchNorm behind them have no rescaling.

Paper to code, section by section: docs/methods/width.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.method import (
    About,
    Cost,
    EvaluationPlan,
    ModelSpec,
    Population,
    PositiveFraction,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    narrowed,
    stream,
)
from fedscale_ext.methods.submodel.capacity_levels import ShrinkingAggregator
from fedscale_ext.models import Axis
from fedscale_ext.server.announcements import ModelChoice

_CONVOLUTION_AXES = 4
_MOST_BASES = 128  # each is a model of its own


@dataclass(frozen=True)
class SplitMixParams:
    """Hyperparameters of Split-Mix.

    Attributes:
        r: Width of a base net as a share of the model's, one over a whole number: there are B = 1 / r base nets.
        rescale_init: Base nets start with weights of the full model's scale, as a ``vit`` or a network of your own
            does in any case.
        dense: Grouped convolutions become dense, as for FedTrans's baselines (its appendix A).

    """

    r: PositiveFraction = 0.125
    rescale_init: bool = True
    dense: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.r <= 1 and abs(1 / self.r - round(1 / self.r)) < 1e-6):
            raise UserError(f"splitmix.r is {self.r}; it must be one over a whole number, such as 0.125")
        if self.bases > _MOST_BASES:
            raise UserError(f"splitmix.r is {self.r}, which makes {self.bases} base nets; {_MOST_BASES} is the most")

    @property
    def bases(self) -> int:
        """B, the number of base nets."""
        return round(1 / self.r)


def rescaled(state: State, base: ModelSpec, full: ModelSpec) -> State:
    """Scale a base net's fresh state as the full model's is (``rescale_init``).

    Args:
        state: The base net's fresh state.
        base: Its spec.
        full: Spec of the full model.

    Returns:
        The scaled state.

    """
    drawn_by, result = models.drawn_by(base), dict(state)
    if drawn_by == "nothing":
        return result
    narrow, wide = models.group_widths(base), models.group_widths(full)

    def scale(tensor: str, channels: Axis | None) -> None:
        if tensor in state and channels is not None:
            result[tensor] = state[tensor] * (narrow[channels.group] / wide[channels.group]) ** 0.5

    for name, axes in models.layout(base).items():
        if len(axes) < 2 or not name.endswith(".weight"):
            continue
        read = axes[1] if axes[1] is not None and axes[1].role == "in" else None  # an embedding writes its columns
        by_outputs = drawn_by == "outputs" and len(axes) == _CONVOLUTION_AXES
        scale(name, axes[0] if by_outputs else read)
        scale(name.removesuffix("weight") + "bias", read)
    return result


def affordable(capacity: np.ndarray, macs: float, bases: int) -> np.ndarray:
    """Number of base nets of ``macs`` that fit into each capacity, one at least: int64 [clients]."""
    return np.clip(capacity // macs, 1, bases).astype(np.int64)


def base_nets(cost: Cost, number: int) -> ModelChoice:
    """Describe a number of base nets of a ``cost`` each, as the model that a client serves."""
    every = Cost(*(number * getattr(cost, field.name) for field in fields(Cost)))
    return ModelChoice(f"{number} base net{'s' if number > 1 else ''}", every)


def shared_sampler(drawn: int, bases: int, seed: int) -> int:
    """Draw number ``drawn`` (from 0) of the sampler that all clients share: shuffled rounds of all bases."""
    turn, index = divmod(drawn, bases)
    return int(stream(seed, turn, "first bases").permutation(bases)[index])


def other_bases(first: int, count: int, bases: int, *key: int | str) -> list[int]:
    """Draw ``count`` bases other than ``first``, without replacement."""
    others = [base for base in range(bases) if base != first]
    return stream(*key, "other bases").choice(others, count, replace=False).tolist() if count else []


class SplitMixAggregator(ShrinkingAggregator):
    """Narrow base nets, of which clients train and are served as many as they afford (Split-Mix).

    Server state: the bases b0, b1, … in the pool, and how often the shared sampler was asked.
    """

    about: ClassVar[About] = About("width", 2022)
    Params: ClassVar[type] = SplitMixParams

    def smallest_version(self) -> ModelSpec:
        """Spec of a base net."""
        return narrowed(self.whole_spec(), self.params.r)

    def init_state(self, population: Population, task: Task) -> None:
        """Create B base nets with weights of their own."""
        full, p = self.whole_spec(), self.params
        spec = narrowed(full, p.r)
        seeds = [self.seed, *stream(self.seed, "bases").integers(2**62, size=p.bases - 1).tolist()]
        for number, seed in enumerate(seeds):
            state = models.initial_state(spec, seed)
            self.pool.add(f"b{number}", spec, rescaled(state, spec, full) if p.rescale_init else state)
        macs = models.cost(spec).forward_macs
        self.budget = affordable(self.capacity, macs, p.bases)
        self.drawn = 0
        self.report_weak(macs, "they would train one base net all the same")
        choices = [base_nets(models.cost(spec), number) for number in range(1, p.bases + 1)]
        self.report_assignment(choices, self.budget - 1)
        self.report_unaffordable(choices[-1].name, choices[-1].cost.forward_macs)

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Give each participant its bases, one work item each."""
        items = []
        for client in participants.tolist():
            first = shared_sampler(self.drawn, self.params.bases, self.seed)
            self.drawn += 1
            count = int(self.budget[client - 1]) - 1
            others = other_bases(first, count, self.params.bases, self.seed, round, client)
            items += [WorkItem(client, f"b{base}") for base in [first, *others]]
        return items

    def possible_items(self) -> list[WorkItem]:
        """As many bases for each client that may train as it affords. Which ones is drawn in each round."""
        return [
            WorkItem(client, f"b{base}")
            for client in (np.flatnonzero(self.eligible) + 1).tolist()
            for base in range(self.budget[client - 1])
        ]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take each base's mean over the clients that trained it, by samples."""
        for key, mean in means.items():
            self.pool.update(key, mean)

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client the first bases that it affords; "global" is all of them."""
        keys = [model.key for model in self.pool]
        mixed = ["+".join(keys[: number + 1]) for number in range(len(keys))]
        return EvaluationPlan([mixed[count - 1] for count in self.budget.tolist()], {"global": mixed[-1]})

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return how often the shared sampler was drawn from."""
        return {}, {"drawn": self.drawn}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.drawn = data["drawn"]
