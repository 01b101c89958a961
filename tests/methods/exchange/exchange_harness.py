"""Methods that exchange tensors, without a runtime: small aggregators, clients beside a network, made-up messages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.training.resident import Cohort
from fedscale_ext.training.samples import ClientSamples
from methods.harness import CLASSES, SHAPE, means_of, server, updates_for

TYPES = ["single_exit_mlp", "cnn_small"]
WIDTH = 6


def new_aggregator(method: str, folder: Path, **keys: Any) -> Any:
    """Six clients, three of each type, with features of one width."""
    return aggregator_of_types(method, folder, **{"representation": WIDTH, **keys})


def aggregator_of_types(method: str, folder: Path, **keys: Any) -> Any:
    """Six clients, three of each type, whose tensors are in ``folder``."""
    aggregator = server(method_class(method), method, **{"types": TYPES, "ranges": ["1-3", "4-6"], **keys})
    aggregator.log_dir = folder
    aggregator.client_tensors_by_kind = {kind.kind: kind for kind in aggregator.client_tensors()}
    return aggregator


def answer(aggregator: Any, item: WorkItem, round: int) -> State:
    """What a client might send: values by client and round; even clients lack class 0."""
    generator = torch.Generator().manual_seed(100 * round + item.client)
    new = {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in aggregator.sent_tensors.template(item.model).items()
        if name != COUNTS
    }
    if COUNTS not in aggregator.sent_tensors.template(item.model):
        return new
    samples = int(aggregator.task.train_sizes[item.client - 1])
    counts = torch.zeros(CLASSES, dtype=torch.int32)
    counts[0 if item.client % 2 else 1] = samples - 3
    counts[2] = 3
    return {**{name: rows * (counts > 0).view(-1, *[1] * (rows.dim() - 1)) for name, rows in new.items()},
            COUNTS: counts}  # fmt: skip


def play(
    aggregator: Any, round: int, participants: Sequence[int] = range(1, 7), answers: Mapping[int, State] | None = None
) -> list[WorkItem]:
    """One round of the hooks, as the runtime calls them."""
    aggregator._internals = {}
    items: list[WorkItem] = aggregator.assign(round, np.array(participants))
    aggregator.sent_tensors.begin(items)
    updates = updates_for(aggregator, items)
    for update in updates:
        sent = answer(aggregator, update.item, round) if answers is None else answers[update.client]
        aggregator.sent_tensors.take(round, update.item, sent)
    aggregator.aggregate(round, updates, means_of(aggregator, round, updates))
    return items


def bench(spec: ModelSpec, seed: int = 7) -> Any:
    """An executor's models, as far as clients use them: one network in float64."""

    def module(key: str = "") -> torch.nn.Module:
        network = models.build(spec).double()
        network.load_state_dict(models.initial_state(spec, seed))
        return network

    return SimpleNamespace(module=module, spec=lambda key: spec)


def samples(count: int, classes: int = CLASSES) -> ClientSamples:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, *SHAPE, generator=generator, dtype=torch.float64)
    return ClientSamples(x, torch.randint(0, classes, (count,), generator=generator))


def assert_cohorts_equal_one_by_one(
    client: type, spec: ModelSpec, states: Sequence[State], message: State, received: Sequence[Any] = (), **changes: Any
) -> None:
    """Two clients with different states and sizes train side by side as they do one by one, and send the same."""
    at, data = bench(spec), [samples(13), samples(9)]
    fields = {"shared_tensors": message, "model_key": "a", "returns_tensors": True, **changes}
    confs = [
        client_settings(number, client_state=state, **fields, **(received[number - 1] if received else {}))
        for number, state in enumerate(states, 1)
    ]
    alone = [client(conf, at).train(each, at.module(), conf) for each, conf in zip(data, confs, strict=True)]
    module, stack = at.module(), stacked(at.module(), SHAPE)
    assert stack is not None
    cohort = Cohort(stack, module, SHAPE, 2, torch.device("cpu"), channels_last=True)
    cohort.restore({name: tensor.detach().clone() for name, tensor in module.state_dict().items()})
    together = client(confs[0], at).train_cohort(data, cohort, confs)
    for one, other in zip(alone, together, strict=True):
        assert not isinstance(other, Exception), other
        assert abs(one["moving_loss"] - other["moving_loss"]) < 1e-9
        for part in ("client_state", "returned") if "returned" in one else ("client_state",):
            assert one[part].keys() == other[part].keys()
            for name, tensor in one[part].items():
                torch.testing.assert_close(other[part][name], tensor, atol=1e-6, rtol=1e-6)
    first, second = (each["client_state"] for each in together)
    assert any(not torch.equal(first[name], second[name]) for name in first)


class EndsInMaps(torch.nn.Module):
    """A network whose logits are means of maps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(SHAPE[0], CLASSES, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [B, classes] of samples [B, C, H, W]."""
        return self.conv(x).mean((2, 3))
