"""How many steps a client takes and which of its samples each of them sees. Both sides of the wire reckon with it."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np

from fedscale_ext.core.streams import stream

OWN_STEPS = "local_steps"  # the one part of an objective in which clients of a cohort may differ
OWN_EPOCHS = "local_epochs"  # of an objective: passes of its clients, instead of the job's

HELD_OUT = "held_out"  # of an objective: the share of a client's training samples that it keeps for validation


def hold_out(samples: int, share: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of what a client trains on and of its validation part: the same in every round, drawn from its own
    stream. The validation part is ``share`` of its training samples, rounded up; of a single sample there is none."""
    count = samples - _left(samples, share)
    rows = stream(seed, client, "validation").permutation(samples)
    return np.sort(rows[count:]), np.sort(rows[:count])


def trained_on(samples: int, objective: Mapping[str, Any]) -> int:
    """How many of its samples a client trains on with ``objective``."""
    return _left(samples, objective.get(HELD_OUT, 0.0))


def _left(samples: int, share: float) -> int:
    return samples - min(samples - 1, ceil(share * samples))


def local_steps(
    samples: int, batch_size: int, steps: int, epochs: int | None, objective: Mapping[str, Any]
) -> tuple[int, int | None]:
    """Steps and epochs of a client: ``steps`` and None, or with ``epochs`` as many steps as these have batches.

    What an objective says of either goes before what the job says.
    """
    if OWN_STEPS in objective:
        return int(objective[OWN_STEPS]), None
    epochs = objective.get(OWN_EPOCHS, epochs)
    return (steps, None) if epochs is None else (epochs * -(-samples // batch_size), epochs)


def step_sizes(samples: int, batch_size: int, steps: int, epochs: int | None) -> np.ndarray:
    """How many samples each step of a client sees, int64 [steps]: batches of one size, or with ``epochs`` all samples
    in each, the last batch of an epoch being what is left."""
    if epochs is None:
        return np.full(steps, min(samples, batch_size))
    epoch = np.full(steps // epochs, batch_size)
    epoch[-1] = samples - batch_size * (len(epoch) - 1)
    return np.tile(epoch, epochs)


def drawn_rows(samples: int, conf: Namespace, rng: np.random.Generator) -> list[np.ndarray]:
    """Row numbers of each step of a client with the settings ``conf``."""
    if conf.local_epochs is None:
        return list(batches(samples, conf.batch_size, conf.local_steps, rng))
    ends = range(conf.batch_size, samples, conf.batch_size)
    return [rows for _ in range(conf.local_epochs) for rows in np.split(rng.permutation(samples), ends)]


def batches(samples: int, batch_size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers of ``steps`` batches: shuffled epochs whose incomplete last batch is left out.

    A client with fewer samples than a batch trains on all of them in each step (FedScale's loader
    drops its only, incomplete batch and never ends).
    """
    size = min(samples, batch_size)
    done = 0
    while done < steps:
        order = rng.permutation(samples)
        for start in range(0, samples - size + 1, size):
            if done == steps:
                return
            yield order[start : start + size]
            done += 1
