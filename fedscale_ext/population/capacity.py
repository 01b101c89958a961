"""How many MACs per sample a device affords."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.population.clock import completion_times
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
    """float64 [size]: forward MACs per sample of the largest model that each device can train.

    Rule ``deadline``: the largest model whose computation and communication fit ``deadline_s``, by
    default what the slowest device needs for the smallest model; a larger model is taken to have as
    many bytes per MAC as the smallest one. Rule ``computation`` (FedTrans sheet 9.32): proportional to
    speed, T_c = MAC(M_0) lat_max / lat_c, at most ``spread`` times the smallest model.
    The smallest model fits every device, unless ``deadline_s`` is given and too short for some:
    then it is a UserError, for no client is left out silently.
    """
    if rule == "computation":
        if deadline_s is not None:
            raise UserError(
                "capacity_rule computation has no deadline; leave deadline_s out, or set capacity_rule: deadline"
            )
        latency = np.maximum(population.computation_ms, population.computation_ms.max() / spread)
        # the ratio first: it is exactly 1 or above, whatever rounding does to the product
        return smallest.forward_macs * (latency.max() / latency)
    computation, communication = completion_times(
        population.computation_ms,
        population.communication_kbps,
        macs=float(smallest.forward_macs),
        down_bytes=float(smallest.bytes),
        up_bytes=float(smallest.bytes),
        local_steps=local_steps,
        batch_size=batch_size,
        reference_macs=reference_macs,
    )
    needed = computation + communication
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
