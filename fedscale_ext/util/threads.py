"""Work of the aggregator side by side: one torch thread each, so that no sum depends on the number of cores."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fedscale_ext.util.macs import counted

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(items: Iterable[_Item], work: Callable[[_Item], _Result], threads: int) -> list[_Result]:
    """Apply ``work`` to each item in ``threads`` threads; the results have the order of the items.

    Items begin in their order.
    """
    # a thread takes the number over only after its first operations, unless it is told
    with (
        _one_torch_thread(),
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        return list(pool.map(counted(work), items))


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Sums are split by the number of threads, so that results would depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
