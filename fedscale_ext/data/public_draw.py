"""Draws the public samples, which the server takes from its clients' training samples or another folder."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.importing.dirichlet import log_gamma


@dataclass(frozen=True)
class PublicDraw:
    """What to draw.

    Attributes:
        samples: Number of samples.
        classes: ``balanced``: the same number of each class, as nearly as there are samples of it. ``dirichlet``: by
            proportions from Dirichlet(``alpha``).
        alpha: Concentration of the Dirichlet distribution; a small one gives few classes.

    """

    samples: int
    classes: Literal["balanced", "dirichlet"] = "balanced"
    alpha: float = 0.1


def choose(labels: np.ndarray, how: PublicDraw, seed: int, client: np.ndarray | None = None) -> np.ndarray:
    """Draw rows of public samples among ``labels`` int [n]: int64 [how.samples], equal for equal seeds.

    Fewer samples are the first ones of this draw, so that a fraction is taken from the front. With ``client`` int [n],
    the clients of the rows, each client gives at most half of its samples. UserError where they do not suffice.
    """
    rng = stream(seed, "public data")
    spare = None if client is None else np.bincount(client, minlength=1) // 2
    mixed = rng.permutation(len(labels))
    waiting = {
        int(label): deque(mixed[labels[mixed] == label].tolist()) for label in rng.permutation(np.unique(labels))
    }
    taken: list[int] = []
    for label in _turns(waiting, how, rng):
        row = waiting[label].popleft()
        if spare is not None and client is not None:
            while not spare[client[row]] and waiting[label]:  # a class does not lose its turn to such a client
                row = waiting[label].popleft()
            if not spare[client[row]]:
                continue
            spare[client[row]] -= 1
        taken.append(row)
        if len(taken) == how.samples:
            return np.array(taken, dtype=np.int64)
    whose = "of the data set" if client is None else "that clients can spare, half of each client's training samples,"
    raise UserError(f"public_samples is {how.samples} and the samples {whose} are {len(taken)}: lower public_samples")


def _turns(waiting: dict[int, deque[int]], how: PublicDraw, rng: np.random.Generator) -> Iterator[int]:
    """The class of each sample that is looked at, until none is left."""
    labels = list(waiting)
    if how.classes == "balanced":
        while any(waiting.values()):
            yield from [label for label in labels if waiting[label]]
        return
    log = log_gamma(rng, how.alpha, (len(labels),))
    while any(waiting.values()):
        left = [index for index, label in enumerate(labels) if waiting[label]]
        edges = np.cumsum(np.exp(log[left] - log[left].max()))
        yield labels[left[int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))]]
