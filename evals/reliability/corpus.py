"""Real messages of a small job, recorded as they cross the channel: what the fuzzers start from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fedscale_ext import compat

compat.prepare()

from fedscale.cloud import commons  # noqa: E402

from fedscale_ext.config.job_config import JobConfig, make_config  # noqa: E402
from fedscale_ext.data.importing.importers import import_npz  # noqa: E402
from fedscale_ext.data.importing.options import NpzOptions  # noqa: E402
from fedscale_ext.entry import in_process  # noqa: E402
from fedscale_ext.tasks import calibrate  # noqa: E402
from fedscale_ext.transport import wire  # noqa: E402
from fedscale_ext.transport.executor_link import ALIVE  # noqa: E402
from fedscale_ext.transport.units import Unit  # noqa: E402

SIZES = (30, 25, 20, 15, 35, 4, 1)  # samples of the clients


@dataclass(frozen=True)
class Corpus:
    """Recorded messages. ``results`` are units with the bytes of their result; ``sections`` safetensors files."""

    registrations: Sequence[bytes]
    results: Sequence[tuple[Unit, bytes]]
    replies: Sequence[bytes]
    sections: Sequence[bytes]

    @property
    def messages(self) -> list[bytes]:
        """All that is a message of the wire."""
        return [*self.registrations, *(message for _, message in self.results), *self.replies]


def tiny_data(folder: Path) -> Path:
    """Seven generated clients in FEMNIST's layout."""
    rng = np.random.default_rng(5)
    client = np.repeat(np.arange(len(SIZES)), SIZES)
    arrays = {
        "x": rng.integers(0, 255, (len(client), 28, 28)).astype(np.uint8),
        "y": rng.integers(0, 4, len(client)),
        "client": client,
    }
    np.savez(folder / "tiny.npz", **arrays)
    import_npz(folder / "tiny.npz", folder / "tiny", "femnist", NpzOptions(name="tiny generated"))
    return folder / "tiny"


def configuration(folder: Path, **keys: Any) -> JobConfig:
    """A job of two rounds on the tiny data below ``folder``."""
    flat = {
        "job_name": "fuzz", "log_path": str(folder), "time_stamp": "run", "use_cuda": False, "method": "fedavg",
        "data_set": "femnist", "data_dir": str(folder / "tiny"), "model": "nasbench201_base", "rounds": 1,
        "num_participants": 4, "local_steps": 1, "batch_size": 4, "filter_less": 0, "overcommitment": 1.0,
        "unit_size": 2, "cohort_size": "auto",
    }  # fmt: skip
    return make_config({}, flat | keys)


@contextmanager
def _listening(heard: list[tuple[str, Any, Any]]) -> Iterator[None]:
    class Stub(in_process._Stub):
        def __getattr__(self, name: str) -> Any:
            method = super().__getattr__(name)

            def call(request: Any, **options: Any) -> Any:
                reply = method(request, **options)
                heard.append((name, request, reply))
                return reply

            return call

    with mock.patch.object(in_process, "_Stub", Stub):
        yield


def _timeless(result: bytes) -> bytes:
    """A result whose measured seconds are the same in every recording, so that its changes are too."""
    header, sections = wire.unpack(result)
    header["seconds"] = dict.fromkeys(sorted(header["seconds"]), 0.125)
    if "seconds_by_size" in header:
        header["seconds_by_size"] = [[size, 0.5 / size] for size in (1, 4)]
    return wire.pack(header, {name: bytes(part) for name, part in sections.items()})


# of the job that was recorded: an aggregator takes results of its own start only
INCARNATION = "recorded"
_INCARNATION = mock.patch("fedscale_ext.server.grpc_server.secrets.token_hex", lambda _: INCARNATION)


def record(folder: Path) -> Corpus:
    """Run the job and keep what it said; ``folder`` gets the data and the job's files."""
    tiny_data(folder)
    heard: list[tuple[str, Any, Any]] = []
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}  # sizes of cohorts are measured, not remembered
    one_by_one = mock.patch.object(calibrate, "fastest", lambda seconds: 1)  # whatever was measured
    with _listening(heard), one_by_one, _INCARNATION, mock.patch.dict("os.environ", environment):
        in_process.run_in_process(configuration(folder))
    results, replies, units = [], [], {}
    for name, request, reply in heard:
        if name == "CLIENT_EXECUTE_COMPLETION" and request.event != ALIVE:
            message = _timeless(request.data_result)
            results.append((units[wire.unpack(message)[0]["unit"]], message))
        if reply.data:
            replies.append(reply.data)
            header, _ = wire.unpack(reply.data)
            models = tuple(header.pop("models"))
            units[header["unit"]] = Unit(header["unit"], reply.event, header, models)
    registrations = [request.executor_info for name, request, _ in heard if name == "CLIENT_REGISTER"]
    kinds = {unit.event for unit, _ in results}
    if kinds != {commons.CLIENT_TRAIN, commons.MODEL_TEST, calibrate.EVENT}:
        raise RuntimeError(f"the job recorded only {kinds}")
    messages = [*registrations, *(message for _, message in results), *replies]
    sections = [bytes(part) for message in messages for part in wire.unpack(message)[1].values()]
    return Corpus(registrations, results, replies, sections)
