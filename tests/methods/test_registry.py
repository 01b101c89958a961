"""Methods are found by name, in other packages too, each with the executor it asks for."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedscale_ext import methods
from fedscale_ext.errors import UserError
from fedscale_ext.methods import executor_class, method_class, method_names
from fedscale_ext.methods.fedavg import FedAvgAggregator
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.runtime.aggregator import MultiModelAggregator
from fedscale_ext.runtime.executor import MultiModelExecutor


def registered(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = [EntryPoint(name, value, methods.GROUP) for name, value in places.items()]
    monkeypatch.setattr(methods, "entry_points", lambda group: points if group == methods.GROUP else [])


def test_built_in_methods_are_found_without_the_packages_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    assert method_names() == [
        "depthfl", "dsfl", "fedadam", "fedavg", "feddf", "fedet", "fedgems", "fedmask", "fedmd", "fednas", "fedoras",
        "fedprox", "fedrolex", "fedskel", "fedtrans", "fedyogi", "fjord", "fluid", "hermes", "heterofl", "hypemefed",
        "lotteryfl", "moss", "qfedavg", "scalefl", "spider", "splitmix", "tailorfl", "zerofl",
    ]  # fmt: skip
    assert method_class("fedtrans") is FedTransAggregator


def test_another_packages_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, theirs="fedscale_ext.methods.fedavg:FedAvgAggregator")
    assert "theirs" in method_names()
    assert method_class("theirs") is FedAvgAggregator


def test_setup_registers_exactly_the_built_in_methods() -> None:
    text = Path(__file__).resolve().parents[2].joinpath("setup.py").read_text(encoding="utf-8")
    for name, place in methods._BUILT_IN.items():
        assert f'"{name}={place}"' in text


def test_every_name_leads_to_an_aggregator_with_hyperparameters():
    assert {"fedavg", "fedprox", "fedyogi", "fedtrans"} <= set(method_names())
    for name in ("fedavg", "fedprox", "fedyogi", "fedtrans", "splitmix", "fluid"):
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
