"""Plain files out of archives of others: nothing else, nowhere else, and no more than was said.

Members are written by this module, not by tarfile or zipfile: no links, devices, owners or permissions come along.
Pickles stay packed, since nothing here reads them.
"""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.progress import Progress

_PICKLES = (".pkl", ".pickle", ".pth", ".pt", ".joblib")
_MOST_FILES = 4_000_000
_DEEPEST = 16
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Unpacked:
    """Numbers of files and bytes written, and of pickles left in the archive."""

    files: int
    bytes: int
    pickles: int


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(
    archive: Path, into: Path, *, take: Sequence[str] = (), most: int, progress: Progress | None = None
) -> Unpacked:
    """Write the plain files of a tar or zip archive below ``into``, a new or empty folder.

    ``take``: patterns of the members to write, all where there are none; ``most`` bytes are written, no more.
    ``progress`` is called with (bytes read of the archive or written, bytes of the archive). UserError, naming the
    member, for one that would land elsewhere or is no plain file, and where the archive is damaged or the disk full.
    """
    files = written = pickles = 0
    into.mkdir(parents=True, exist_ok=True)
    seen: set[PurePosixPath] = set()
    with _opened(archive) as (members, position):
        for member in members:
            path = _safe(member.name, archive)
            if path.name.startswith("._"):  # what macOS keeps beside a file
                continue
            if take and not any(fnmatch(path.as_posix(), pattern) for pattern in take):
                continue
            if path.suffix.lower() in _PICKLES:
                pickles += 1
                continue
            files += 1
            if written + member.size > most or files > _MOST_FILES:
                raise UserError(f"{archive} would unpack to more than {most:,} bytes: refused at {member.name!r:.80}")
            if path in seen:
                raise UserError(f"{archive} holds {member.name!r:.80} twice: refused")
            seen.add(path)
            if shutil.disk_usage(into).free < member.size + (64 << 20):
                raise UserError(f"the disk of {into} is full: free some, then the same command goes on")
            written += _write(member, into / path, archive)
            if progress is not None:
                progress(position(), archive.stat().st_size)
    if not files:
        raise UserError(f"{archive} holds none of the files that are looked for: is it the archive of this data set?")
    return Unpacked(files, written, pickles)


def _write(member: _Member, path: Path, archive: Path) -> int:
    """Write a member, all of its bytes and no more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    with member.open() as source, open(path, "xb") as file:
        while block := source.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                break
            file.write(block)
    if left:
        raise UserError(f"{archive} is damaged: {member.name!r:.80} has not the {member.size:,} bytes that it claims")
    return member.size


def _safe(name: str, archive: Path) -> PurePosixPath:
    """The member's path if it stays below the folder."""
    path = PurePosixPath(name)
    odd = "\\" in name or not name.isprintable() or len(name.encode("utf-8", "surrogateescape")) > 1000
    if odd or path.is_absolute() or ".." in path.parts or not path.parts or len(path.parts) > _DEEPEST:
        raise UserError(f"{archive} has a member that would land outside its folder: {name!r:.80}; refused")
    return path


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[Iterator[_Member], Callable[[], int]]]:
    """The plain files of an archive in its order, and a function that tells how far reading has come, in bytes."""
    try:
        with open(archive, "rb") as raw:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(raw) as packed:
                    yield _in_zip(packed, archive), raw.tell
            else:
                with tarfile.open(fileobj=raw, mode="r|*") as stream:
                    yield _in_tar(stream, archive), raw.tell
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise UserError(f"{archive} is damaged or no archive ({error}): delete it and start again") from error
    except OSError as error:
        raise UserError(f"{archive} cannot be unpacked: {error.strerror or error}") from error


def _in_tar(stream: tarfile.TarFile, archive: Path) -> Iterator[_Member]:
    for info in stream:
        if info.isdir():
            continue
        if not info.isreg() or info.issparse():
            raise UserError(f"{archive} has a member that is no plain file: {info.name!r:.80}; refused")
        yield _Member(info.name, info.size, partial(_of_tar, stream, info))


def _of_tar(stream: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = stream.extractfile(info)
    assert file is not None  # it is a plain file
    return file


def _in_zip(packed: zipfile.ZipFile, archive: Path) -> Iterator[_Member]:
    for info in packed.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir():
            continue
        if kind not in (0, stat.S_IFREG) or info.flag_bits & 1:
            raise UserError(f"{archive} has a member that is no plain file: {info.filename!r:.80}; refused")
        yield _Member(info.filename, info.file_size, partial(packed.open, info))
