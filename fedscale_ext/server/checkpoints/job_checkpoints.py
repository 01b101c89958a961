"""A job's state as checkpoints, and back: what a resumed job continues from.

Random streams have no state to save: each is keyed by its purpose (core/streams.py). Participants are drawn from such a
stream, by the virtual clock, and from what guided selection has learnt of clients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedscale_ext.config.changed_settings import completed
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.method_params import changed_rounds
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.data.job_data import check_same_data
from fedscale_ext.data.named_files import differing_files
from fedscale_ext.metrics.job_folder.chain import json_digest, state_digests
from fedscale_ext.metrics.job_folder.json_lines import Mark
from fedscale_ext.metrics.job_folder.recorder import check_return
from fedscale_ext.server.checkpoints import checkpoint_file
from fedscale_ext.server.method_base.hook_checks import check_state, state_written
from fedscale_ext.tasks.client_tensors import ClientTensors, StoredTensors

METHOD = "method"  # the component that is the method
CODE_CHANGED = (
    "this program, torch or NumPy has changed since the checkpoint was written: the result may differ from that of an "
    "undisturbed job"
)


class Stateful(Protocol):
    """A component of a job whose state outlives a round: model pool, method, privacy, selection, client tensors."""

    def state(self) -> tuple[State, Any]:
        """Return tensors by name, and JSON."""

    def load_state(self, tensors: State, data: Any) -> None:
        """Restore the result of :meth:`state`."""


@dataclass(frozen=True)
class Origin:
    """What a job and the checkpoint that it continues from must share.

    Attributes:
        config: The job's configuration.
        data_digest: Digest of the data set.
        file_digests: Digests of the files that the configuration names, by key and file.
        code: Digest of the program; a change is reported, and the job goes on.

    """

    config: JobConfig
    data_digest: str
    file_digests: Mapping[str, Mapping[str, str]]
    code: str


@dataclass(frozen=True)
class Progress:
    """How far a job is, in addition to the states of its components.

    Attributes:
        clock_s: The virtual clock.
        records: How far each file of records reaches.
        resumed: After which rounds the job was resumed, and whether the code had changed.
        notices: The job's notices so far, without those before its first round.

    """

    clock_s: float
    records: dict[str, Mark]
    resumed: list[dict[str, Any]]
    notices: list[str]


def collected(components: Mapping[str, Stateful], method: str) -> tuple[State, dict[str, Any]]:
    """Return the tensors of all ``components``, by component and name, and the JSON part of each.

    UserError where the hook ``state`` of the job's ``method`` returned something else.
    """
    tensors: State = {}
    states: dict[str, Any] = {}
    for name, component in components.items():
        state = component.state()
        if name == METHOD:
            check_state(state, method)
        its_tensors, states[name] = state
        tensors.update({f"{name}/{key}": tensor for key, tensor in its_tensors.items()})
    return tensors, states


class JobCheckpoints:
    """The checkpoints of a job, in a folder of its logs, and the clients' files that belong to them.

    Args:
        log_dir: The job's folder.
        origin: What a checkpoint and the job that continues from it share.
        client_tensors: Tensors that clients get in addition to models. A checkpoint only names their files.

    """

    def __init__(self, log_dir: Path, origin: Origin, client_tensors: Iterable[ClientTensors]) -> None:
        self.folder = log_dir / "checkpoints"
        self._origin = origin
        self._client_files = [tensors.files for tensors in client_tensors if isinstance(tensors, StoredTensors)]

    def save(
        self,
        round: int,
        components: Mapping[str, Stateful],
        progress: Progress,
        *,
        last: bool,
        in_next_round: bool = False,
    ) -> None:
        """Write the state of all ``components``, by name, after ``round``; drop clients' files that nothing needs now.

        ``last``: the round was tested as the job's last one. ``in_next_round``: the next round has begun, and its
        method keeps how far it got in it.
        """
        origin, config = self._origin, self._origin.config
        tensors, states = collected(components, config.job.method)
        content = {
            "components": states,
            "clock_s": progress.clock_s,
            "records": progress.records,
            "resumed": progress.resumed,
            "notices": progress.notices,
            "last": last,
            "in_next_round": in_next_round,
            "code": origin.code,
            "data_digest": origin.data_digest,
            "named_files": dict(origin.file_digests),
            "rounds": config.fedscale.rounds,
        }
        with state_written(config.job.method):
            checkpoint_file.save(self.folder, round, tensors, content, config.decisive(), config.job.checkpoint_keep)
        for files in self._client_files:
            files.drop_unneeded(checkpoint_file.written_rounds(self.folder))

    def digests(self, round: int, components: Mapping[str, Stateful]) -> dict[str, str]:
        """Digest the program, the state of all ``components`` and the clients' files that ``round`` wrote.

        The recorder adds the other digests of the round.
        """
        method = self._origin.config.job.method
        tensors, states = collected(components, method)
        with state_written(method):
            digests = {"code": self._origin.code, **state_digests(tensors, states)}
        written: dict[str, str] = {}
        for files in self._client_files:
            written |= files.digests(round)
        return digests | ({"clients": json_digest(written)} if written else {})

    def drop_after(self, round: int) -> None:
        """Remove the checkpoints and the clients' files of later rounds."""
        checkpoint_file.drop_after(self.folder, round)
        for files in self._client_files:
            files.drop_after(round)

    def load(self, components: Mapping[str, Stateful]) -> tuple[int, Progress, list[str]]:
        """Restore all ``components`` from the last checkpoint, or from that of round ``resume_from``.

        Where no round is left and the checkpoint is not that of a job's end, it is the one before. From there the job
        trains on, and ends as an undisturbed one.

        Returns:
            The round that it was written after, the job's progress by then with this resume, and what to tell of it.

        Raises:
            UserError: If there is no such checkpoint, it is damaged or of another configuration, data or files, or the
                files of records no longer hold what they did.

        """
        config = self._origin.config
        saved = checkpoint_file.load(self.folder, config.decisive(), config.job.resume_from, completed)
        if saved is None:
            raise UserError(f"nothing to resume: {self.folder} holds no checkpoint; start without --resume")
        self._check(saved)
        news = []
        if not _may_end_there(saved, config.fedscale.rounds):
            asked, saved = saved.round, self._before(saved)
            news = [
                f"the checkpoint of round {asked} is not that of a job's end, so the job goes back to that of round "
                f"{saved.round}"
            ]
        data = saved.data
        check_return(self.folder.parent, data["records"])
        for name, component in components.items():
            begin = f"{name}/"
            tensors = {key[len(begin) :]: tensor for key, tensor in saved.tensors.items() if key.startswith(begin)}
            component.load_state(tensors, data["components"][name])
        changed = data["code"] != self._origin.code
        resumed = [*data["resumed"], {"after_round": saved.round, "code_changed": changed}]
        news = [*news, f"resumed after round {saved.round}", *([CODE_CHANGED] if changed else [])]
        return saved.round, Progress(data["clock_s"], data["records"], resumed, data["notices"]), news

    def _before(self, saved: checkpoint_file.Checkpoint) -> checkpoint_file.Checkpoint:
        """Load the newest checkpoint before another one; UserError where there is none."""
        config = self._origin.config
        rounds = [round for round in checkpoint_file.written_rounds(self.folder) if round < saved.round]
        before = checkpoint_file.load(self.folder, config.decisive(), max(rounds), completed) if rounds else None
        if before is None:
            raise UserError(
                f"the checkpoint of round {saved.round} is not that of a job's end, and {self.folder} holds none "
                f"before it: raise rounds above {saved.round}, or start anew without --resume"
            )
        return before

    def _check(self, saved: checkpoint_file.Checkpoint) -> None:
        """UserError unless the job may continue from the checkpoint."""
        origin, data, rounds = self._origin, saved.data, self._origin.config.fedscale.rounds
        if saved.round > rounds:
            raise UserError(
                f"the checkpoint of round {saved.round} is beyond the {rounds} rounds that are asked for; raise "
                "rounds, or start the job anew without --resume"
            )
        written = f"the checkpoint of round {saved.round} was written"
        if changed_number := changed_rounds(data.get("rounds", rounds), origin.config):  # earlier releases wrote none
            raise UserError(f"{changed_number}: set it back, or start the job anew without --resume")
        check_same_data(origin.config, origin.data_digest, data["data_digest"], written)
        if changed := differing_files(data["named_files"], origin.file_digests):
            have, them = ("has", "it") if len(changed) == 1 else ("have", "them")
            raise UserError(
                f"{', '.join(changed)} {have} other contents than when {written}: restore {them}, or start anew "
                "without --resume"
            )


def _may_end_there(saved: checkpoint_file.Checkpoint, rounds: int) -> bool:
    """Whether a job of so many rounds may continue from a checkpoint: some are left, or it was tested as the last."""
    if saved.round < rounds:
        return True
    data = saved.data
    last = data.get("last", data.get("rounds", rounds) == saved.round)  # earlier releases did not write it
    return bool(last) and not data.get("in_next_round")
