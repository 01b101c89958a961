"""A second device on a machine that has none: the CPU's arithmetic, and a GPU's rules for where tensors are.

In the block of :class:`PretendDevice`, tensors "on the device" are wrappers that report torch's device ``lazy`` and
hold a CPU tensor. An operation that a GPU would refuse raises :class:`Misplaced`: tensors of both devices in one
operation, or random numbers of a CPU generator for a tensor of the device. As on a GPU, copies may cross over, 0-d
CPU tensors may take part in pointwise operations, and CPU indices may pick rows by ``x[rows]``.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = torch.device("lazy")
_CROSSING = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
_INDEXED = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default)


class Misplaced(Exception):
    """An operation that a GPU would refuse."""


class OnDevice(Tensor):
    """A tensor on the pretended device; ``held`` has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        """Wrap a CPU tensor, whose memory the wrapper shares."""
        wrapper = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=DEVICE, requires_grad=False,
        )  # fmt: skip
        wrapper.held = held
        return wrapper  # type: ignore[no-any-return]

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on the values and wrap what it gives."""
        return _run(func, args, kwargs or {})


class PretendDevice(TorchDispatchMode):
    """A block in which the device exists, in the thread that enters it.

    ``here``: names of the operations that ran on the device; ``elsewhere``: of those that ran on the CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.here: set[str] = set()
        self.elsewhere: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let tensors be made on the device, and all other operations follow its rules."""
        result = _run(func, args, kwargs or {})
        on_device = any(isinstance(each, OnDevice) for each in _tensors((args, kwargs, result)))
        (self.here if on_device else self.elsewhere).add(func.overloadpacket.__name__)
        return result


def serial(items: Iterable[Any], work: Callable[[Any], Any], threads: int) -> list[Any]:
    """Stand-in for ``in_threads``: the block of a :class:`PretendDevice` counts in its own thread only."""
    return list(map(work, items))


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = _tensors((args, kwargs))
    here = [each for each in tensors if isinstance(each, OnDevice)]
    target = kwargs.get("device")
    made_here = bool(here) if target is None else torch.device(target) == DEVICE
    if here and func not in _CROSSING:
        _check_places(func, args, tensors)
    generator = kwargs.get("generator")
    if made_here and isinstance(generator, torch.Generator):
        raise Misplaced(f"{func}: a CPU generator draws for a tensor of the device")
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = func(*_mapped(_held, args), **_mapped(_held, kwargs))
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if not made_here:
        return result
    return return_and_correct_aliasing(func, args, kwargs, _mapped(_wrapped, result))


def _check_places(func: Any, args: Any, tensors: list[Tensor]) -> None:
    """Raise Misplaced where a tensor of the CPU takes part in an operation on the device."""
    strangers = [each for each in tensors if not isinstance(each, OnDevice)]
    if func in _INDEXED and isinstance(args[0], OnDevice):
        strangers = [each for each in strangers if each.dtype not in (torch.int64, torch.bool)]
    if torch.Tag.pointwise in func.tags:
        strangers = [each for each in strangers if each.dim()]
    if strangers:
        raise Misplaced(f"{func}: {len(strangers)} of {len(tensors)} tensors are on the CPU")


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of lists, tuples and dicts: torch's own takes most of the tests' time."""
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(function, each) for each in tree])
    if isinstance(tree, dict):
        return {key: _mapped(function, each) for key, each in tree.items()}
    return function(tree)


def _tensors(tree: Any) -> list[Tensor]:
    tensors: list[Tensor] = []
    _mapped(lambda each: tensors.append(each) if isinstance(each, Tensor) else None, tree)
    return tensors


def _held(each: Any) -> Any:
    return each.held if isinstance(each, OnDevice) else each


def _wrapped(each: Any) -> Any:
    return OnDevice(each) if isinstance(each, Tensor) and not isinstance(each, OnDevice) else each
