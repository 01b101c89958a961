"""Methods are found by name, each with the executor it asks for."""

import pytest

from fedscale_ext.errors import UserError
from fedscale_ext.methods import executor_class, method_class, method_names
from fedscale_ext.runtime.aggregator import MultiModelAggregator
from fedscale_ext.runtime.executor import MultiModelExecutor


def test_every_name_leads_to_an_aggregator_with_hyperparameters():
    assert {"fedavg", "fedprox", "fedyogi", "fedtrans"} <= set(method_names())
    for name in ("fedavg", "fedprox", "fedyogi", "fedtrans"):
        assert issubclass(method_class(name), MultiModelAggregator)
        assert executor_class(name) is MultiModelExecutor
        method_class(name).Params()


def test_a_method_may_bring_its_own_executor(monkeypatch):
    own = type("Own", (MultiModelExecutor,), {})
    monkeypatch.setattr(method_class("fedavg"), "Executor", own, raising=False)
    assert executor_class("fedavg") is own


def test_a_misspelt_method_gets_a_suggestion_and_a_strange_one_the_list():
    with pytest.raises(UserError, match=r"no method 'fedtran'; did you mean 'fedtrans'\?"):
        method_class("fedtran")
    with pytest.raises(UserError, match=r"no method 'xyz'; there are .*fedavg, .*fedtrans"):
        method_class("xyz")
