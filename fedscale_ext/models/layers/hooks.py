"""Hooks of layers that last as long as a block of code."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch.utils.hooks import RemovableHandle


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Run the block with the hooks of these handles, and then remove them."""
    with ExitStack() as hooks:
        for handle in handles:
            hooks.enter_context(handle)
        yield
