"""What a method's hooks answer is checked: a slip of its author is one sentence that names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "returns None; it must be a list of WorkItem"),
        ({1: WorkItem(1, "global")}, "returns a value of type int in its list; it must be a WorkItem"),
        ([(1, "global")], "returns a value of type tuple in its list; it must be a WorkItem"),
        ([WorkItem("1", "global")], "names client '1', and clients are 1 to 7"),
        ([WorkItem(2, "global"), WorkItem(2, "global")], "has two items of model 'global' for client 2; a client "
         "trains a model once in a round"),
        ([WorkItem(3, "global", {"x": np.arange(3)})], "gives client 3 an objective that is no JSON: Object of type "
         "ndarray is not JSON serializable"),
        ([WorkItem(3, "global", {"x": float("nan")})], "gives client 3 an objective that is no JSON: Out of range "
         "float values are not JSON compliant"),
        ([WorkItem(3, "global", {}, {"learning_rate": "x"})], "gives client 3 the override learning_rate='x'; it must "
         "be a number"),
        ([WorkItem(3, "global", {}, {"local_steps": 0})], "gives client 3 the override local_steps=0; it must be "
         "greater than or equal to 1"),
    ],
    ids=["none", "dict", "tuple", "text", "twice", "array", "nan", "type", "steps"],
)  # fmt: skip
def test_what_assign_cannot_return(job_file: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: str) -> None:
    assert error_message(job_file, monkeypatch, "assign", lambda *_: answer) == f"assign of method fedavg {sentence}"


@pytest.mark.parametrize("weight", [None, "1", torch.tensor(2.0), float("nan"), float("inf"), -1.0])
def test_a_weight_that_is_no_number_from_zero(job_file: Path, monkeypatch: pytest.MonkeyPatch, weight: Any) -> None:
    sentence = error_message(job_file, monkeypatch, "weight", lambda *_: weight)
    assert sentence.startswith("weight of method fedavg returns ")
    assert sentence.endswith("; it must be a finite number, at least 0")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "returns None; it must be a bool array of who may be selected, and how many count"),
        ((np.ones(7, dtype=bool), 2.5), "returns 2.5 as how many count; it must be a whole number, at least 0"),
        ((np.ones(7, dtype=bool), -1), "returns -1 as how many count; it must be a whole number, at least 0"),
        (([True] * 7, 2), "returns a value of type list; it must be a bool array with an entry for each of 7 clients"),
        ((np.ones(2, dtype=bool), 2), "returns an array of shape [2] in bool; it must be a bool array with an entry "
         "for each of 7 clients"),
        ((np.arange(1, 8), 2), "returns an array of shape [7] in int64; it must be a bool array with an entry "
         "for each of 7 clients"),
    ],
    ids=["none", "fraction", "negative", "list", "short", "ids"],
)  # fmt: skip
def test_candidates_that_are_no_mask_and_number(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: str
) -> None:
    said = error_message(job_file, monkeypatch, "candidates", lambda *_: answer)
    assert said == f"candidates of method fedavg {sentence}"


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (None, "evaluation_plan of method fedavg returns None; it must be an EvaluationPlan"),
        (["global"] * 7, "evaluation_plan of method fedavg returns a value of type list; it must be an EvaluationPlan"),
        (EvaluationPlan("global+"), "evaluation_plan().serve of method fedavg is 'global+'; it must be a list of keys"),
        (EvaluationPlan(None), "evaluation_plan().serve of method fedavg is None; it must be a list of keys"),
        (EvaluationPlan(["global"] * 6 + [None]), "evaluation_plan().serve of method fedavg has None for client 7; it "
         "must be a model's key"),
        (EvaluationPlan(["global"] * 7, ["global"]), "evaluation_plan().named of method fedavg is a value of type "
         "list; it must be a dict of keys by title"),
        (EvaluationPlan(["global"] * 7, {"best": None}), "evaluation_plan().named of method fedavg has None for "
         "'best'; it must be a model's key"),
    ],
    ids=["none", "list", "text", "serve", "key", "named", "named_key"],
)  # fmt: skip
def test_what_is_no_plan(job_file: Path, monkeypatch: pytest.MonkeyPatch, plan: Any, sentence: str) -> None:
    assert error_message(job_file, monkeypatch, "evaluation_plan", lambda _: plan) == sentence


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "returns None; it must be a dict of tensors, and a dict of JSON values"),
        ({"a": torch.ones(1)}, "returns a value of type dict; it must be a dict of tensors, and a dict of JSON values"),
        (({"a": np.ones(1)}, {}), "returns an array of shape [1] in float64 as 'a'; it must be a tensor"),
        (({}, {"a": {1, 2}}), "returns what a checkpoint cannot hold: Object of type set is not JSON serializable"),
        (({}, {"a": np.int64(3)}), "returns what a checkpoint cannot hold: Object of type int64 is not JSON "
         "serializable"),
        (({}, {"a": {1: 2}}), "returns what a checkpoint cannot hold: data['components']['method']['a'] has the key 1; "
         "JSON keys are text"),
    ],
    ids=["none", "dict", "array", "set", "number", "key"],
)  # fmt: skip
def test_a_state_that_no_checkpoint_holds(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: str
) -> None:
    assert error_message(job_file, monkeypatch, "state", lambda _: answer) == f"state of method fedavg {sentence}"


@pytest.mark.parametrize(("hook", "answer"), [("finished", True), ("finished", 5), ("phase", 5)])
def test_what_is_no_text(job_file: Path, monkeypatch: pytest.MonkeyPatch, hook: str, answer: Any) -> None:
    sentence = error_message(job_file, monkeypatch, hook, lambda *_: answer)
    assert sentence == f"{hook} of method fedavg returns {answer}; it must be text or None"


@pytest.mark.parametrize("hook", ["lineage", "results"])
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "returns None; it must be a dict of JSON values"),
        ([1], "returns a value of type list; it must be a dict of JSON values"),
        ({"a": object()}, "returns what is no JSON: object cannot be written as JSON"),
    ],
    ids=["none", "list", "object"],
)
def test_what_no_summary_holds(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, hook: str, answer: Any, sentence: str
) -> None:
    assert error_message(job_file, monkeypatch, hook, lambda _: answer) == f"{hook} of method fedavg {sentence}"


def test_numbers_of_numpy_are_numbers(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digests(numpy: bool) -> list[dict[str, Any]]:
        number, real = (np.int64, np.float32) if numpy else (int, float)

        def assign(_: Any, round: int, participants: np.ndarray) -> list[WorkItem]:
            settings = {"prox_mu": real(0.5), "local_steps": number(1)}
            return [
                WorkItem(number(client), "global", {"x": number(3)}, settings, compute_fraction=real(0.5))
                for client in participants
            ]

        monkeypatch.setattr(FedAvgAggregator, "assign", assign)
        monkeypatch.setattr(FedAvgAggregator, "weight", lambda _, item: real(item.client))
        result = fedscale_ext.run(job_file, rounds=1, model="cnn_small", job_name=f"job_{numpy}")
        return [json.loads(line) for line in (result.path / "metrics.jsonl").read_text().splitlines()]

    assert [line["digests"]["models"] for line in digests(True)] == [
        line["digests"]["models"] for line in digests(False)
    ]
