"""What a job's folder must agree on, without training: the chain of its rounds, and the files that the chain covers."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.chain import (
    START,
    job_digests,
    json_digest,
    next_link,
    state_digests,
    states_digest,
)
from fedscale_ext.metrics.job_folder.file_names import METRICS
from fedscale_ext.metrics.job_folder.model_files import model_file
from fedscale_ext.metrics.job_folder.round_records import LAST, read_lines
from fedscale_ext.metrics.summary import SUMMARY, JobResult, summarise
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.server.checkpoints import checkpoint_file
from fedscale_ext.util.tensor_files import digest_of_tensors, read_tensors

Outcome = Literal["fits", "does not fit", "not checked"]
_SUMMARISED = ("rounds", "accuracy", "loss", "personalised", "on_all")


@dataclass(frozen=True)
class Check:
    """One row of what was checked.

    Attributes:
        what: Its subject.
        outcome: Whether it fits, or was not checked.
        detail: How much was checked, or what is wrong.

    """

    what: str
    outcome: Outcome
    detail: str


class Beginnings:
    """Digests of the beginnings of ``content``; for rising lengths, each byte is read once."""

    def __init__(self, content: bytes) -> None:
        self._content, self._end, self._sha = content, 0, hashlib.sha256()

    def sha256(self, length: int) -> str:
        """Return the digest of ``content[:length]``."""
        end = slice(length).indices(len(self._content))[1]
        if end < self._end:
            self._end, self._sha = 0, hashlib.sha256()
        self._sha.update(memoryview(self._content)[self._end : end])
        self._end = end
        return self._sha.hexdigest()


class RecordedRun:
    """A job's folder with chained records.

    Raises:
        UserError: If it is not a job's folder, is damaged, or was begun by a release without digests.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: LoadedJob = load_job(folder)
        self.lines: Sequence[Mapping[str, Any]] = read_lines(folder / METRICS)
        self.checkpoints = checkpoint_file.written_rounds(folder / "checkpoints")
        if not self.lines[0].get("digests"):
            raise UserError(
                f"{folder} has no digests in its records: a release that wrote none began the job, and it cannot be "
                "verified"
            )

    def checks(self) -> Iterator[Check]:
        """Check all that needs no training."""
        yield self._chain()
        yield self._header()
        yield self._program()
        yield self._tests()
        yield self._checkpoints()
        if self.job.finished:
            yield self._models()
            yield self._summary()

    def last_link(self) -> str:
        """Return the chain after the last round, which stands for all rounds."""
        return str(_digests(self.lines[-1]).get("chain", "absent"))

    def _chain(self) -> Check:
        before = START
        for round, line in enumerate(self.lines, 1):
            digests = _digests(line)
            if line["round"] != round:
                why = f"round {line['round']} stands where round {round} should"
            elif "chain" not in digests:
                why = f"round {round} has no digests"
            elif next_link(before, line) != digests["chain"]:
                why = f"the link of round {round} is the first that does not: its record or a digest was changed"
            else:
                before = digests["chain"]
                continue
            return Check("chain", "does not fit", why)
        return Check("chain", "fits", _rounds(len(self.lines)))

    def _header(self) -> Check:
        expected = job_digests(self.job.header)
        if any(_digests(line).get("data") != expected["data"] for line in self.lines):
            return Check("data, settings", "does not fit", "the data of header.json are not those of all rounds")
        if _digests(self.lines[-1]).get("settings") != expected["settings"]:
            return Check("data, settings", "does not fit", "the settings of header.json are not those of the rounds")
        header = self.job.header
        if other := [key for key in ("method", "seed") if header[key] != header["config"].get(key)]:
            return Check("data, settings", "does not fit", f"header.json names another {other[0]} than its settings")
        return Check("data, settings", "fits", f"data {expected['data'][:12]}, as header.json has them")

    def _program(self) -> Check:
        codes = [_digests(line).get("code") for line in self.lines]
        changed = [str(round) for round in range(2, len(codes) + 1) if codes[round - 1] != codes[round - 2]]
        detail = f"changed before round {', '.join(changed)}" if changed else f"{str(codes[0])[:12]} in all rounds"
        return Check("program", "fits", detail)

    def _tests(self) -> Check:
        count = 0
        for line in self.lines:
            for kind in ("evaluation", *LAST):
                if (test := line.get(kind)) is None:
                    continue
                count += 1
                if why := _file_fault(self.folder / test["clients"], test.get("sha256")):
                    return Check("tests of clients", "does not fit", f"round {line['round']}: {why}")
        return Check("tests of clients", "fits", f"{count} files")

    def _checkpoints(self) -> Check:
        for round, path in self.checkpoints.items():
            if why := self._checkpoint_fault(round, path):
                return Check("checkpoints", "does not fit", f"round {round}: {why}")
        if not self.checkpoints:
            return Check("checkpoints", "not checked", "none is there")
        return Check("checkpoints", "fits", f"after round {', '.join(map(str, self.checkpoints))}")

    def _checkpoint_fault(self, round: int, path: Path) -> str | None:
        """What is wrong with a checkpoint or the clients' files of its round, or None."""
        if round == 0:
            return None  # written in the midst of the first round, which begins anew from it: no record tells of it
        if round > len(self.lines):
            return "the records end before it"
        digests = _digests(self.lines[round - 1])
        try:
            saved = checkpoint_file.read(path)
            states = state_digests(saved.tensors, saved.data["components"])
            # FedorAS writes it again during the next round's search: only models are still those of the record
            begun = bool(saved.data.get("in_next_round"))
            named = self._client_files.get(f"{round:06d}", ())
            files = {path.relative_to(self.folder).as_posix(): digest_of_tensors(path) for path in named}
        except UserError as error:
            return str(error)
        except (KeyError, TypeError, AttributeError):
            return f"{path.name} is no checkpoint of this release"
        if saved.round != round or states["models"] != digests.get("models"):
            return "a weight, or another part of the models, is not that of the record"
        if not begun and states["states"] != digests.get("states"):
            return "the state beside the models is not that of the record"
        if not begun and saved.data.get("clock_s") != self.lines[round - 1].get("virtual_clock_s"):
            return "its virtual clock is not that of the record"
        if (json_digest(files) if files else None) != digests.get("clients"):
            return "the files of clients' tensors are not those of the record"
        if not self._has_records(saved.data.get("records")):
            return "the records are not those that it was written with"
        return None

    @cached_property
    def _client_files(self) -> Mapping[str, Sequence[Path]]:
        """Files of clients' tensors, by the digits of the round that wrote them."""
        files: dict[str, list[Path]] = {}
        for path in self.folder.glob("*/*/*-*.safetensors"):
            files.setdefault(path.stem.rpartition("-")[2], []).append(path)
        return files

    @cached_property
    def _beginnings(self) -> Beginnings:
        return Beginnings((self.folder / METRICS).read_bytes())

    def _has_records(self, marks: Any) -> bool:
        """Whether metrics.jsonl begins with what it held when a checkpoint was written, wall times included."""
        try:
            return bool(self._beginnings.sha256(int(marks[METRICS]["bytes"])) == marks[METRICS]["sha256"])
        except (KeyError, TypeError, ValueError):
            return False

    def _models(self) -> Check:
        """Compare the final models with the last checkpoint."""
        last = len(self.lines)
        if last not in self.checkpoints:
            return Check("final models", "not checked", f"no checkpoint of round {last} is there to compare them with")
        try:
            saved = checkpoint_file.read(self.checkpoints[last])
            entries = saved.data["components"]["pool"]
            for entry in entries:
                key = entry["key"]
                tensors, metadata = read_tensors(model_file(self.folder, key))
                begin = f"pool/{key}/"
                stored = {name[len(begin) :]: value for name, value in saved.tensors.items() if name.startswith(begin)}
                if states_digest(tensors, {}) != states_digest(stored, {}):
                    return Check("final models", "does not fit", f"a weight of {key} is not that of the checkpoint")
                if json.loads(metadata["spec"]) != entry["spec"]:
                    return Check("final models", "does not fit", f"the architecture of {key} was changed")
        except UserError as error:
            return Check("final models", "does not fit", str(error))
        except (KeyError, TypeError, ValueError):
            return Check("final models", "does not fit", "the last checkpoint does not name them")
        return Check("final models", "fits", f"{len(entries)}, as in the checkpoint of round {last}")

    def _summary(self) -> Check:
        """Compare the results of summary.json with the records."""
        job = self.job
        try:
            anew = summarise(job.header, None, JobResult(job.records))
        except UserError as error:
            return Check(SUMMARY, "does not fit", str(error))
        for name in _SUMMARISED:
            if anew[name] != job.summary.get(name):
                return Check(SUMMARY, "does not fit", f"its {name} is not what the records give")
        return Check(SUMMARY, "fits", "rounds, accuracies and losses are those of the records")


def _digests(line: Mapping[str, Any]) -> Mapping[str, Any]:
    digests = line.get("digests")
    return digests if isinstance(digests, dict) else {}


def _file_fault(path: Path, digest: str | None) -> str | None:
    """What is wrong with a file of tensors, or None."""
    try:
        return None if digest_of_tensors(path) == digest else f"{path.name} is not the file that was recorded"
    except UserError as error:
        return str(error)


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"
