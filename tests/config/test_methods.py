"""Methods are found by name, in other packages too, each with the executor it asks for."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedscale_ext.config import methods
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.launch import executor_class
from fedscale_ext.executor.executor import MultiModelExecutor
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.server.aggregator import MultiModelAggregator


def registered(monkeypatch: pytest.MonkeyPatch, **paths: str) -> None:
    points = [EntryPoint(name, value, methods.GROUP) for name, value in paths.items()]
    monkeypatch.setattr(methods, "entry_points", lambda group: points if group == methods.GROUP else [])


def test_built_in_methods_are_found_without_the_packages_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    assert method_names() == [
        "depthfl", "dsfl", "fd", "fedadam", "fedavg", "feddf", "fedet", "fedgems", "fedgen", "fedgh", "fedkd",
        "fedl2g", "fedmask", "fedmd", "fedmrl", "fednas", "fedoras", "fedproto", "fedprox", "fedrolex", "fedskel",
        "fedtgp", "fedtrans", "fedyogi", "fjord", "fluid", "fml", "hermes", "heterofl", "hypemefed", "lgfedavg",
        "local", "lotteryfl", "moss", "qfedavg", "scalefl", "spider", "splitmix", "tailorfl", "zerofl",
    ]  # fmt: skip
    assert method_class("fedtrans") is FedTransAggregator


def test_another_packages_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, theirs="fedscale_ext.methods.averaging.fedavg:FedAvgAggregator")
    assert "theirs" in method_names()
    assert method_class("theirs") is FedAvgAggregator


def test_another_package_does_not_take_a_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, fedtrans="fedscale_ext.methods.averaging.fedavg:FedAvgAggregator")
    assert method_class("fedtrans") is FedTransAggregator


def test_every_name_leads_to_an_aggregator_with_hyperparameters():
    assert {"fedavg", "fedprox", "fedyogi", "fedtrans"} <= set(method_names())
    for name in ("fedavg", "fedprox", "fedyogi", "fedtrans", "splitmix", "fluid"):
        assert issubclass(method_class(name), MultiModelAggregator)
        assert executor_class(name) is MultiModelExecutor
        method_class(name).Params()


def test_a_method_may_bring_its_own_executor(monkeypatch):
    executor = type("Own", (MultiModelExecutor,), {})
    monkeypatch.setattr(method_class("fedavg"), "Executor", executor)
    assert executor_class("fedavg") is executor


def test_a_misspelt_method_gets_a_suggestion_and_a_strange_one_the_list():
    with pytest.raises(UserError, match=r"no method 'fedtran'; did you mean 'fedtrans'\?"):
        method_class("fedtran")
    with pytest.raises(UserError, match=r"no method 'xyz'; there are .*fedavg, .*fedtrans"):
        method_class("xyz")


def write_method(folder: Path, **files: str) -> Path:
    """The package ``damped``, whose modules hold ``files``."""
    package = folder / "damped"
    package.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("aggregator", "client", "where", "what"),
    [
        ("import torch\nimport torhc\n", "", "aggregator.py, line 2", "ModuleNotFoundError: No module named 'torhc'"),
        ("from .client import Own\n", "\n\nOwn = torch.nn\n", "client.py, line 3",
         "NameError: name 'torch' is not defined"),
        ("\nfrom fedscale_ext.core.types import WorkItm\n", "", "aggregator.py, line 2",
         "ImportError: cannot import name 'WorkItm' from 'fedscale_ext.core.types'"),
        ("import json\njson.loads('{')\n", "", "aggregator.py, line 2", "JSONDecodeError: Expecting property name"),
        ("from . import client\n", "def f(:\n    pass\n", "client.py, line 1", "SyntaxError: invalid syntax"),
        ("from fedscale_ext.method import MultiModelExecutor as Base\nclass Mine(Base):\n    client = 1\n", "",
         "aggregator.py, line 2", "TypeError: Mine names its clients' class; the aggregator's class does, as Client"),
    ],
    ids=["module", "neighbour", "name", "library", "syntax", "executor"],
)  # fmt: skip
def test_a_method_that_cannot_be_imported_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aggregator: str, client: str, where: str, what: str
) -> None:
    package = write_method(tmp_path, aggregator=aggregator, client=client)
    monkeypatch.syspath_prepend(tmp_path)
    registered(monkeypatch, damped="damped.aggregator:DampedAggregator")
    with pytest.raises(UserError) as error:
        method_class("damped")
    for name in [name for name in sys.modules if name.partition(".")[0] == "damped"]:
        del sys.modules[name]
    assert str(error.value).startswith(f"method damped cannot be loaded: {package}/{where}: {what}")


@pytest.mark.parametrize(
    ("entry_point", "what"),
    [
        ("nowhere_at_all.aggregator:Own", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("fedscale_ext.methods.averaging.fedavg:Own",
         "AttributeError: module 'fedscale_ext.methods.averaging.fedavg' has no attribute 'Own'"),
    ],
)  # fmt: skip
def test_an_entry_point_that_leads_nowhere_is_told(
    monkeypatch: pytest.MonkeyPatch, entry_point: str, what: str
) -> None:
    registered(monkeypatch, damped=entry_point)
    with pytest.raises(UserError, match=f"^method damped cannot be loaded: entry point {entry_point}: {what}$"):
        method_class("damped")
