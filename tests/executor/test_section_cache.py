"""What an executor keeps of its clients is not sent to it again, and a job is the same to the last bit."""

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from job_results import assert_equal, chain, result

import fedscale_ext
from fedscale_ext.core.types import WorkItem
from fedscale_ext.executor import executor as executor_module
from fedscale_ext.executor.section_cache import SectionCache
from fedscale_ext.methods.personal.local import INITIAL
from fedscale_ext.tasks.client_tensors import ClientState, section_name
from fedscale_ext.tasks.kind import CACHED, NOT_CACHED
from fedscale_ext.transport import wire
from fedscale_ext.transport.executor_link import Link
from fedscale_ext.transport.leases import ExecutorProcess

JOB = {
    "method": "local",
    "model": "cnn_small",
    "num_participants": 7,
    "filter_less": 0,
    "rounds": 3,
    "eval_interval": 2,
}


def test_sections_that_were_not_used_for_longest_make_room() -> None:
    cache = SectionCache(6)
    for label in "abc":
        cache.put(label, label.encode() * 2)
    assert cache.get({"first": "a", "second": "c"}) == {"first": b"aa", "second": b"cc"}
    cache.put("d", b"dd")  # b was not used since
    assert cache.get({"x": "b"}) is None and cache.get({"x": "a", "y": "b"}) is None
    assert cache.get({"x": "a", "y": "c", "z": "d"}) is not None
    cache.put("large", b"seven b")
    assert cache.get({"x": "large"}) is None and cache.get({"x": "a"}) is not None
    for label in "ab":
        cache.drop(label)
    cache.put("a", b"aa")
    assert cache.get({"x": "a", "y": "c", "z": "d"}) is not None and cache.get({}) == {}


class Messages:
    """Counts clients' states by round, ``sent`` to executors and ``cached`` there, and ``lacking`` units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[int] = Counter()
        self.cached: Counter[int] = Counter()
        self.lacking = 0
        self._plain: Callable[..., bytes] = wire.pack
        monkeypatch.setattr(wire, "pack", self)

    def __call__(self, header: Mapping[str, Any], sections: Mapping[str, bytes] | None = None) -> bytes:
        if CACHED in header:
            begin = section_name(ClientState.kind, "")
            self.sent[header["round"]] += sum(name.startswith(begin) for name in sections or ())
            self.cached[header["round"]] += len(header[CACHED])
        self.lacking += NOT_CACHED in header
        return self._plain(header, sections)


def job(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})
    logs = job_file.parent / "logs" / name / "logs"
    return {**result(logs), "chain": chain(logs)}


def test_a_section_that_comes_again_takes_its_room_once() -> None:
    sections = SectionCache(4)
    sections.put("a", b"aa")
    for _ in range(2):  # a unit whose message was lost is answered again
        sections.put("b", b"bb")
    assert sections.get({"x": "a", "y": "b"}) is not None


def test_a_clients_state_is_sent_to_nobody_who_has_it(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = Messages(monkeypatch)
    cached = job(job_file, "kept")
    # training from the second round on; tests after rounds 1, 2 and 3; one client has no test samples
    assert messages.sent.total() == 0 and messages.cached == {1: 6, 2: 7 + 6, 3: 7 + 6}
    assert messages.lacking == 0
    with monkeypatch.context() as plain:
        plain.setattr(ClientState, "cached", lambda self, items, process: {})
        sent = job(job_file, "sent")
    assert messages.sent == {1: 6, 2: 7 + 6, 3: 7 + 6}
    assert_equal(cached, sent)
    assert cached["chain"] == sent["chain"]


def test_an_executor_that_has_no_room_gets_its_units_whole(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = job(job_file, "kept")
    monkeypatch.setattr(executor_module, "SectionCache", lambda: SectionCache(300_000))  # of 207 kB each
    messages = Messages(monkeypatch)
    lacking = job(job_file, "lacking")
    assert messages.lacking > 0 and messages.sent.total() > 0
    assert_equal(cached, lacking)
    assert cached["chain"] == lacking["chain"]


def test_a_resumed_job_sends_each_state_once(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = job(job_file, "whole", eval_interval=9)
    job(job_file, "parts", eval_interval=9, rounds=1)
    messages = Messages(monkeypatch)
    parts = job(job_file, "parts", eval_interval=9, resume=True)
    assert messages.sent[2] == 7 and messages.cached[2] == 0
    assert messages.sent[3] == 0 and messages.cached[3] == 7 + 6
    del whole["rounds"][0]["evaluation"], parts["rounds"][0]["evaluation"]
    assert_equal(whole, parts)


def test_what_the_server_writes_itself_is_sent(tmp_path: Path) -> None:
    """As methods do that change what their clients keep."""
    state, process, items = (
        {"w": torch.ones(2)},
        ExecutorProcess("1", "a"),
        [WorkItem(1, INITIAL), WorkItem(2, INITIAL)],
    )
    client_state = ClientState(tmp_path, 2, {INITIAL: state})
    for item in items:
        client_state.take(1, item, state)
        client_state.set_cached(item, (process, f"label {item.client}"))
    assert client_state.cached(items, process) == {}  # the round is not over
    client_state.end_round()
    assert client_state.cached(items, process) == {"client_state/0": "label 1", "client_state/1": "label 2"}
    assert client_state.cached(items, ExecutorProcess("1", "b")) == {}  # another process of that number
    client_state.files.write(2, INITIAL, 1, {"w": torch.zeros(2)})
    client_state.take(2, items[1], state)
    client_state.set_cached(items[1], (ExecutorProcess("2", "c"), "another"))
    assert client_state.cached(items, process).keys() == {"client_state/0", "client_state/1"}
    client_state.end_round()
    assert client_state.cached(items, process) == {}
    assert client_state.cached(items, ExecutorProcess("2", "c")) == {"client_state/1": "another"}
    client_state.files.write(2, INITIAL, 2, {"w": torch.zeros(2)})  # as TailorFL does, once the round has ended
    client_state.files.end_round()
    assert client_state.cached(items, ExecutorProcess("2", "c")) == {}
    assert client_state.sections(items, {"client_state/1"}).keys() == {"client_state/0"}


def test_an_executor_without_work_holds_no_tensors_of_clients(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, complete = executor_module.MultiModelExecutor._answer, Link.complete
    came: list[weakref.ref[torch.Tensor]] = []
    held: list[int] = []

    def noting(self: Any, kind: Any, unit: Any) -> bytes:
        states = [state for by_index in unit.tensors.values() for state in by_index.values()]
        came.extend(weakref.ref(tensor) for state in states for tensor in state.values())
        del states
        return answer(self, kind, unit)

    def waiting(self: Link, request: Any) -> Any:
        held.append(sum(reference() is not None for reference in came))
        return complete(self, request)

    monkeypatch.setattr(executor_module.MultiModelExecutor, "_answer", noting)
    monkeypatch.setattr(Link, "complete", waiting)
    fedscale_ext.run(job_file, **JOB, progress=False)
    assert came and set(held) == {0}
