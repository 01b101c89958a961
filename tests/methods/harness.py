"""Methods without a runtime: an aggregator with what its hooks may use, fed with made-up updates."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.core.types import State, Task, Update, WorkItem
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.server.deadline_notices import DeadlineNotices
from fedscale_ext.submodels import count_mean
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.bn_statistics import in_batches
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.util.macs import MacCounter

SHAPE, CLASSES = (1, 8, 8), 5


def samples(
    count: int, seed: int = 0, shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float64
) -> ClientSamples:
    """A client's samples: noise with any labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *shape, generator=generator, dtype=dtype)
    return ClientSamples(x, torch.randint(0, CLASSES, (count,), generator=generator))


def server(
    cls: Any,
    method: str,
    *,
    clients: int = 6,
    capacity: Sequence[float] | None = None,
    seed: int = 1,
    shape: tuple[int, int, int] = SHAPE,
    **keys: Any,
) -> Any:
    """An aggregator of class ``cls`` after its init_state; ``keys`` are its hyperparameters, or job_conf keys.

    ``capacity`` in MACs per client; without it every model fits everybody.
    """
    keys = {key if is_job_key(key) else f"{method}.{key}": value for key, value in keys.items()}
    defaults = {"method": method, "model": "nasbench201_base", "record_internals": True, "seed": seed,
                "public_samples": 1, "use_cuda": False}  # fmt: skip
    config = make_config({}, {**defaults, **keys})
    aggregator = object.__new__(cls)
    aggregator.params = make_params(cls.Params, config)
    aggregator.config, aggregator.args, aggregator.seed = config, config.fedscale, seed
    aggregator.capacity = np.full(clients, 1e15) if capacity is None else np.array(capacity, dtype=np.float64)
    aggregator.eligible = np.ones(clients, dtype=bool)
    aggregator.task = Task(shape, CLASSES, np.arange(1, clients + 1) * 10, np.full(clients, 4), 2, 5)
    aggregator.pool, aggregator.history, aggregator._internals, aggregator._internal_states, aggregator.events = (
        ModelPool(),
        [],
        {},
        {},
        [],
    )
    aggregator.spent_macs = 0.0
    aggregator.emit, aggregator.client_tensors_by_kind, aggregator.notices = aggregator.events.append, {}, {}
    aggregator.deadline, aggregator.population = DeadlineNotices(config, aggregator.notice), None
    aggregator.data_info, aggregator.mac_counter = {"digest": ""}, MacCounter(on=False)
    aggregator.init_state(None, aggregator.task)
    return aggregator


def is_job_key(key: str) -> bool:
    """Whether a key belongs to the job and not to the method."""
    return key.startswith("yogi_") or key in (
        "proxy_mu",
        "data_set",
        "model",
        "capacity_model",
        "rounds",
        "stop_macs",
        "eval_interval",
        "initial_weights",
        "public_samples",
        "public_fraction",
    )


def trained(state: State, *key: int | str, scale: float = 0.05) -> State:
    """A state that local training might have made of ``state``; equal keys give equal ones."""
    result = {}
    for name, value in state.items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=torch_stream(*key, name))
            result[name] = value + scale * (noise.abs() if name.endswith("running_var") else noise)
        else:
            result[name] = value + 2
    return result


def updates_for(aggregator: Any, items: Sequence[WorkItem], losses: Mapping[int, float] | float = 1.0) -> list[Update]:
    """What the clients of ``items`` return, sorted by client."""
    result = []
    for item in sorted(items, key=lambda one: one.client):
        loss = losses if isinstance(losses, int | float) else losses[item.client]
        result.append(
            Update(
                item=item, samples=int(aggregator.task.train_sizes[item.client - 1]), trained=10, steps=2, loss=loss,
                utility=1.0,
            )
        )  # fmt: skip
    return result


def trained_states(aggregator: Any, round: int, updates: Sequence[Update]) -> dict[int, State]:
    """The state that each client's training made, by client."""
    return {
        update.client: trained(aggregator.pool[update.item.model].state, round, update.client) for update in updates
    }


def means_of(aggregator: Any, round: int, updates: Sequence[Update]) -> dict[str, State]:
    """What the runtime hands to aggregate beside the updates: each model's weighted mean."""
    states = trained_states(aggregator, round, updates)
    return {
        key: count_mean(
            aggregator.pool[key].state,
            [(states[u.client], None, aggregator.weight(u.item)) for u in updates if u.item.model == key],
        )
        for key in sorted({update.item.model for update in updates})
    }


def aggregate(aggregator: Any, round: int, updates: list[Update]) -> None:
    """The hook as the runtime calls it."""
    aggregator.aggregate(round, updates, means_of(aggregator, round, updates))


def play(aggregator: Any, round: int, losses: Any = 1.0, participants: Sequence[int] | None = None) -> dict[str, Any]:
    """One round of the hooks; the internals that it recorded, by way of JSON."""
    aggregator._internals = {}
    clients = np.array(participants if participants is not None else range(1, aggregator.task.num_clients + 1))
    items = aggregator.assign(round, clients)
    aggregate(aggregator, round, updates_for(aggregator, items, losses))
    aggregator.evolve(round)
    return json.loads(json.dumps(plain(aggregator._internals)))


def pool_states(aggregator: Any) -> dict[str, State]:
    """A copy of every model's state by key."""
    return {model.key: {name: value.clone() for name, value in model.state.items()} for model in aggregator.pool}


def equal(one: State, other: State) -> bool:
    """Bitwise equality of two states."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def judged_right(module: nn.Module, data: ClientSamples, settings: Namespace) -> ClientSamples:
    """The same samples with labels that the network gets right by BatchNorm's statistics of the training part."""
    training, _ = hold_out(len(data), settings.held_out, settings.seed, settings.client_id)
    seen = bn_statistics.sums(module, [data.x[part] for part in in_batches(training, settings.test_bsz)])
    module.load_state_dict(bn_statistics.with_statistics(module.state_dict(), seen))
    with torch.no_grad():
        return ClientSamples(data.x, module.eval()(data.x).argmax(1))
