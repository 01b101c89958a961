"""SCAFFOLD's control variates as a client uses them (Karimireddy et al., ICML 2020, Algorithm 1, option II).

A client's steps follow g(y) + c - c_i. Afterwards its variate becomes c_i+ = c_i - c + (x - y) / (K eta_l). The client
receives only the ``offset`` c - c_i, which both formulas need. Under momentum m the steps add up to

    x - y = eta_l sum_s (1 - m^(K - s + 1)) / (1 - m) (g_s + c - c_i)

Dividing by the sum of these coefficients, which is K without momentum, makes c_i+ a weighted mean of the client's
gradients, as in the paper. The offset is added after clipping, so that c_i is the mean of clipped gradients.

FedDyn's clients (Acar et al., ICLR 2021) do the same with c = 0 and alpha for 1 / (K eta_l). The linear term of
their objective makes the offset -h_i, and h_i+ = h_i + alpha (x - y); see :mod:`fedscale_ext.methods.submodel.feddyn`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.types import State
from fedscale_ext.training.resident import CohortState


def stacked_offsets(confs: Sequence[ClientConfig], names: Sequence[str]) -> list[Tensor]:
    """Stack the clients' offsets to the gradients.

    Args:
        confs: Settings of each client; either all have an offset or none has.
        names: Names of the parameters.

    Returns:
        For each parameter [clients, *shape]; an empty list without offsets.

    """
    offsets = [conf.gradient_offset for conf in confs if conf.gradient_offset is not None]
    return [torch.stack([offset[name] for offset in offsets]) for name in names] if offsets else []


def coefficient_sum(steps: int, momentum: float) -> float:
    """Return the sum of the gradients' coefficients in a client's change, in units of the learning rate."""
    if momentum == 0.0:
        return float(steps)
    return (steps - momentum * (1.0 - momentum**steps) / (1.0 - momentum)) / (1.0 - momentum)


def new_variate(conf: ClientConfig, start: State, states: CohortState, row: int) -> State | None:
    """Return a client's new control variate c_i+; FedDyn's h_i+ if the objective has ``feddyn``, its alpha.

    Args:
        conf: The client's settings, with its offset.
        start: The state from which it trained.
        states: The trained states, [clients, *shape].
        row: The client's row in ``states``.

    Returns:
        The variate by parameter name, on the CPU; None if it is not finite.

    """
    assert conf.gradient_offset is not None
    alpha = conf.objective.get("feddyn")
    moved = 1 / alpha if alpha else conf.learning_rate * coefficient_sum(conf.local_steps, conf.client_momentum)
    new = {
        name: ((start[name] - states[name][row]) / moved - offset).cpu()
        for name, offset in conf.gradient_offset.items()
    }
    return new if all(bool(tensor.isfinite().all()) for tensor in new.values()) else None
