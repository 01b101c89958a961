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


def made(method: str, folder: Path, *, labels: bool = True, **keys: Any) -> Any:
    """Six clients, three of each type."""

    class WithData(method_class(method)):  # type: ignore[misc]
        def public_data(self) -> PublicData:
            return samples(labels)

    given = {"model": "cnn_small", "types": TYPES, "ranges": ["1-3", "4-6"], **keys}
    found = server(WithData, method, **given)
    found.log_dir = folder
    found.client_tensors_by_kind = {kept.kind: kept for kept in found.client_tensors()}
    return found


def logits_for(client: int, asked: int, round: int = 1) -> torch.Tensor:
    """What a client might say."""
    return torch.randn(asked, CLASSES, generator=torch.Generator().manual_seed(100 * round + client))


def play(found: Any, round: int, participants: Sequence[int] = range(1, 7)) -> list[WorkItem]:
    """One round of the hooks, as the runtime calls them; every participant says ``logits_for``."""
    found._internals = {}
    items: list[WorkItem] = found.assign(round, np.array(participants))
    found.client_logits.begin(items)
    updates = updates_for(found, round, items)
    for update in updates:
        found.client_logits.take(
            round, update.item, {"logits": logits_for(update.client, found.client_logits.num_rows, round)}
        )
    found.aggregate(round, updates, means_of(found, round, updates))
    found.evolve(round)
    return items
