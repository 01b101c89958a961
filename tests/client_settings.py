"""The configuration of a client's training, for tests that call the client without a job."""

from types import SimpleNamespace
from typing import Any

from fedscale_ext.core.client_config import FIELDS, ClientConfig
from fedscale_ext.core.model_spec import ModelSpec

NO_BENCH: Any = None  #: for clients that use no model but the one that they train


def bench_of(spec: ModelSpec, host: ModelSpec | None = None) -> Any:
    """An executor's models, for clients that ask for their model's spec only."""
    return SimpleNamespace(spec=lambda key: spec, host=lambda key: host or spec)


def client_settings(client: int = 3, **changes: Any) -> ClientConfig:
    """A configuration; ``changes`` are its fields, and entries of its objective."""
    fields: dict[str, Any] = {
        "seed": 1, "round": 1, "client_id": client, "model_key": "global", "local_steps": 6, "batch_size": 5,
        "learning_rate": 0.05, "client_momentum": 0.9, "client_weight_decay": 5e-4,
    }  # fmt: skip
    objective = {name: value for name, value in changes.items() if name not in FIELDS}
    fields |= {name: value for name, value in changes.items() if name in FIELDS}
    return ClientConfig(objective=objective, **fields)
