"""Files of clients' tensors that threads write: whole when they are read, and on the disk before a checkpoint."""

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
import torch

from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.tasks import client_files
from fedscale_ext.tasks.client_files import ClientFiles, newest_file
from fedscale_ext.tasks.client_tensors import ClientState, ReadTensors
from fedscale_ext.transport import wire
from fedscale_ext.util.tensor_files import in_memory, read_section, write_section, write_tensors

KEY = "model: a"


def tensors(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(4, 3, 2, 2, generator=generator).contiguous(memory_format=torch.channels_last),
        "bias": torch.randn(4, generator=generator),
        "count": torch.tensor(seed),
    }


def same(one: State | None, other: State) -> bool:
    return one is not None and one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Gate:
    """Holds threads that write until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.began = threading.Event(), threading.Semaphore(0)
        monkeypatch.setattr(client_files, "write_section", self)

    def __call__(self, path: Path, section: wire.Section, metadata: dict[str, str]) -> str:
        self.began.release()
        assert self.opened.wait(60)
        return write_section(path, section, metadata)


def test_a_section_is_written_as_its_tensors_are(tmp_path: Path) -> None:
    digests = [
        write_tensors(tmp_path / "plain", tensors(1), {"client": "1"}),
        write_section(tmp_path / "section", memoryview(wire.tensors_to_bytes(tensors(1))), {"client": "1"}),
    ]
    assert digests[0] == digests[1]
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "section").read_bytes()
    assert same(wire.bytes_to_tensors(read_section(tmp_path / "section")), tensors(1))


def test_what_a_round_writes_counts_from_its_end_on_and_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ClientFiles(tmp_path / "kept", 3)
    files.write(1, KEY, 2, tensors(1))
    files.end_round()
    files.digests(1)
    gate = Gate(monkeypatch)
    changed = tensors(2)
    files.write(2, KEY, 2, changed)
    changed["bias"].zero_()  # what is written is what it was
    assert same(files.read(KEY, 2), tensors(1))
    files.end_round()
    gate.opened.set()
    assert same(files.read(KEY, 2), tensors(2)) and same(files.newest(KEY, 2), tensors(2))
    section = files.section(KEY, 2)
    assert section is not None and same(wire.bytes_to_tensors(section), tensors(2))
    assert files.section(KEY, 1) is None and files.section("another", 1) is None
    assert list(files.digests(2)) == ["kept/model%3A a/2-000002.safetensors"]
    assert same(newest_file(tmp_path / "kept", KEY, 2, 2), tensors(2))


@pytest.mark.parametrize("what", ["digests", "state"])
def test_files_are_on_the_disk_when_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    files, gate = ClientFiles(tmp_path, 3), Gate(monkeypatch)
    files.write(1, KEY, 1, tensors(1))
    files.end_round()
    assert gate.began.acquire(timeout=60)
    assert not list(tmp_path.glob("*/*"))
    threading.Timer(0.01, gate.opened.set).start()
    files.digests(1) if what == "digests" else files.state()
    assert [path.name for path in tmp_path.glob("*/*")] == ["1-000001.safetensors"]


@pytest.mark.parametrize("drop", [lambda files: files.drop_unneeded([1]), lambda files: files.drop_after(1)])
def test_a_file_that_goes_is_not_written_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: Callable[[ClientFiles], None]
) -> None:
    files = ClientFiles(tmp_path, 1)
    files.write(1, KEY, 1, tensors(1))
    files.end_round()
    files.finish()
    gate = Gate(monkeypatch)
    files.write(2, KEY, 1, tensors(2))
    files.end_round()
    threading.Timer(0.01, gate.opened.set).start()
    drop(files)
    files.finish()
    assert [path.name for path in tmp_path.glob("*/*")] == ["1-000001.safetensors"]


def test_the_last_of_two_writes_in_a_round_stays(tmp_path: Path) -> None:
    files = ClientFiles(tmp_path, 1)
    for seed in range(20):
        files.write(1, KEY, 1, tensors(seed))
    files.end_round()
    assert same(files.read(KEY, 1), tensors(19))


def test_what_waits_to_be_written_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, gate = ClientFiles(tmp_path, 9), Gate(monkeypatch)
    monkeypatch.setattr(client_files, "_MOST_BYTES", 2 * len(in_memory(tensors(0))))
    for client in (1, 2):
        files.write(1, KEY, client, tensors(client))
    third = threading.Thread(target=files.write, args=(1, KEY, 3, tensors(3)), daemon=True)
    third.start()
    third.join(0.05)
    assert third.is_alive()
    gate.opened.set()
    third.join(60)
    files.end_round()
    assert len(files.digests(1)) == 3


def test_a_file_that_cannot_be_written_ends_the_round(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    files = ClientFiles(tmp_path / "kept", 1)
    files.write(1, KEY, 1, tensors(1))
    with pytest.raises(OSError, match="kept"):
        files.digests(1)


def test_a_clients_section_is_written_as_it_came_if_it_is_as_we_write_it(tmp_path: Path) -> None:
    client_state, item = ClientState(tmp_path, 2, {KEY: tensors(0)}), WorkItem(1, KEY)
    ours = wire.tensors_to_bytes(tensors(1))
    new = client_state.checked(item, memoryview(ours))
    assert isinstance(new, ReadTensors) and same(dict(new), tensors(1))
    head = int.from_bytes(ours[:8], "little")
    odd = (head + 8).to_bytes(8, "little") + ours[8 : 8 + head] + b" " * 8 + ours[8 + head :]
    other = client_state.checked(item, odd)
    assert not isinstance(other, ReadTensors) and same(other, tensors(1))
    written = []
    for round, state in enumerate((new, other), 1):
        client_state.take(round, item, state)
        client_state.end_round()
        written.append(client_state.sections([item, WorkItem(2, KEY)]))
        assert written[-1].keys() == {"client_state/0"}
        assert same(wire.bytes_to_tensors(written[-1]["client_state/0"]), tensors(1))
    sizes = {len(each["client_state/0"]) for each in written}
    assert len(sizes) == 1


class Unlisted(dict[tuple[str, int], list[int]]):
    """Files by client, of which nobody looks at all."""

    def items(self) -> NoReturn:  # type: ignore[override]
        pytest.fail("looked at all clients")

    __iter__ = values = keys = items  # type: ignore[assignment]


def test_no_more_clients_than_those_that_wrote_are_looked_at_while_all_checkpoints_stay(tmp_path: Path) -> None:
    files = ClientFiles(tmp_path / "tensors", 3)
    files._versions = Unlisted()
    ends = []
    for round in range(1, 5):
        for client in {1: (1, 2), 2: (1,), 3: (1, 2), 4: (2,)}[round]:
            files.write(round, KEY, client, tensors(round))
        files.end_round()
        if round % 2 == 0:
            ends.append(round)
            files.drop_unneeded(ends)
    names = sorted(path.name for path in tmp_path.glob("*/*/*"))
    assert names == ["1-000002.safetensors", "1-000003.safetensors", "2-000001.safetensors", "2-000004.safetensors"]


@pytest.mark.parametrize("seed", range(12))
def test_exactly_the_files_that_a_checkpoint_needs_stay(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    interval, keep, rounds, clients = random.randint(1, 3), random.choice([1, 2, 4, 99]), 16, 4
    files = ClientFiles(tmp_path / "tensors", clients)
    written: dict[int, list[int]] = {client: [] for client in range(1, clients + 1)}
    ends: list[int] = []
    for round in range(1, rounds + 1):
        for client in random.sample(range(1, clients + 1), 2):
            files.write(round, KEY, client, tensors(round))
            written[client].append(round)
        files.end_round()
        if round == rounds // 2 and random.random() < 0.5:  # the job is resumed from its last checkpoint
            files.finish()
            last = ends[-1] if ends else 0
            files = ClientFiles(tmp_path / "tensors", clients)
            files.drop_after(last)
            written = {client: [each for each in rounds if each <= last] for client, rounds in written.items()}
        if round % interval == 0:
            ends = [*ends, round][-keep:]
            files.drop_unneeded(ends)
            needed = {
                f"{client}-{max(each for each in rounds if each <= end):06d}.safetensors"
                for client, rounds in written.items()
                for end in ends
                if min(rounds, default=end + 1) <= end
            }
            assert {path.name for path in tmp_path.glob("*/*/*")} == needed
