"""Partitions of samples over clients for data without natural clients.

Each function returns the client (0..clients-1) of each sample, so that every sample has exactly one (but
where each client has an exact number of samples: others have none); nobody is empty. Draws depend on the seed only.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.importing.dirichlet import dirichlet, dirichlet_at_least, dirichlet_equal
from fedscale_ext.data.importing.grouping import GROUPED
from fedscale_ext.data.importing.sizes import RULES, by_size
from fedscale_ext.data.layout.split import with_held_out

KINDS = ("dirichlet", "classes", "shard", "iid", *RULES)


@dataclass(frozen=True)
class Partition:
    """How to spread samples over clients.

    ``dirichlet``: each label's samples are shared out by proportions drawn from Dirichlet(alpha);
    the smaller ``alpha``, the fewer labels and the more unequal sizes (Yurochkin et al. 2019). With ``min_samples``
    above 1 everyone has so many (HypeMeFed's: 50, for UniMiB SHAR 24, or 13 for alpha 0.1). With
    ``samples_per_client`` above 0, each client draws proportions of the labels instead, and has exactly so many samples
    to train on (Moss's: 100); samples may be left over.
    ``classes``: each client has exactly ``classes_per_client`` classes, and an equal share of a class with all
    others who have it (HeteroFL, Diao et al. 2021, section 4: two classes of CIFAR-10).
    ``shard``: samples sorted by label, cut into ``shards_per_client * clients`` pieces that are dealt
    at random (McMahan et al. 2017). ``iid``: shuffled and dealt evenly. ``linear``, ``square``, ``exponential``:
    shuffled and dealt in sizes that rise with the client's number (``sizes.py``).
    ``grouped``: each client has all samples of several of the source's own clients (``grouping.py``).
    """

    kind: str
    clients: int
    alpha: float = 0.5
    shards_per_client: int = 2
    classes_per_client: int = 2
    min_samples: int = 1
    samples_per_client: int = 0

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, GROUPED):
            raise UserError(f"there is no partition {self.kind!r}: choose one of {', '.join((*KINDS, GROUPED))}")
        if self.clients < 1:
            raise UserError(f"a partition needs at least 1 client, not {self.clients}")
        if not (np.isfinite(self.alpha) and self.alpha > 0):
            raise UserError(f"alpha of a Dirichlet partition must be a number above 0, not {self.alpha}")
        if self.shards_per_client < 1:
            raise UserError(f"a client needs at least 1 shard, not {self.shards_per_client}")
        if self.classes_per_client < 1:
            raise UserError(f"a client needs at least 1 class, not {self.classes_per_client}")
        if self.min_samples < 1:
            raise UserError(f"a client needs at least 1 sample, not {self.min_samples}")
        if self.min_samples > 1 and self.kind != "dirichlet":
            raise UserError(f"a minimum of samples is for Dirichlet partitions, not for {self.kind}")
        if self.samples_per_client < 0:
            raise UserError(f"samples of each client must be at least 1, not {self.samples_per_client}")
        if self.samples_per_client and self.kind != "dirichlet":
            raise UserError(f"an exact number of samples is for Dirichlet partitions, not for {self.kind}")
        if self.samples_per_client and self.min_samples > 1:
            raise UserError("a minimum of samples and an exact number are both given: leave one of them out")

    @property
    def grouped(self) -> bool:
        """Whether it groups the source's own clients, instead of dealing out samples."""
        return self.kind == GROUPED

    def settings(self) -> dict[str, Any]:
        """Return the fields for dataset.json; later additions only where they are set."""
        later = {"min_samples": 1, "samples_per_client": 0}
        return {key: value for key, value in asdict(self).items() if value != later.get(key)}

    def assign(self, labels: np.ndarray, seed: int, held_out: float = 0.0) -> np.ndarray:
        """Client of each sample: int64 [n] in 0..clients-1, for ``labels`` int [n]; -1 for samples that are left over.

        ``held_out``: the share of each client's samples that it will not train on, which come on top of
        ``samples_per_client``. It is not for ``grouped``.
        """
        pieces = self.clients * (self.shards_per_client if self.kind == "shard" else 1)
        if len(labels) < pieces:
            raise UserError(
                f"{len(labels)} samples cannot be spread over {self.clients} clients "
                f"({pieces} pieces, none empty): ask for fewer clients"
            )
        if self.samples_per_client:
            each = with_held_out(self.samples_per_client, held_out)
            return dirichlet_equal(labels, self.clients, self.alpha, seed, each)
        if self.kind == "dirichlet":
            if self.min_samples > 1:
                return dirichlet_at_least(labels, self.clients, self.alpha, seed, self.min_samples)
            return dirichlet(labels, self.clients, self.alpha, seed)
        if self.kind == "shard":
            return shards(labels, self.clients, self.shards_per_client, seed)
        if self.kind == "classes":
            return classes(labels, self.clients, self.classes_per_client, seed)
        if self.kind in RULES:
            return by_size(len(labels), self.clients, self.kind, seed)
        return iid(len(labels), self.clients, seed)


def _deal(pieces: int, samples: int) -> np.ndarray:
    """Piece of each of ``samples`` consecutive places: as equal as possible, in order."""
    return np.arange(samples, dtype=np.int64) * pieces // samples


def iid(samples: int, clients: int, seed: int) -> np.ndarray:
    """Shuffle the samples and deal them evenly: sizes differ by at most 1."""
    client = np.empty(samples, dtype=np.int64)
    client[stream(seed, "partition", "iid").permutation(samples)] = _deal(clients, samples)
    return client


def shards(labels: np.ndarray, clients: int, shards_per_client: int, seed: int) -> np.ndarray:
    """Sort by label, cut into equal shards, deal ``shards_per_client`` of them to each client."""
    rng = stream(seed, "partition", "shard")
    mixed = rng.permutation(len(labels))
    order = mixed[np.argsort(labels[mixed], kind="stable")]
    pieces = clients * shards_per_client
    owner = rng.permutation(pieces) % clients
    client = np.empty(len(labels), dtype=np.int64)
    client[order] = owner[_deal(pieces, len(labels))]
    return client


def classes(labels: np.ndarray, clients: int, per_client: int, seed: int) -> np.ndarray:
    """Give each client ``per_client`` different classes, and deal each class evenly to those who have it.

    HeteroFL's public code deals classes at random and lets a client draw one twice, who then has fewer, and drops
    its second share; here classes go round in decks, so that each has as many clients as any other (to within 1).
    """
    present, sizes = np.unique(labels, return_counts=True)
    if per_client > len(present):
        raise UserError(f"a client cannot have {per_client} of {len(present)} classes: ask for fewer")
    if clients * per_client < len(present):
        raise UserError(
            f"{clients} clients with {per_client} classes each cannot share {len(present)} classes: ask for more"
        )
    rng = stream(seed, "partition", "classes")
    left = np.full(len(present), clients * per_client // len(present))
    left[rng.permutation(len(present))[: clients * per_client % len(present)]] += 1
    holders: list[list[int]] = [[] for _ in present]
    for owner in range(clients):
        # those that most shares are left of, equal ones in random order: no class is left over for too few clients
        for column in np.lexsort((rng.random(len(present)), -left))[:per_client]:
            left[column] -= 1
            holders[column].append(owner)
    client = np.empty(len(labels), dtype=np.int64)
    for label, size, who in zip(present, sizes, holders, strict=True):
        if size < len(who):
            raise UserError(
                f"class {label} has {size} samples for {len(who)} clients: ask for fewer clients, or classes for each"
            )
        client[rng.permutation(np.flatnonzero(labels == label))] = np.array(who)[_deal(len(who), int(size))]
    return client


def follow(
    train_client: np.ndarray, train_labels: np.ndarray, labels: np.ndarray, clients: int, seed: int
) -> np.ndarray:
    """Draw the client of each test sample, int64 [n], in proportion to the training samples of its class.

    So a client's test samples have the mix of classes of its training samples. A class without training samples is
    dealt evenly.
    """
    client = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rng = stream(seed, "partition", "test", int(label))
        rows = rng.permutation(np.flatnonzero(labels == label))
        who = rng.permutation(clients)  # in random order, so that rounding favours nobody
        holders = train_client[(train_labels == label) & (train_client >= 0)]
        shares = np.bincount(holders, minlength=clients)[who]
        edges = np.cumsum(shares if shares.any() else np.ones(clients))
        positions = (np.arange(len(rows)) + rng.random()) * (edges[-1] / len(rows))
        client[rows] = who[np.searchsorted(edges, positions, side="right")]
    return client
