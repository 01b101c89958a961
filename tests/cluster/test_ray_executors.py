"""What executors on Ray ask for, and what becomes of one that ends, without Ray."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedscale_ext.cluster import ray_executors
from fedscale_ext.cluster.ray_executors import ANY, _bring, _node, aggregator_address, crew, shares
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError


def config(*workers: str, **flat: Any):
    return make_config({"ps_ip": flat.pop("ps_ip", "10.0.0.1"), "worker_ips": list(workers)}, flat)


def test_executors_share_gpus_as_the_counts_say():
    assert shares(config("a:[2,4]", "any:[1]", use_cuda=True)) == [*[("a", 0.5)] * 2, *[("a", 0.25)] * 4, ("any", 1.0)]
    assert shares(config("any:[3]", use_cuda=False)) == [("any", 0.0)] * 3


def test_an_executor_stays_on_the_node_that_is_named_by_address_or_name():
    nodes = ray_executors._nodes([
        {"Alive": True, "NodeManagerHostname": "one", "NodeManagerAddress": "10.0.0.1"},
        {"Alive": False, "NodeManagerHostname": "two", "NodeManagerAddress": "10.0.0.2"},
    ])  # fmt: skip
    assert _node("one", nodes) == _node("10.0.0.1", nodes) == {"node:10.0.0.1": 0.001}
    assert _node(ANY, nodes) == {}
    with pytest.raises(UserError, match=r"worker_ips names two, which is no node of the Ray cluster \(10.0.0.1, one\)"):
        _node("two", nodes)


def test_the_aggregator_listens_where_other_nodes_reach_it(monkeypatch):
    monkeypatch.setattr(ray_executors, "host_address", lambda: "10.1.1.1")
    assert aggregator_address(config(ps_ip="127.0.0.1")) == "10.1.1.1"
    assert aggregator_address(config(ps_ip="10.0.0.1")) == "10.0.0.1"


def test_what_ray_cannot_do_is_refused(monkeypatch):
    monkeypatch.setattr(ray_executors, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Ray is not installed: run pip install 'fedscale_ext\[ray\]'"):
        crew("auto")
    monkeypatch.setattr(ray_executors, "find_spec", lambda name: object())
    with pytest.raises(UserError, match="is a client's address"):
        crew("ray://head:10001")
    with pytest.raises(UserError, match="--ray 'head' is no address"):
        crew("head")
    with pytest.raises(UserError, match=r"worker_ips names any without slots: write any:\[n\]"):
        crew("auto").command(config("any"), 1, "token")
    with pytest.raises(UserError, match="worker_ips asks for no executors"):
        crew("auto").command(config(), 1, "token")


def test_rays_lines_in_the_log_do_not_show_the_token():
    assert repr(ray_executors.Executor(["a:1", "--number", "3"], b"secret", "/")) == "executor 3"


class _Actor:
    """An actor whose ends are written down beforehand."""

    def __init__(self, name: str, *ends: Any) -> None:
        self.name, self.ends, self.pauses = name, list(ends), []
        self.work = SimpleNamespace(remote=self._work)

    def _work(self, pause_s: float) -> tuple[str, Any]:
        self.pauses.append(pause_s)
        return (self.name, self.ends.pop(0)) if self.ends else (self.name, None)


class _Ray:
    """What of Ray is used while actors work; those without a further end go on."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self) -> None:
        self.left: list[tuple[int, float | None]] = []

    def wait(self, refs: list[Any], num_returns: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        done = [ref for ref in refs if ref[1] is not None][:num_returns]
        if timeout is not None:
            self.left.append((num_returns, timeout))
        return done, []

    def get(self, ref: tuple[str, Any]) -> Any:
        if isinstance(ref[1], Exception):
            raise ref[1]
        return ref[1]


def test_one_that_dies_joins_again_after_growing_pauses_until_the_job_is_over():
    actor = _Actor("a", (1, "lost"), (-9, ""), (1, "lost"), (1, "lost"), (0, "over"))
    _bring(_Ray(), [actor])
    assert actor.pauses == [0.0, 1.0, 5.0, 30.0, 30.0]


def test_the_others_have_a_moment_to_leave():
    ray = _Ray()
    _bring(ray, [_Actor("a", (0, "over")), _Actor("b")])
    assert ray.left == [(1, ray_executors._LEAVE_S)]


def test_one_that_cannot_join_is_given_up_with_its_reason_and_the_last_one_ends_the_job(monkeypatch, capsys):
    monkeypatch.setenv("FEDSCALE_EXT_EVENTS", "1")
    with pytest.raises(UserError, match="no module"):
        _bring(_Ray(), [_Actor("a", (2, "other data")), _Actor("b", RuntimeError("it died:\nno module"))])
    assert '"message": "an executor on Ray cannot join and is given up: other data"' in capsys.readouterr().out
