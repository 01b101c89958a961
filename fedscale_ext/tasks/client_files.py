"""Tensors of each client in files of the job's folder, as they were after any round that a checkpoint goes on from.

A file is named after the client and the round that wrote it. What a round writes counts from its end on: whoever reads
meanwhile sees what was there before it.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.metrics.files import read_tensors, write_tensors

_NAME = re.compile(r"(\d+)-(\d+)\.safetensors")


def newest_file(folder: Path, key: str, client: int, until: int) -> State | None:
    """Read a client's newest tensors of a job that has ended.

    Args:
        folder: That of :class:`ClientFiles`.
        key: Key of the model that the client trained with them.
        client: Number of the client.
        until: The last round that counts.

    Returns:
        The tensors; None where no round has written any.

    """
    path_of = {int(match[2]): path for path in (folder / quote(key, safe=" ")).glob(f"{client}-*")
             if (match := _NAME.fullmatch(path.name))}  # fmt: skip
    newest = max((round for round in path_of if round <= until), default=None)
    return None if newest is None else read_tensors(path_of[newest])[0]


class ClientFiles:
    """Files of ``clients`` clients in ``folder``, for each of several keys."""

    def __init__(self, folder: Path, clients: int) -> None:
        self._folder, self._clients = folder, clients
        self._rounds: dict[str, torch.Tensor] = {}  # by key: when each client's was written, int64 [clients]; 0: never
        self._written: dict[tuple[str, int], int] = {}  # in this round: its number
        self._versions: dict[tuple[str, int], list[int]] = {}  # rounds of the files that there are
        self._digests: tuple[int, dict[str, str]] = (0, {})  # of the last round that wrote: its number, and by file

    def read(self, key: str, client: int) -> State | None:
        """Read a client's tensors as they were when the round began; None where it had none. Any thread may call it."""
        return self._read(key, client, int(self._rounds[key][client - 1])) if key in self._rounds else None

    def newest(self, key: str, client: int) -> State | None:
        """Read a client's newest tensors, those that this round has written included; None where it has none."""
        written = self._written.get((key, client))
        return self.read(key, client) if written is None else self._read(key, client, written)

    def write(self, round: int, key: str, client: int, tensors: State) -> None:
        """Write a client's tensors. A second call in one round replaces the first."""
        path = self._path(key, client, round)
        digest = write_tensors(path, tensors, {"client": str(client), "round": str(round)})
        if self._digests[0] != round:
            self._digests = round, {}
        self._digests[1][path.relative_to(self._folder.parent).as_posix()] = digest
        self._written[key, client] = round
        if round not in (versions := self._versions.setdefault((key, client), [])):
            versions.append(round)

    def digests(self, round: int) -> dict[str, str]:
        """Return the digests of the files that a round wrote, by their paths in the job's folder."""
        return self._digests[1] if self._digests[0] == round else {}

    def settle(self) -> None:
        """End the round: :meth:`read` returns what it wrote from now on."""
        for (key, client), round in self._written.items():
            if key not in self._rounds:
                self._rounds[key] = torch.zeros(self._clients, dtype=torch.int64)
            self._rounds[key][client - 1] = round
        self._written.clear()

    def _path(self, key: str, client: int, round: int) -> Path:
        return self._folder / quote(key, safe=" ") / f"{client}-{round:06d}.safetensors"

    def _read(self, key: str, client: int, round: int) -> State | None:
        return read_tensors(self._path(key, client, round))[0] if round else None

    # ---- checkpoints ----

    def state(self) -> State:
        """Return the state for a checkpoint: by key, the rounds that wrote the clients' files."""
        return dict(self._rounds)

    def load_state(self, rounds: State) -> None:
        """Restore the result of :meth:`state`; UserError where a client's file is missing."""
        self._rounds = dict(rounds)
        for key, client_rounds in rounds.items():
            for client in (client_rounds.nonzero().flatten() + 1).tolist():
                path = self._path(key, client, int(client_rounds[client - 1]))
                if not path.is_file():
                    raise UserError(f"{path} is missing; the job cannot continue without it")

    def drop_after(self, round: int) -> None:
        """Remove the files of later rounds, which belong to an abandoned course of the job."""
        self._versions.clear()
        for folder in self._folder.glob("*"):
            for path in folder.iterdir():
                match = _NAME.fullmatch(path.name)
                if match and int(match[2]) <= round:
                    self._versions.setdefault((unquote(folder.name), int(match[1])), []).append(int(match[2]))
                else:
                    path.unlink()
        for versions in self._versions.values():
            versions.sort()

    def drop_unneeded(self, checkpoints: Iterable[int]) -> None:
        """Remove the files that no checkpoint needs; ``checkpoints`` are rounds, this one's included."""
        ends = np.array(sorted(checkpoints))
        for (key, client), versions in self._versions.items():
            if len(versions) > 1:
                # a checkpoint needs the newest file that was there by then
                needed = {versions[index] for index in np.searchsorted(versions, ends, side="right") - 1 if index >= 0}
                for round in set(versions) - needed:
                    self._path(key, client, round).unlink(missing_ok=True)
                self._versions[key, client] = sorted(needed)
