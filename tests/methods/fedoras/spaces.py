"""Small search spaces as cost tables, scores of their paths, and searches of them from beginning to end."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from fedscale_ext.methods.fedoras.brackets import Bracket
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.methods.fedoras.search import JudgedPath, Path, PathSearch
from fedscale_ext.models.supernet.family import Tables

# shape of a sample and number of classes of the published spaces
INPUTS = {"cnn_l": ((3, 32, 32), 10), "cnn_s": ((1, 40, 51), 12), "rnn_positions": ((1, 1, 80), 90),
          "cifar10_extra_range": ((3, 32, 32), 10)}  # fmt: skip


def table(macs: Sequence[Sequence[float]], fixed: float = 10.0) -> Tables:
    """Operators op0, op1, … with these MACs, by layer; bytes are a thousand times their MACs."""
    most = max(map(len, macs))
    padded = np.array([[*row, *[np.inf] * (most - len(row))] for row in macs], dtype=np.float64)
    held = np.array([[column < len(row) for column in range(most)] for row in macs])
    size = np.where(held & np.isfinite(padded), 1000 * padded, 0).astype(np.int64)
    ops = tuple(tuple(f"op{column}" for column in range(len(row))) for row in macs)
    return Tables(ops, held, padded, 3 * padded, size // 4, size, fixed, 3 * fixed, 5, 20)


def drawn_table(layers: int, operators: int, seed: int = 0) -> Tables:
    """Whole numbers of MACs; the last operator of each layer costs nothing."""
    macs = np.random.default_rng(seed).integers(1, 1000, (layers, operators)).astype(float)
    macs[:, -1] = 0
    return table(macs.tolist())


def every_path(tables: Tables) -> np.ndarray:
    """int64 [paths, layers]."""
    return np.array(list(product(*(range(len(held)) for held in tables.ops))))


def judge(tables: Tables, seed: int = 0) -> Callable[[Sequence[Sequence[str]]], list[float]]:
    """Scores that grow with MACs, so that the best of all paths is a dear one, with values of operators and of pairs of
    neighbours beside."""
    rng = np.random.default_rng(seed)
    values = rng.random(tables.macs.shape)
    pairs = rng.random((len(tables.ops), tables.macs.shape[1], tables.macs.shape[1]))

    def scores(paths: Sequence[Sequence[str]]) -> list[float]:
        totals = []
        for path in paths:
            columns = tables.indices(path)
            places = np.arange(len(columns))
            value = values[places, columns].sum() + 0.5 * pairs[places[1:], columns[:-1], columns[1:]].sum()
            totals.append(float(value + path_macs(tables, columns[None])[0] / 500))
        return totals

    return scores


def best_inside(tables: Tables, bracket: Bracket, scores: Callable[[Sequence[Sequence[str]]], list[float]]) -> float:
    """The greatest score of all paths of a bracket."""
    paths = every_path(tables)
    inside = paths[bracket.inside(path_macs(tables, paths))]
    return max(scores([tables.path(path) for path in inside]))


def run(
    search: PathSearch,
    scores: Callable[[list[Path]], Sequence[float] | np.ndarray],
    progress: Callable[[PathSearch], None] | None = None,
) -> JudgedPath:
    """The best path of a search to its end; ``progress`` is called with the search after each judged generation."""
    while paths := search.ask():
        search.tell(scores(paths))
        if progress is not None:
            progress(search)
    return search.best()
