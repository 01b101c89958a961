"""What a method's hooks answer is checked: a slip of its author is one sentence that names it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import EvaluationPlan, WorkItem
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator


def error_message(job_file: Path, monkeypatch: pytest.MonkeyPatch, hook: str, answer: Callable[..., Any]) -> str:
    """What the author hears whose hook answers so, in a job of the clients 1 to 7."""
    monkeypatch.setattr(FedAvgAggregator, hook, answer)
    with pytest.raises(UserError) as error:
        fedscale_ext.run(job_file, rounds=1, model="cnn_small", local_steps=1)
    return str(error.value)


def nothing(*_: Any) -> None:
    """Adds no model."""


@pytest.mark.parametrize(
    ("client", "model", "sentence"),
    [
        (3, "gobal", "assign of method fedavg names model 'gobal' for client 3, which the pool lacks; did you mean "
         "'global'?"),
        (3, "x", "assign of method fedavg names model 'x' for client 3, which the pool lacks; there are global"),
        (0, "global", "assign of method fedavg names client 0, and clients are 1 to 7"),
        (8, "global", "assign of method fedavg names client 8, and clients are 1 to 7"),
    ],
)  # fmt: skip
def test_an_item_of_a_model_or_client_that_there_is_not(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, client: int, model: str, sentence: str
) -> None:
    items = [WorkItem(2, "global"), WorkItem(client, model)]
    assert error_message(job_file, monkeypatch, "assign", lambda *_: items) == sentence


def test_a_method_whose_pool_stays_empty(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = error_message(job_file, monkeypatch, "init_state", nothing)
    assert said.endswith(", which the pool lacks; it is empty: init_state puts the first models there")


@pytest.mark.parametrize(
    ("serve", "named", "sentence"),
    [
        (["global"] * 5, {}, "evaluation_plan().serve of method fedavg has 5 entries, and there are 7 clients"),
        (["global"] * 10, {}, "evaluation_plan().serve of method fedavg has 10 entries, and there are 7 clients"),
        (["global"] * 6 + ["gobal"], {}, "evaluation_plan().serve of method fedavg names model 'gobal' for client 7, "
         "which the pool lacks; did you mean 'global'?"),
        (["global"] * 6 + ["global+half"], {}, "evaluation_plan().serve of method fedavg names model 'half' for client "
         "7, which the pool lacks; there are global"),
        (["global"] * 7, {"best": "gobal"}, "evaluation_plan().named of method fedavg names model 'gobal' for 'best', "
         "which the pool lacks; did you mean 'global'?"),
        (["global@own"] * 7, {}, "evaluation_plan().serve of method fedavg names 'global@own' for client 1, and "
         "client_tensors keeps no ClientState, which personal versions are made of"),
    ],
    ids=["short", "long", "serve", "ensemble", "named", "own"],
)  # fmt: skip
def test_a_plan_of_other_clients_or_models_than_there_are(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, serve: list[str], named: dict[str, str], sentence: str
) -> None:
    assert error_message(job_file, monkeypatch, "evaluation_plan", lambda _: EvaluationPlan(serve, named)) == sentence
