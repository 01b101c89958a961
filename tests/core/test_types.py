import json
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from client_settings import client_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.client_config import FIELDS, OVERRIDABLE, ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Task, WorkItem


def test_an_objective_cannot_set_a_field_of_the_clients_configuration_in_passing() -> None:
    with pytest.raises(UserError, match="'prox_mu' is a field of the client's configuration; put it into overrides"):
        WorkItem(1, "global", {"smoothing": 0.1, "prox_mu": 0.1})
    item = WorkItem(1, "global", {"smoothing": 0.1}, {"prox_mu": 0.1})
    assert item.to_json() == {
        "client": 1, "model": "global", "objective": {"smoothing": 0.1}, "overrides": {"prox_mu": 0.1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "says"),
    [("prox_nu", "did you mean 'prox_mu'?"), ("smoothing", "goes into objective"), ("seed", "is none of")],
)
def test_overrides_are_fields_that_a_method_may_set(name: str, says: str) -> None:
    with pytest.raises(UserError, match="overrides of a work item") as error:
        WorkItem(1, "global", overrides={name: 1})
    assert says in str(error.value)


@pytest.mark.parametrize("name", ["objective", "overrides"])
def test_settings_of_a_work_item_are_a_dict(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} of a work item is a value of type NoneType; it must be a dict"):
        WorkItem(1, "global", **{name: None})


def test_numbers_of_numpy_become_pythons_in_a_work_item() -> None:
    item = WorkItem(np.int64(3), "global", {"x": np.float32(0.5)}, {"local_steps": np.int64(2)})  # type: ignore[arg-type]
    assert json.dumps(item.to_json())
    assert item == WorkItem(3, "global", {"x": 0.5}, {"local_steps": 2})


def test_a_clients_configuration_is_frozen_and_its_defaults_are_the_jobs() -> None:
    with pytest.raises(FrozenInstanceError):
        client_settings().learning_rate = 1.0  # type: ignore[misc]
    assert OVERRIDABLE < FIELDS
    keys = JobKeys()
    changed = {"client_weight_decay"}  # a client without a job decays nothing
    for field in fields(ClientConfig):
        if field.name in JobKeys.model_fields and field.name not in {"seed", *changed}:
            assert field.default == getattr(keys, field.name), field.name


def test_steps_follow_the_items_overrides() -> None:
    sizes = np.array([20, 7])
    task = Task((1, 28, 28), 10, sizes, sizes, local_steps=3, batch_size=5)
    assert task.local_training(1, {}) == (20, 5, 3, None)
    assert task.local_training(1, {"held_out": 0.25, "batch_size": 4, "local_epochs": 2}) == (15, 4, 8, 2)
    assert task.local_training(2, {"local_steps": 9}) == (7, 5, 9, None)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    epochs=st.none() | st.integers(1, 3),
    overrides=st.fixed_dictionaries({}, optional={
        "held_out": st.floats(0.0, 0.9), "batch_size": st.integers(1, 9), "local_steps": st.integers(1, 5),
        "local_epochs": st.integers(1, 3), "prox_mu": st.floats(0.0, 1.0),
    }),
)  # fmt: skip
def test_the_clock_counts_the_samples_that_the_steps_see(
    sizes: list[int], epochs: int | None, overrides: dict[str, Any]
) -> None:
    train = np.array(sizes)
    task = Task((1, 28, 28), 10, train, train, local_steps=4, batch_size=5, local_epochs=epochs)
    items = [WorkItem(client, "m", overrides=overrides) for client in (1, 2, 3)]
    seen = [task.step_sizes(client, overrides).sum() for client in (1, 2, 3)]
    assert task.samples_of(items).tolist() == seen
