"""The validation set of the search, and a path's figures on it (FedorAS, sections 3.2 and 4.7, and public code).

A share of every client's training samples is held out from training. Put together they are the global validation set of
a central search; in a federated one each client keeps its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.streams import stream
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.tasks.bn_statistics import sums, with_statistics
from fedscale_ext.tasks.evaluation_figures import client_figures

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # of inputs and labels, the same ones each time


def validation_rows(
    sizes: Sequence[int] | np.ndarray, share: float, seed: int, fraction: float = 1.0
) -> list[np.ndarray]:
    """Rows of each client that are in the global validation set.

    A client holds out ``share`` of its training samples, the ones that it does not train on with ``held_out: share``.
    Of all those together, whosever they are, ``fraction`` is drawn (section 4.7), rounded up.

    Args:
        sizes: Training samples of each client, [clients].
        share: Share that each holds out.
        seed: The job's seed.
        fraction: Share of the held-out samples that counts.

    Returns:
        int64 of each client, rising.

    """
    if not 0 < fraction <= 1:
        raise UserError(f"the fraction of the validation set is {fraction:g}; it must be above 0 and at most 1")
    held = [hold_out(int(size), share, seed, client)[1] for client, size in enumerate(sizes, start=1)]
    if fraction == 1:
        return held
    owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
    drawn = stream(seed, "validation fraction").permutation(len(owner))[: ceil(part_of(fraction, len(owner)))]
    chosen = np.zeros(len(owner), dtype=bool)
    chosen[drawn] = True
    ends = np.cumsum([len(rows) for rows in held])[:-1]
    return [rows[mask] for rows, mask in zip(held, np.split(chosen, ends), strict=True)]


@contextmanager
def recalibrated(module: nn.Module, batches: Iterable[Tensor]) -> Iterator[None]:
    """Replace the module's running statistics, in the block, by those of ``batches`` of inputs through its path.

    A supernet's own are means over whatever paths were trained. Layers off the path are not touched. Afterwards the
    statistics are restored.
    """
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}
    mode = module.training
    try:
        measured = with_statistics(before, sums(module, batches))
        _write(module, measured)
        module.train(mode)
        yield
    finally:
        _write(module, before)
        module.train(mode)


def _write(module: nn.Module, values: dict[str, Tensor]) -> None:
    for name, tensor in module.named_buffers():
        tensor.copy_(values[name])


@torch.no_grad()
def path_figures(
    module: Searchable, paths: Sequence[Sequence[str]], batches: Batches, *, recalibrate: bool = False
) -> np.ndarray:
    """Judge paths on batches. The module's state stays as it was.

    Args:
        module: The supernet.
        paths: The paths.
        batches: Returns inputs and labels, the same ones each time.
        recalibrate: Whether BatchNorm's statistics are measured on the same batches before (the public code uses them
            as they are).

    Returns:
        float64 [paths, 3]: correct outputs, those among the first five, and summed loss.

    """
    return np.array([_figures(module, path, batches, recalibrate) for path in paths]).reshape(-1, 3)


def _figures(module: Searchable, path: Sequence[str], batches: Batches, recalibrate: bool) -> np.ndarray:
    module.choose(path)
    module.eval()
    with recalibrated(module, (x for x, _ in batches())) if recalibrate else nullcontext():
        figures = [client_figures(module(x).float(), y).sum(0) for x, y in batches()]
    return torch.stack(figures).sum(0).cpu().numpy()
