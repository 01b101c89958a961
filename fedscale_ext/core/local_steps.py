"""How many steps a client takes and which of its samples each of them sees. Both sides of the wire reckon with it."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.streams import stream

DECIDES_SAMPLES = frozenset({"local_steps", "local_epochs", "batch_size", "held_out"})
"""Overrides of a work item that decide how many samples its steps see."""


def hold_out(samples: int, share: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the rows that a client trains on and the rows of its validation part, int64 each.

    The client's stream decides: the rows are the same in every round. The validation part is ``share`` of the
    client's training samples, rounded up. A single sample is trained on.
    """
    count = samples - trained_on(samples, share)
    rows = stream(seed, client, "validation").permutation(samples)
    return np.sort(rows[count:]), np.sort(rows[:count])


def trained_on(samples: int, held_out: float) -> int:
    """Return the number of a client's ``samples`` that it trains on if it holds out this share of them."""
    return samples - min(samples - 1, ceil(part_of(held_out, samples)))


class LocalSteps(NamedTuple):
    """The size of a client's local training in one round; ``epochs`` is None if it is not counted in epochs."""

    samples: int
    batch_size: int
    steps: int
    epochs: int | None


def local_steps(
    train_size: int, batch_size: int, steps: int, epochs: int | None, overrides: Mapping[str, Any]
) -> LocalSteps:
    """Return the size of a client's local training.

    Args:
        train_size: The client's training samples.
        batch_size: The job's batch size.
        steps: The job's steps, if it counts no epochs.
        epochs: The job's epochs, or None.
        overrides: Those of the work item, which take precedence.

    """
    samples = trained_on(train_size, overrides.get("held_out", 0.0))
    batch_size = int(overrides.get("batch_size", batch_size))
    if "local_steps" in overrides:
        return LocalSteps(samples, batch_size, int(overrides["local_steps"]), None)
    epochs = overrides.get("local_epochs", epochs)
    return LocalSteps(samples, batch_size, steps if epochs is None else epochs * -(-samples // batch_size), epochs)


def step_sizes(samples: int, batch_size: int, steps: int, epochs: int | None) -> np.ndarray:
    """Return the number of samples that each step of a client sees, int64 [steps].

    Without ``epochs``, all batches have one size. With ``epochs``, each epoch sees all samples; its last batch holds
    the rest.
    """
    if epochs is None:
        return np.full(steps, min(samples, batch_size))
    epoch = np.full(steps // epochs, batch_size)
    epoch[-1] = samples - batch_size * (len(epoch) - 1)
    return np.tile(epoch, epochs)


def drawn_rows(samples: int, conf: ClientConfig, rng: np.random.Generator) -> list[np.ndarray]:
    """Draw the row numbers of each step of a client with the settings ``conf``."""
    if conf.local_epochs is None:
        return list(batches(samples, conf.batch_size, conf.local_steps, rng))
    ends = range(conf.batch_size, samples, conf.batch_size)
    return [rows for _ in range(conf.local_epochs) for rows in np.split(rng.permutation(samples), ends)]


def batches(samples: int, batch_size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the row numbers of ``steps`` batches from shuffled epochs, without their incomplete last batch.

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
