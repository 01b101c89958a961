"""No way leads from the network or a file to FedScale's own unpickling: shown on its code, and on running jobs."""

import ast
import inspect
import pickle
import sys
import textwrap
from pathlib import Path
from typing import Any, NoReturn

import pytest

import fedscale_ext
from fedscale_ext.executor.executor import Executor, MultiModelExecutor
from fedscale_ext.server.grpc_server import Aggregator, Coordinator, job_api_pb2_grpc

READS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "eval", "exec"}


def readers(cls: type) -> set[str]:
    """Names of the methods of a class of FedScale that unpickle or evaluate something."""
    names = set()
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if calls & READS:
            names.add(name)
    return names


@pytest.mark.parametrize(
    ("theirs", "ours", "known"),
    [
        (Aggregator, Coordinator, {"deserialize_response", "load_client_profile"}),
        (Executor, MultiModelExecutor, {"deserialize_response"}),
    ],
)
def test_each_inherited_method_that_unpickles_is_closed(theirs: type, ours: Any, known: set[str]) -> None:
    assert readers(theirs) == known
    assert not readers(ours)
    for name in known:
        with pytest.raises(RuntimeError, match="closed"):
            getattr(ours, name)(None, b"cos\nsystem\n.")


def test_every_call_of_the_service_is_our_own() -> None:
    calls = [name for name in vars(job_api_pb2_grpc.JobServiceServicer) if not name.startswith("_")]
    assert calls == ["CLIENT_REGISTER", "CLIENT_PING", "CLIENT_EXECUTE_COMPLETION"]
    for name in calls:
        assert getattr(Coordinator, name).__module__.startswith("fedscale_ext.")


class _Trap:
    """Stands where FedScale's modules have pickle."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"pickle.{name} was reached")


def test_a_job_unpickles_nothing(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trap(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a pickle was read")

    for name in ("load", "loads", "_load", "_loads"):
        monkeypatch.setattr(pickle, name, trap)
    for name in ("Unpickler", "_Unpickler"):  # a class: modules that are imported meanwhile may derive theirs
        monkeypatch.setattr(pickle, name, type(name, (), {"__init__": trap}))
    for module in (Aggregator.__module__, Executor.__module__, "fedscale.cloud.client_manager"):
        monkeypatch.setattr(sys.modules[module], "pickle", _Trap())
    summary = fedscale_ext.run(job_file, rounds=1, checkpoint_interval=1)
    assert summary["rounds"] == 1
    assert fedscale_ext.run(job_file, rounds=2, checkpoint_interval=1, resume=True)["rounds"] == 2
