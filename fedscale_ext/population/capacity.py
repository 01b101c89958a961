"""Capacities of devices: the MACs per sample of the largest model that each can train."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.population.clock import whole_model_seconds
from fedscale_ext.population.population import Population


def capacities(
    population: Population,
    rule: str,
    smallest: Cost,
    *,
    local_steps: int,
    batch_size: np.ndarray | int,
    reference_macs: float,
    deadline_s: float | None = None,
    spread: float = 32.0,
) -> np.ndarray:
    """Return the forward MACs per sample of the largest model that each device can train.

    Rule ``deadline``: the largest model whose computation and communication fit ``deadline_s``. A larger model is
    assumed to have as many bytes per MAC as the smallest one; one with more takes longer, which the job reports
    (``server/deadline_notices.py``). Rule ``computation``: proportional to speed, T_c = MAC(M_0) lat_max / lat_c.
    FedTrans compares models' MACs with a client's "hardware capability" (section 4.2), but names no formula; this is
    our reading. The smallest model fits every device under both rules.

    Args:
        population: The devices.
        rule: ``deadline`` or ``computation``.
        smallest: Cost of the smallest model.
        local_steps: Number of local steps.
        batch_size: Samples of a step, one number or int [size].
        reference_macs: Forward MACs per sample of the reference model.
        deadline_s: The deadline in seconds; by default, the slowest device's time for the smallest model.
        spread: Under ``computation``, the largest capacity in units of the smallest model.

    Returns:
        float64 [size].

    Raises:
        UserError: If a deadline is too short for a device, or is set under ``computation``.

    """
    if rule == "computation":
        if deadline_s is not None:
            raise UserError(
                "capacity_rule computation has no deadline; leave deadline_s out, or set capacity_rule: deadline"
            )
        latency = np.maximum(population.computation_ms, population.computation_ms.max() / spread)
        # divide first: the ratio is exactly 1 or above, whatever the rounding of the product
        return smallest.forward_macs * (latency.max() / latency)
    needed = whole_model_seconds(
        population.computation_ms,
        population.communication_kbps,
        [smallest] * population.size,
        local_steps * batch_size,
        reference_macs,
    )
    if deadline_s is None:
        deadline_s = float(needed.max())
    late = int((needed > deadline_s).sum())
    if late:
        raise UserError(
            f"deadline_s {deadline_s:g} is too short: {late} of {population.size} devices cannot train even the "
            f"smallest model in time; the slowest needs {needed.max():.3g} s"
        )
    # both parts grow with the model, so the deadline affords it deadline / needed times
    return smallest.forward_macs * (deadline_s / needed)
