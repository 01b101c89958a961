"""Whether what came over the wire is an update of the model that was handed out."""

import math
from typing import Any

import torch

from fedscale_ext.runtime import wire
from fedscale_ext.runtime.work import State, Task, Update, WorkItem


class Rejected(Exception):
    """A client's result that does not count; the message is its reason."""


def checked_update(
    round: int, item: WorkItem, result: dict[str, Any], section: bytes | None, task: Task, reference: State
) -> Update:
    """The update in a client's result: raises Rejected unless it is one of the model that was handed out.

    ``result`` holds the client's figures and ``section`` its state as they came over the wire;
    ``reference`` is the state that it was sent.
    """
    if "failed" in result:
        raise Rejected(str(result["failed"]))
    if section is None:
        raise Rejected("it came without a state")
    samples = int(task.train_sizes[item.client - 1])
    try:
        state = wire.bytes_to_tensors(section)
    except wire.WireError as error:
        raise Rejected(str(error)) from None
    most = task.local_steps * min(task.batch_size, samples)
    fault = fault_in_counts(result, samples, most) or fault_in_state(state, reference)
    if fault is not None:
        raise Rejected(fault)
    return Update(
        item=item,
        round=round,
        attempt=1,
        state=state,
        samples=samples,
        trained=result["trained"],
        steps=result["steps"],
        loss=float(result["loss"]),
        utility=float(result["utility"]),
    )


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
