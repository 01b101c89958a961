"""SCAFFOLD's control variates as a client uses them (Karimireddy et al., ICML 2020, Algorithm 1, option II).

A client's steps follow g(y) + c - c_i; afterwards its variate becomes c_i+ = c_i - c + (x - y) / (K eta_l). What it is
handed is the ``offset`` c - c_i alone, which both need. Under momentum m the steps add up to

    x - y = eta_l sum_s (1 - m^(K - s + 1)) / (1 - m) (g_s + c - c_i)

so that dividing by the sum of these coefficients, which is K without momentum, makes c_i+ a weighted mean of the
client's own gradients, as it is there. The offset is added after clipping: c_i is then the mean of clipped gradients.

FedDyn's clients (Acar et al., ICLR 2021) do the same with c = 0 and alpha for 1 / (K eta_l): their objective's linear
term makes the offset -h_i, and h_i+ = h_i + alpha (x - y); see :mod:`fedscale_ext.server.dynamic_gradients`.
"""

from argparse import Namespace
from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.core.types import State
from fedscale_ext.training.resident import CohortState


def in_order(confs: Sequence[Namespace], names: Sequence[str]) -> list[Tensor]:
    """The offsets of a cohort's parameters ``names``, each [clients, *shape]; none where its clients have none."""
    if confs[0].offset is None:
        return []
    return [torch.stack([conf.offset[name] for conf in confs]) for name in names]


def length(steps: int, momentum: float) -> float:
    """What the coefficients of a client's gradients add up to in its change, in learning rates."""
    if momentum == 0.0:
        return float(steps)
    return (steps - momentum * (1.0 - momentum**steps) / (1.0 - momentum)) / (1.0 - momentum)


def new_variate(conf: Namespace, start: State, states: CohortState, row: int) -> State | None:
    """c_i+ of the client that has a row of the trained ``states``, on the CPU; None where it is not finite. It is
    FedDyn's where the objective has ``feddyn``, alpha."""
    alpha = getattr(conf, "feddyn", None)
    moved = 1 / alpha if alpha else conf.learning_rate * length(conf.local_steps, conf.client_momentum)
    new = {name: ((start[name] - states[name][row]) / moved - offset).cpu() for name, offset in conf.offset.items()}
    return new if all(bool(tensor.isfinite().all()) for tensor in new.values()) else None
