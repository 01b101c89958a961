"""What reads bytes of others: for each reader, hostile inputs made from good ones, and the only errors it may raise.

An input ends as taken or refused. Any other exception is a finding and comes out of :func:`attempt`.
"""

import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fedscale.cloud import commons

from evals.reliability.corpus import SIZES, Corpus
from evals.reliability.mutate import mutated, rewritten, tensors_rewritten
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import EvaluationPlan, Task, WorkItem
from fedscale_ext.data.layout.sample_csv import read_sample_csv
from fedscale_ext.population.traces.reading import read_availability, read_capacity
from fedscale_ext.server.round.collect import Collector
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks import calibrate
from fedscale_ext.tasks.evaluate import Gathered
from fedscale_ext.tasks.evaluation_figures import COLUMNS
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport import wire
from fedscale_ext.transport.registration import read_registration
from fedscale_ext.transport.signing import Gate, Refused, Signer
from fedscale_ext.transport.units import Unit

TOKEN = bytes(range(32))
METHOD = "/fedscale.JobService/CLIENT_EXECUTE_COMPLETION"
_NOW_S = 1_000_000.0


@dataclass(frozen=True)
class Reader:
    """``make`` draws an input; ``read`` takes it in or raises one of ``refusals``."""

    make: Callable[[Random], Any]
    read: Callable[[Any], None]
    refusals: tuple[type[Exception], ...] = (wire.WireError,)


def attempt(reader: Reader, random: Random) -> bool:
    """Whether a new input was taken; raises what the reader must not raise."""
    data = reader.make(random)
    try:
        reader.read(data)
    except reader.refusals:
        return False
    return True


def readers(corpus: Corpus, folder: Path) -> dict[str, Reader]:
    """The readers of the wire and of the files that users bring, by name. ``folder`` holds the files."""
    return {
        "header and sections": Reader(lambda random: _message(random, corpus.messages), _read_message),
        "tensors": Reader(lambda random: _section(random, corpus.sections), _read_tensors),
        "registration": Reader(
            lambda random: _message(random, corpus.registrations, corpus.messages), _read_registration
        ),
        "result": Results(corpus).reader(),
        "signature": Signatures().reader(),
        **_files(folder),
    }


def _message(random: Random, seeds: Sequence[bytes], others: Sequence[bytes] | None = None) -> bytes:
    change = rewritten if random.random() < 0.6 else mutated
    return change(random, random.choice(seeds), others or seeds)


def _section(random: Random, seeds: Sequence[bytes]) -> bytes:
    section = random.choice(seeds)
    return tensors_rewritten(random, section) if random.random() < 0.6 else mutated(random, section, seeds)


def _read_message(message: bytes) -> None:
    header, sections = wire.unpack(message)
    size = sum(map(len, sections.values()))
    assert isinstance(header, dict) and size < len(message)
    assert b"".join(sections.values()) == message[len(message) - size :]


def _read_tensors(section: bytes) -> None:
    for tensor in wire.bytes_to_tensors(section).values():
        assert tensor.nbytes <= len(section)


def _read_registration(message: bytes) -> None:
    info = read_registration(message)
    assert info.train_sizes.shape == info.test_sizes.shape and info.train_sizes.dtype == np.int64
    assert len(info.data["input_shape"]) == 3 and info.versions["torch"] is not None


class Results:
    """Results of units, from their bytes to what the aggregator keeps: collected, gathered, or chosen from."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._test_sizes = read_registration(corpus.registrations[0]).test_sizes
        self._task = Task((1, 28, 28), 62, np.array(SIZES), self._test_sizes, 1, 4)
        self._pool = ModelPool()
        for reply in corpus.replies:
            header, sections = wire.unpack(reply)
            for key, model in header["models"].items():
                if key in sections and key not in self._pool:
                    spec = ModelSpec.from_json(model["spec"])
                    self._pool.add(key, spec, wire.bytes_to_tensors(sections[key]))

    def reader(self) -> Reader:
        """Makes a pair of a unit and a message."""
        return Reader(self._make, self._read)

    def _make(self, random: Random) -> tuple[Unit, bytes]:
        unit, message = random.choice(self._corpus.results)
        if random.random() < 0.05:  # the good result of another unit
            return unit, random.choice(self._corpus.results)[1]
        return unit, _message(random, [message], self._corpus.messages)

    def _read(self, pair: tuple[Unit, bytes]) -> None:
        unit, message = pair
        header, sections = wire.unpack(message)
        check_answer(kinds_by_event(), unit, header, sections, self._test_sizes)
        self.use(unit, header, sections)

    def use(self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section]) -> None:
        """What the aggregator's main thread does with a result that was let in."""
        if unit.event == commons.CLIENT_TRAIN:
            items = [WorkItem(item["client"], item["model"], item["objective"]) for item in unit.header["items"]]
            weights = {item["client"]: item["weight"] for item in unit.header["items"]}
            config = SimpleNamespace(job=SimpleNamespace(max_update_norm=None))
            job: Any = SimpleNamespace(config=config, pool=self._pool, task=self._task, returns="sum")
            collector = Collector(1, items, job, lambda item: weights[item.client], None)
            collector.take(items, header, sections)
            _, means = collector.close()
            assert all(
                bool(torch.isfinite(tensor).all()) for mean in means.values() for tensor in mean.state().values()
            )
            assert sum(collector.failed.values()) <= 2 * len(items)
        elif unit.event == commons.MODEL_TEST:
            gathered = Gathered(EvaluationPlan(unit.models * len(SIZES), {"global": unit.models[0]}), self._task)
            columns = wire.bytes_to_tensors(sections["figures"])
            figures = np.stack([columns[name].numpy() for name in COLUMNS], axis=1)
            gathered.add(unit.models[0], unit.header["clients"], figures)
            accuracy = gathered.evaluation(1).client_accuracy
            assert ((accuracy >= 0) & (accuracy <= 1)).all()
        else:
            assert calibrate.fastest(dict(header["seconds_by_size"])) in unit.header["sizes"]


class Signatures:
    """Stamps of another key, or changed ones: none may be let in."""

    def __init__(self) -> None:
        self._signer = Signer(TOKEN, "job")
        self._strangers = [Signer(bytes(32), "job"), Signer(TOKEN, "other"), Signer(b"", "job")]

    def reader(self) -> Reader:
        """Raises AssertionError for a forgery that was let in."""
        return Reader(self._make, self._read, (Refused,))

    def _make(self, random: Random) -> bytes:
        body = random.randbytes(20)
        by = self._signer if random.random() < 0.7 else random.choice(self._strangers)
        stamp, _ = by.stamp(METHOD, random.choice([0, 1, 2, 3, 2**32 - 1]), body, int(1000 * _NOW_S))
        if by is not self._signer and random.random() < 0.5:
            return stamp
        changed = mutated(random, stamp, [stamp, bytes(len(stamp))])
        return changed if changed != stamp else stamp[:-1] + bytes([stamp[-1] ^ 1])

    def _read(self, stamp: bytes) -> None:
        Gate(self._signer, Signer(TOKEN, ""), 120.0, lambda: _NOW_S).admit(METHOD, stamp)
        raise AssertionError(f"a forgery was let in: {stamp.hex()}")


def _files(folder: Path) -> dict[str, Reader]:
    """Traces of devices in their three forms, and the csv of samples."""
    capacity = {client: {"computation": 20.0 + client, "communication": 5000.5} for client in range(1, 6)}
    online = {client: {"active": [0, 50], "inactive": [20, 70], "finish_time": 100} for client in range(1, 4)}
    table = b"client_id,computation,communication\n" + b"".join(b"%d,20.5,5000\n" % client for client in range(1, 6))
    times = b"client_id,active,inactive,finish_time\n1,0,20,100\n1,50,70,100\n2,5,9.5,100\n"
    samples = b"client_id,sample_path,label_name,label_id\nw1,a.png,a,0\nw1,b.png,b,1\nw2,a.png,a,0\n"
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(b"no image: the csv's reader opens none")
    with tempfile.TemporaryFile() as file:
        np.savez(
            file, client_id=np.arange(1, 6), computation_ms_per_sample=np.full(5, 20.5), communication_kbps=np.ones(5)
        )
        file.seek(0)
        arrays = file.read()
    seeds: dict[str, tuple[list[bytes], str, Callable[[Path], Any]]] = {
        "capacity pickle": ([pickle.dumps(capacity, p) for p in range(6)], "capacity", read_capacity),
        "availability pickle": ([pickle.dumps(online, p) for p in range(6)], "availability", read_availability),
        "capacity csv": ([table], "capacity.csv", read_capacity),
        "availability csv": ([times], "availability.csv", read_availability),
        "capacity npz": ([arrays], "capacity.npz", read_capacity),
        "samples csv": ([samples], "samples.csv", lambda path: read_sample_csv(path, path.parent, 10)),
    }
    return {name: _file_reader(folder / file, files, read) for name, (files, file, read) in seeds.items()}


def _file_reader(path: Path, seeds: list[bytes], read: Callable[[Path], Any]) -> Reader:
    def take(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return Reader(lambda random: mutated(random, random.choice(seeds), seeds), take, (UserError,))
