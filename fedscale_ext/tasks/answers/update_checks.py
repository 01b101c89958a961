"""Whether what came over the wire is an update of the model that was handed out."""

from collections.abc import Mapping
from typing import Any

import torch

from fedscale_ext.core.errors import one_line
from fedscale_ext.core.failures import LONGEST, diverged
from fedscale_ext.core.types import State, Task, Update, WorkItem
from fedscale_ext.training.update_norms import TOO_FAR, change_norms, norm
from fedscale_ext.transport import wire

MOST = float(torch.finfo(torch.float32).max)  # of losses and utilities: they come out of float32
_SLACK = 1.0 + 1e-4  # a sum was rounded to the model's dtype on its way


class Rejected(Exception):
    """Error of a result that does not count.

    ``reason`` is the same for all results of its kind: metrics count it. The message adds the figures of this one.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(one_line(f"{reason}: {detail}" if detail else reason, 300))
        self.reason = reason


def checked_update(item: WorkItem, result: Mapping[str, Any], task: Task, norms: bool = False) -> Update:
    """Return the update of a client's ``result``, which came over the wire.

    Raises Rejected for a client that failed, or whose figures cannot be right. ``norms``: the figures include the
    norm of the client's change.
    """
    if "failed" in result:
        raise Rejected(one_line(str(result["failed"]), LONGEST))
    samples = int(task.train_sizes[item.client - 1])
    sizes = task.step_sizes(item.client, item.overrides)
    check_training_report(result, samples, len(sizes), int(sizes.sum()), norms)
    return Update(
        item=item,
        samples=samples,
        trained=result["trained"],
        steps=len(sizes),
        loss=float(result["loss"]),
        utility=float(result["utility"]),
        norm=float(result["norm"]) if norms else None,
    )


def check_training_report(result: Mapping[str, Any], samples: int, steps: int, seen: int, norms: bool = False) -> None:
    """Raise Rejected unless the figures that come with an update can be right.

    The client has ``samples`` samples. It was to train ``steps`` steps, which see ``seen`` samples in all.
    """
    for name, least, most in (
        ("samples", samples, samples),
        ("steps", steps, steps),
        ("trained", 1, seen),
    ):
        value = result.get(name)
        if type(value) is not int:  # a bool is an int to isinstance
            raise Rejected(f"count {name!r} is not a whole number")
        if not least <= value <= most:
            raise Rejected(f"count {name!r} is not as planned", f"{str(value)[:20]}, not in {least}..{most}")
    for name, low in (("loss", -MOST), ("utility", 0.0), *([("norm", 0.0)] if norms else ())):
        value = result.get(name)
        if isinstance(value, float) and not value <= MOST:  # also NaN
            raise Rejected(diverged(f"its {name} is not finite"))
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= MOST:
            raise Rejected(f"figure {name!r} is not a finite number in its range")


def checked_state(section: wire.Section | None, start: State, max_norm: float | None) -> State:
    """Read a client's state; raises Rejected unless it is finite, like ``start``, and within ``max_norm`` of it."""
    state = checked_tensors(section, start)
    if max_norm is not None:
        moved = float(change_norms({name: tensor[None] for name, tensor in state.items()}, start))
        if not moved <= max_norm:
            raise Rejected(TOO_FAR, f"{moved:.4g}")
    return state


def checked_sum(
    section: wire.Section | None, start: State, template: State, weight: float, max_norm: float | None
) -> State:
    """Read the sum of changes of clients whose weights add up to ``weight``.

    Raises Rejected unless it is finite, like ``template``, and no longer than clients within ``max_norm`` allow.
    """
    change = checked_tensors(section, template)
    if max_norm is not None:
        moved = norm(change, start)
        if not moved <= max_norm * weight * _SLACK:
            raise Rejected("its sum is longer than its clients' changes may be", f"{moved:.4g}")
    return change


def checked_tensors(section: wire.Section | None, reference: State) -> State:
    """Read tensors from a section; raises Rejected unless they are finite and like those of ``reference``."""
    if section is None:
        raise Rejected("it came without a state")
    try:
        state = wire.bytes_to_tensors(section)
    except wire.WireError as error:
        raise Rejected("its state cannot be read", str(error)) from None
    fault = fault_in_state(state, reference)
    if fault is not None:
        raise Rejected(*fault)
    return state


def checked_num_unclipped(num_unclipped: Any, clients: int) -> int:
    """Return the number of a unit's clients within the clipping norm; raises Rejected where it is impossible."""
    if not isinstance(num_unclipped, int) or isinstance(num_unclipped, bool) or not 0 <= num_unclipped <= clients:
        raise Rejected("its count of clients within the clipping norm cannot be", f"{num_unclipped!r} of {clients}")
    return num_unclipped


def checked_class_weights(section: wire.Section, classes: int, weight: float) -> torch.Tensor:
    """Read the weight of a unit's clients that have samples of each class, float64 [classes]; raises Rejected."""
    try:
        (weights,) = wire.columns(section, ("weights",), torch.float64)
    except wire.WireError as error:
        raise Rejected("its weights of classes cannot be read", str(error)) from None
    if len(weights) != classes or not ((weights >= 0) & (weights <= weight * _SLACK)).all():  # false for NaN
        raise Rejected("its weights of classes cannot be")
    return torch.from_numpy(weights)


def fault_in_state(state: State, reference: State) -> tuple[str, str] | None:
    """Return why ``state`` cannot replace ``reference``, and the tensor's name; None where it can."""
    if state.keys() != reference.keys():
        odd = sorted(state.keys() ^ reference.keys())[0]
        return ("a tensor is missing" if odd in reference else "a tensor is not of this model"), odd
    for name, tensor in state.items():
        if tensor.shape != reference[name].shape or tensor.dtype != reference[name].dtype:
            return "a tensor has another shape or type than the model's", name
    floating = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    sums = [tensor.sum(dtype=torch.float64) for tensor in floating.values()]
    if not sums or bool(torch.stack(sums).isfinite().all()):  # one wait for all of them
        return None
    for name, tensor in floating.items():
        if not bool(torch.isfinite(tensor).all()):
            return diverged("a tensor is not finite"), name
    return None  # a sum of large numbers was above float64
