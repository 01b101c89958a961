"""Aggregators of the distillation methods without a runtime: small types, made-up public data and logits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedscale_ext.config.methods import method_class
from fedscale_ext.core.types import WorkItem
from fedscale_ext.data.public import PublicData
from methods.harness import CLASSES, SHAPE, means_of, server, updates_for

TYPES = ["single_exit_mlp", "lenet_6k"]
PUBLIC = 12


def samples(labels: bool = True) -> PublicData:
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(PUBLIC, *SHAPE, generator=generator)
    y = torch.randint(CLASSES, (PUBLIC,), generator=generator)
    return PublicData(x, y if labels else None, f"{PUBLIC} samples of noise" + ("" if labels else ", of other classes"))


def new_aggregator(method: str, folder: Path, *, labels: bool = True, **keys: Any) -> Any:
    """Six clients, three of each type."""

    class WithData(method_class(method)):  # type: ignore[misc]
        def public_data(self) -> PublicData:
            return samples(labels)

    params = {"model": "cnn_small", "types": TYPES, "ranges": ["1-3", "4-6"], **keys}
    aggregator = server(WithData, method, **params)
    aggregator.log_dir = folder
    aggregator.client_tensors_by_kind = {kind.kind: kind for kind in aggregator.client_tensors()}
    return aggregator


def logits_for(client: int, num_rows: int, round: int = 1) -> torch.Tensor:
    """What a client might say."""
    return torch.randn(num_rows, CLASSES, generator=torch.Generator().manual_seed(100 * round + client))


def play(aggregator: Any, round: int, participants: Sequence[int] = range(1, 7)) -> list[WorkItem]:
    """One round of the hooks, as the runtime calls them; every participant says ``logits_for``."""
    aggregator._internals = {}
    items: list[WorkItem] = aggregator.assign(round, np.array(participants))
    aggregator.client_logits.begin(items)
    updates = updates_for(aggregator, items)
    for update in updates:
        aggregator.client_logits.take(
            round, update.item, {"logits": logits_for(update.client, aggregator.client_logits.num_rows, round)}
        )
    aggregator.aggregate(round, updates, means_of(aggregator, round, updates))
    aggregator.evolve(round)
    return items
