"""Executors return nothing of the models that clients keep to themselves, and the job is the same to the last bit."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, chain, result

import fedscale_ext
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator
from fedscale_ext.methods.exchange.tensor_exchange import TensorExchangeAggregator
from fedscale_ext.methods.personal.local import LocalAggregator
from fedscale_ext.server.method_base.method_traits import Feature, exclusion
from fedscale_ext.tasks import train
from fedscale_ext.tasks.train import Train

TYPES = {"types": ["single_exit_mlp", "cnn_small"], "ranges": ["1-4", "5-7"]}
METHODS: dict[str, dict[str, Any]] = {
    "local": {"model": "cnn_small"},
    "lgfedavg": {**{f"lgfedavg.{name}": value for name, value in TYPES.items()}, "lgfedavg.representation": 8},
}
CLASSES = {"local": LocalAggregator, "lgfedavg": TensorExchangeAggregator}


def job(job_file: Path, name: str, method: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, method=method, num_participants=7, rounds=2, **METHODS[method], **keys)
    logs = job_file.parent / "logs" / name / "logs"
    return {**result(logs), "chain": chain(logs)}


@pytest.mark.parametrize("method", METHODS)
def test_a_job_whose_executors_add_nothing_up_equals_one_whose_do(
    method: str, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the states of personal models are added up")

    names: set[str] = set()
    plain_run = Train.run

    def watched(*arguments: Any) -> Any:
        answer, sections = plain_run(*arguments)
        names.update(name.partition("/")[0] for name in sections)
        return answer, sections

    monkeypatch.setattr(Train, "run", watched)
    with monkeypatch.context() as plain:
        plain.setattr(CLASSES[method], "needs_states", True)
        summed = job(job_file, "summed", method)
    assert "sum" in names
    names.clear()
    monkeypatch.setattr(train, "UnitSum", refuse)
    less = job(job_file, "less", method)
    assert names == ({"client_state"} if method == "local" else {"client_state", "returned"})
    assert_equal(summed, less)
    assert summed["chain"] == less["chain"]


def test_clients_that_diverge_fail_as_where_their_states_are_added_up(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one step: its loss is finite, the state is not
    keys = {"learning_rate": 3e38, "client_weight_decay": 1e4, "local_steps": 1}
    with (
        monkeypatch.context() as plain,
        pytest.raises(UserError, match="weights of 7 of 7 clients are not finite") as summed,
    ):
        plain.setattr(LocalAggregator, "needs_states", True)
        job(job_file, "summed", "local", **keys)
    with pytest.raises(UserError) as less:
        job(job_file, "less", "local", **keys)
    assert str(less.value) == str(summed.value)


def test_such_a_method_has_no_option_that_reads_states() -> None:
    methods = [method_class(name) for name in method_names()]
    keeping = [each for each in methods if not each.needs_states]
    assert any(issubclass(each, LogitsExchangeAggregator) for each in keeping)
    for each in keeping:
        assert each.reduces and exclusion(each, Feature.CHANGES) and exclusion(each, Feature.PRIVACY), each
