"""Whether what came over the wire is an update of the model that was handed out."""

import math
from typing import Any

import torch

from fedscale_ext.privacy.clipping import change_norms
from fedscale_ext.runtime import wire
from fedscale_ext.runtime.work import State, Task, Update, WorkItem

_ROUNDING = 1 + 1e-4  # a sum crosses the wire in the model's dtype


class Rejected(Exception):
    """A client's result that does not count; the message is its reason."""


def checked_figures(round: int, item: WorkItem, result: dict[str, Any], task: Task) -> Update:
    """The update in a client's result, ``result`` as it came over the wire: raises Rejected for one that
    failed or whose figures cannot be right."""
    if "failed" in result:
        raise Rejected(str(result["failed"]))
    samples = int(task.train_sizes[item.client - 1])
    fault = fault_in_counts(result, samples, task.local_steps * min(task.batch_size, samples))
    if fault is not None:
        raise Rejected(fault)
    return Update(
        item=item,
        round=round,
        attempt=1,
        samples=samples,
        trained=result["trained"],
        steps=result["steps"],
        loss=float(result["loss"]),
        utility=float(result["utility"]),
    )


def checked_state(section: wire.Section | None, reference: State) -> State:
    """The state in a section: raises Rejected unless it has the reference's names, shapes and dtypes and is finite."""
    if section is None:
        raise Rejected("it came without a state")
    try:
        state = wire.bytes_to_tensors(section)
    except wire.WireError as error:
        raise Rejected(str(error)) from None
    fault = fault_in_state(state, reference)
    if fault is not None:
        raise Rejected(fault)
    return state


def checked_clipping(within: Any, change: State, clients: int, longest: float) -> int:
    """How many of a unit's clients were within the norm that each was clipped to: raises Rejected where the
    count or the sum of their changes cannot be right."""
    if not isinstance(within, int) or isinstance(within, bool) or not 0 <= within <= clients:
        raise Rejected(f"it says that {within!r} of its {clients} clients were within the clipping norm")
    norm = change_norms(
        {name: tensor[None] for name, tensor in change.items()},
        {name: torch.zeros_like(tensor) for name, tensor in change.items()},
    )[0]
    if norm > clients * longest * _ROUNDING:
        raise Rejected(f"its sum is {norm:g} long, its {clients} clients' changes were to be clipped to {longest:g}")
    return within


def fault_in_state(state: State, reference: State) -> str | None:
    """Why ``state`` cannot replace ``reference``: names, shape, dtype or a value that is not finite; else None."""
    if state.keys() != reference.keys():
        odd = sorted(state.keys() ^ reference.keys())[0]
        return f"tensor {odd!r} is {'missing' if odd in reference else 'not of this model'}"
    for name, tensor in state.items():
        if tensor.shape != reference[name].shape or tensor.dtype != reference[name].dtype:
            return f"tensor {name!r} has another shape or type than the model's"
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"tensor {name!r} is not finite"
    return None


def fault_in_counts(result: dict[str, Any], expected_samples: int, most_trained: int) -> str | None:
    """Why the figures beside an update cannot be right, else None."""
    for name in ("samples", "trained", "steps"):
        if not isinstance(result.get(name), int) or isinstance(result[name], bool) or result[name] < 0:
            return f"count {name!r} is not a whole number"
    for name in ("loss", "utility"):
        if not isinstance(result.get(name), int | float) or not math.isfinite(result[name]):
            return f"figure {name!r} is not finite"
    if result["samples"] != expected_samples:
        return f"it reports {result['samples']} samples, the client has {expected_samples}"
    if not 0 < result["trained"] <= most_trained:
        return f"it reports {result['trained']} trained samples of at most {most_trained}"
    return None
