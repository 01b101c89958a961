"""A chain of four models grown by hand: widen c0, deepen behind c0, widen c1 and the inserted cell."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.methods.fedtrans.model_aggregator import Lineage
from fedscale_ext.methods.fedtrans.model_transformer import transform

from ..harness import CLASSES, SHAPE

BIRTHS = (0, 10, 20, 30)
INSERTED = "c2"  # the cell that the second child inserted


@dataclass(frozen=True)
class Chain:
    """Models in order of birth; every child's state computes its parent's function."""

    specs: list[ModelSpec]
    states: list[State]
    lineage: list[Lineage]


@lru_cache(maxsize=1)
def chain() -> Chain:
    spec = models.named_spec("nasbench201_base", SHAPE, CLASSES)
    chain = Chain([spec], [models.initial_state(spec, 1)], [Lineage()])
    last_op: dict[str, str | None] = {}
    for selected, birth in zip((["c0"], ["c0"], ["c1", INSERTED]), BIRTHS[1:], strict=True):
        spec, state, steps = transform(
            chain.specs[-1], chain.states[-1], selected, last_op, generator=np.random.default_rng(birth), next_cell_id=2
        )
        last_op.update({step.cell_id: step.op for step in steps})
        chain.specs.append(spec)
        chain.states.append(state)
        chain.lineage.append(Lineage(birth, 0, steps))
    return chain
