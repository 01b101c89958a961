"""Tensors of each client in files of the job's folder, as they were after any round that a checkpoint goes on from.

A file is named after the client and the round that wrote it. What a round writes counts from its end on: whoever reads
meanwhile sees what was there before it.

Threads write the files, while the round goes on. They are on the disk when the round's digests are asked for, and so
before a checkpoint that needs them.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.transport.leases import ExecutorProcess
from fedscale_ext.util.tensor_files import in_memory, read_section, read_tensors, write_section

Section = bytes | memoryview  # one safetensors file in memory
CachedAt = tuple[ExecutorProcess, str]  # the process that has a client's tensors in its cache, and their label there

_THREADS = 4  # they wait for the disk, and the disk ends several waits at once
_MOST_BYTES = 64 << 20  # of what waits to be written
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


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="client files")


class ClientFiles:
    """Files of ``clients`` clients in ``folder``, for each of several keys."""

    def __init__(self, folder: Path, clients: int) -> None:
        self._folder, self._clients = folder, clients
        self._rounds: dict[str, torch.Tensor] = {}  # by key: when each client's was written, int64 [clients]; 0: never
        self._written: dict[tuple[str, int], int] = {}  # in this round: its number
        self._cached_at: dict[tuple[str, int], CachedAt] = {}  # of what :meth:`read` returns
        self._next_cached_at: dict[tuple[str, int], CachedAt] = {}  # of what this round has written
        self._versions: dict[tuple[str, int], list[int]] = {}  # rounds of the files that there are
        self._ends: set[int] = set()  # rounds of the checkpoints for which files were last dropped
        self._unsettled: set[tuple[str, int]] = set()  # whose files have changed since
        self._digests: tuple[int, dict[str, str]] = (0, {})  # of the last round that wrote: its number, and by file
        self._pending: dict[Path, tuple[int, Future[str]]] = {}  # files that threads write: their bytes and digest

    def read(self, key: str, client: int) -> State | None:
        """Read a client's tensors as they were when the round began; None where it had none. Any thread may call it."""
        return self._read(key, client, int(self._rounds[key][client - 1])) if key in self._rounds else None

    def newest(self, key: str, client: int) -> State | None:
        """Read a client's newest tensors, those that this round has written included; None where it has none."""
        written = self._written.get((key, client))
        return self.read(key, client) if written is None else self._read(key, client, written)

    def section(self, key: str, client: int) -> bytes | None:
        """Return what :meth:`read` reads as a safetensors file in memory. Any thread may call it."""
        round = int(self._rounds[key][client - 1]) if key in self._rounds else 0
        return read_section(self._finished(self._path(key, client, round))) if round else None

    def write(self, round: int, key: str, client: int, tensors: State, section: Section | None = None) -> None:
        """Write a client's tensors. A second call in one round replaces the first.

        Args:
            round: Number of the round.
            key: Key of the model that the client trained with them.
            client: Number of the client.
            tensors: The tensors, which may be changed afterwards.
            section: The same as a safetensors file in memory, where there is one.

        """
        if self._digests[0] != round:
            self.finish()
            self._digests = round, {}
        path, content = self._path(key, client, round), in_memory(tensors) if section is None else section
        self._make_room(path, len(content))
        metadata = {"client": str(client), "round": str(round)}
        self._pending[path] = len(content), _threads().submit(write_section, path, content, metadata)
        self._written[key, client] = round
        self._next_cached_at.pop((key, client), None)
        if round not in (versions := self._versions.setdefault((key, client), [])):
            versions.append(round)
        self._unsettled.add((key, client))

    def set_cached(self, key: str, client: int, where: CachedAt) -> None:
        """Note who has what was just written of a client."""
        self._next_cached_at[key, client] = where

    def cached_at(self, key: str, client: int) -> CachedAt | None:
        """Return who has what :meth:`read` returns, None where nobody may have it. Any thread may call it."""
        return self._cached_at.get((key, client))

    def finish(self) -> None:
        """Wait until all files are on the disk; OSError where one cannot be written."""
        for path in list(self._pending):
            self._finish(path)

    def _finish(self, path: Path) -> None:
        self._digests[1][path.relative_to(self._folder.parent).as_posix()] = self._pending[path][1].result()
        del self._pending[path]

    def _finished(self, path: Path) -> Path:
        """Return the path of a file once it is on the disk. Any thread may call it."""
        pending = self._pending.get(path)
        if pending is not None:
            pending[1].result()
        return path

    def _make_room(self, path: Path, size: int) -> None:
        """Wait for an earlier write of the same file, and until what waits to be written is not too much."""
        if path in self._pending:
            self._finish(path)
        while self._pending and size + sum(waiting for waiting, _ in self._pending.values()) > _MOST_BYTES:
            self._finish(next(iter(self._pending)))

    def digests(self, round: int) -> dict[str, str]:
        """Return the digests of the files that a round wrote, by their paths in the job's folder.

        They are on the disk by then.
        """
        self.finish()
        return self._digests[1] if self._digests[0] == round else {}

    def end_round(self) -> None:
        """End the round: :meth:`read` returns what it wrote from now on."""
        for (key, client), round in self._written.items():
            if key not in self._rounds:
                self._rounds[key] = torch.zeros(self._clients, dtype=torch.int64)
            self._rounds[key][client - 1] = round
            self._cached_at.pop((key, client), None)
        self._cached_at |= self._next_cached_at
        self._next_cached_at.clear()
        self._written.clear()

    def _path(self, key: str, client: int, round: int) -> Path:
        return self._folder / quote(key, safe=" ") / f"{client}-{round:06d}.safetensors"

    def _read(self, key: str, client: int, round: int) -> State | None:
        return read_tensors(self._finished(self._path(key, client, round)))[0] if round else None

    # ---- checkpoints ----

    def state(self) -> State:
        """Return the state for a checkpoint: by key, the rounds that wrote the clients' files; these are on disk."""
        self.finish()
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
        self.finish()
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
        self._unsettled = set(self._versions)

    def drop_unneeded(self, checkpoints: Iterable[int]) -> None:
        """Remove the files that no checkpoint needs; ``checkpoints`` are rounds, this one's included."""
        self.finish()  # a file that is written after its removal would stay
        ends = sorted(checkpoints)
        # while all earlier checkpoints stay, they need the files that they needed
        all_stay = self._ends <= set(ends)
        looked_at = {each: self._versions[each] for each in self._unsettled} if all_stay else self._versions
        for (key, client), versions in looked_at.items():
            if len(versions) > 1:
                # a checkpoint needs the newest file that was there by then
                later = [bisect_left(ends, version) for version in versions] + [len(ends)]
                needed = [version for index, version in enumerate(versions) if later[index] < later[index + 1]]
                for round in set(versions).difference(needed):
                    self._path(key, client, round).unlink(missing_ok=True)
                self._versions[key, client] = needed
        self._ends, self._unsettled = set(ends), set()
