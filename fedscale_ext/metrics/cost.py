"""What a job has cost: computation, network and storage, from its round records.

The published tables do not say whether they count the backward pass, the whole suite of models or the network of one
round (such as FedTrans's Table 2: "Cost", "Storage", "Network"), so every reading is written down. MB is 10^6 bytes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.types import Model, RoundRecord, is_personal, members

MB = 1e6


@dataclass(frozen=True)
class Spent:
    """Sums over all clients and rounds: MACs of training, and bytes as clients see them.

    ``forward_macs`` counts the forward passes of training, ``training_macs`` forward and backward.
    """

    rounds: int = 0
    forward_macs: float = 0.0
    training_macs: float = 0.0
    download_bytes: int = 0
    upload_bytes: int = 0

    def plus(self, record: RoundRecord) -> "Spent":
        """These sums with one more round."""
        return Spent(
            self.rounds + 1,
            self.forward_macs + record.forward_macs,
            self.training_macs + record.training_macs,
            self.download_bytes + record.download_bytes,
            self.upload_bytes + record.upload_bytes,
        )

    @property
    def network_mb(self) -> float:
        """Network traffic in both directions, MB."""
        return (self.download_bytes + self.upload_bytes) / MB

    @property
    def network_per_round_mb(self) -> float:
        """Network traffic in both directions, MB, on average over the rounds."""
        return self.network_mb / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Storage:
    """Storage of models in MB.

    ``suite_mb`` counts all models of the pool and the ``client_models`` that clients keep. ``mean_model_mb`` is the
    size of a served model, on average over clients.
    """

    suite_mb: float
    mean_model_mb: float
    client_models: int = 0


def spent(records: Iterable[RoundRecord]) -> Spent:
    """The sums of a job so far."""
    total = Spent()
    for record in records:
        total = total.plus(record)
    return total


def storage(
    models: Sequence[Model],
    serve: Sequence[str],
    trained: Collection[int] | None = None,
    personal_bytes: Sequence[float] | None = None,
    served_bytes: Sequence[float] | None = None,
) -> Storage:
    """Storage of a pool whose model ``serve[c - 1]`` goes to client c; NaN mean where nobody is served.

    Parts of another model are cut out when they are needed: the suite does not store them. A client's own version of a
    model is stored for each client that has ``trained`` (None: for all); others still have the pool's. It is as large
    as the pool's, or has ``personal_bytes[c - 1]``: where clients prune theirs, or keep a part of what they train.
    With it they are served as much, or ``served_bytes[c - 1]``: where a client keeps more than the model that it is
    served, or that model needs a shared one beside.
    """
    size = {model.key: model.cost.bytes / MB for model in models}
    of_pool = [sum(size[member] for member in members(key)) for key in serve]
    personal = _replaced(of_pool, serve, personal_bytes)
    served = _replaced(personal, serve, served_bytes)
    client_models_mb = [
        megabytes
        for client, (key, megabytes) in enumerate(zip(serve, personal, strict=True), 1)
        if is_personal(key) and (trained is None or client in trained)
    ]
    suite = sum(size[model.key] for model in models if model.part is None) + sum(client_models_mb)
    return Storage(suite, float(np.mean(served)) if served else float("nan"), len(client_models_mb))


def _replaced(sizes_mb: Sequence[float], serve: Sequence[str], client_bytes: Sequence[float] | None) -> list[float]:
    """The sizes in MB, with ``client_bytes`` in place of those of personal models where they are there."""
    if client_bytes is None:
        return list(sizes_mb)
    return [
        count / MB if is_personal(key) else megabytes
        for megabytes, key, count in zip(sizes_mb, serve, client_bytes, strict=True)
    ]


def round_completion(records: Iterable[RoundRecord]) -> tuple[float, float]:
    """Mean and standard deviation of the time that a client needs for its share of a round (FedTrans Table 6).

    Both are in seconds, over all clients of all rounds. They are NaN where no client took part.
    """
    durations = [seconds for record in records for seconds in record.client_durations_s]
    return (float(np.mean(durations)), float(np.std(durations))) if durations else (float("nan"), float("nan"))
