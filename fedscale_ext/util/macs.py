"""Counts the multiply-accumulates of a block of code: those of its matrix products and convolutions."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily
from torch.utils.flop_counter import flop_registry, shape_wrapper

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def convolution_backward(
    grad: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any, *_: Any, **__: Any,
) -> int:  # fmt: skip
    """Count the flops of a convolution's backward pass: input and weight gradient each repeat the forward's products.

    torch's own count ignores the groups in the weight gradient (C times too much for a depthwise one).
    """
    outer = x if transposed else grad
    return 2 * prod(outer) * prod(weight[1:]) * (bool(output_mask[0]) + bool(output_mask[1]))


_FLOPS_OF = {**flop_registry, torch.ops.aten.convolution_backward: shape_wrapper(convolution_backward)}


class MacCounter:
    """The multiply-accumulates of the blocks that it counts, and of their work in :func:`util.threads.in_threads`.

    One that is not ``on`` counts nothing, and costs nothing.
    """

    def __init__(self, on: bool = True) -> None:
        self._on, self._macs = on, 0
        self._lock = Lock()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what this thread computes in the block."""
        if not self._on:
            yield
            return
        mode, token = _Counting(), _running.set(self)
        try:
            with mode:
                yield
        finally:
            _running.reset(token)
            with self._lock:
                self._macs += mode.flops // 2

    def add(self, macs: int) -> None:
        """Add what others computed for these blocks."""
        with self._lock:
            self._macs += macs

    @property
    def macs(self) -> int:
        """The MACs since they were read last."""
        return self._macs

    def read(self) -> int | None:
        """Return the MACs so far, and start anew; None where it is not on."""
        macs, self._macs = self._macs, 0
        return macs if self._on else None


_running: ContextVar[MacCounter | None] = ContextVar("running", default=None)


def counted(work: Callable[[_Item], _Result]) -> Callable[[_Item], _Result]:
    """Return ``work`` as another thread may do it, counted if the caller's block is."""
    counter = _running.get()
    if counter is None:
        return work

    def run(item: _Item) -> _Result:
        with counter.counting():
            return work(item)

    return run


@contextmanager
def counted_once(known: dict[Hashable, int], key: Hashable) -> Iterator[None]:
    """Count what this thread computes in the block only where ``known`` has no number for ``key`` yet.

    Equal keys stand for equal products, so their MACs are added without looking: looking takes longer than small
    products do. No other mode of dispatch may have begun since the counter's.
    """
    counter = _running.get()
    if counter is None:
        yield
    elif key in known:
        with _pop_mode_temporarily():
            yield
        counter.add(known[key])
    else:
        one = MacCounter()
        with one.counting():
            yield
        known[key] = one.macs


class _Counting(TorchDispatchMode):
    """Adds up ``flops`` as torch's FlopCounterMode does, whose hooks of modules are the process's: not for threads."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flops_of = _FLOPS_OF.get(func._overloadpacket)
        if flops_of is None:  # in inference mode, linear comes whole
            with self:
                result = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
        result = func(*args, **kwargs)
        if not any(isinstance(each, Tensor) and each.is_meta for each in args):  # those are counted, not computed
            self.flops += flops_of(*args, **kwargs, out_val=result)
        return result
