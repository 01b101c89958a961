"""The files of a data set, whole and checked, from the first mirror that gives them."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.data.download import checksums, transfer
from fedscale_ext.data.download.catalogue import Downloadable, File, MirroredFiles
from fedscale_ext.data.download.transfer import HostError, Patience, RemoteFile
from fedscale_ext.data.progress import Progress
from fedscale_ext.util.locks import lock

PARQUET = "pyarrow is missing, which reads parquet: pip install pyarrow"
_SPARE = 256 << 20  # bytes of the disk that are left alone
Say = Callable[[str], None]


class NoHostError(Exception):
    """Error of a download that failed at each mirror, with the reasons and alternatives."""


@dataclass(frozen=True)
class Downloaded:
    """The files of one ``source``, in ``folder``."""

    source: MirroredFiles
    folder: Path

    @property
    def paths(self) -> list[Path]:
        """Paths of the files."""
        return [self.folder / file.name for file in self.source.files]


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Lock ``folder``, made if need be, against other downloads; UserError where one is under way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = lock(folder / ".lock")
    except BlockingIOError:
        raise UserError(f"another command downloads to {folder} at the moment: wait for it") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    with file:
        yield


def get(
    data_set: Downloadable,
    folder: Path,
    say: Say,
    *,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Downloaded:
    """Download the files of one source of ``data_set`` to ``folder``.

    Complete files stay. Parts of files are continued. ``say`` is called with each line about the progress.
    Raises NoHostError where all mirrors fail, UserError where the disk does.
    """
    reasons = []
    for source in data_set.sources:
        if source.format == "parquet" and find_spec("pyarrow") is None:
            reasons += [f"{mirror} ({PARQUET})" for mirror in source.mirrors]
            continue
        for mirror, address in source.mirrors.items():
            try:
                for file in source.files:
                    url = address.replace("{name}", quote(file.name))
                    _get_file(file, url, mirror, folder, say, patience or Patience(), progress)
                return Downloaded(source, folder)
            except HostError as error:
                reasons.append(f"{mirror} ({error})")
                say(one_line(f"{mirror}: {error}", 300))
    raise NoHostError(_in_vain(data_set, folder, reasons))


def check_disk(data_set: Downloadable, downloads: Path, out: Path) -> None:
    """Raise UserError where the disks are too small for the download and its import.

    The first source gives the rough size. Nothing is downloaded.
    """
    source = data_set.sources[0]
    coming = sum(max(0, file.expected - _there(downloads / file.name)) for file in source.files)
    needs = {_existing(downloads): coming + source.unpacked}
    out_folder = _existing(out)
    same = next((other for other in needs if other.stat().st_dev == out_folder.stat().st_dev), out_folder)
    needs[same] = needs.get(same, 0) + data_set.import_bytes()
    for where, size in needs.items():
        free = shutil.disk_usage(where).free
        if free < size + _SPARE:
            raise UserError(
                f"{data_set.name} needs about {amount(size)} on the disk of {where}, where {amount(free)} are free: "
                "free some, or name other places with --downloads and --out"
            )


def amount(size: float) -> str:
    """Write a number of bytes: 170 MB, 2.4 GB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def _get_file(
    file: File, url: str, mirror: str, folder: Path, say: Say, patience: Patience, progress: Progress | None
) -> None:
    path = folder / file.name
    if path.is_file():
        try:
            checksums.check(path, file, folder, progress)
            return say(f"{file.name} is there already")
        except HostError as error:
            say(f"{file.name} is there, but not as it should be ({error}): it is downloaded anew")
            path.unlink()
    part = folder / f".{file.name}.part"
    remote = RemoteFile(url, file.size, file.most, file.sha256 is not None)
    how_much = amount(file.expected) if file.expected else "size not known"
    for again in (False, True):
        there = _there(path)
        say(f"{file.name} from {mirror} ({how_much}{f', of which {amount(there)} are there' if there else ''})")
        transfer.fetch(remote, part, patience, progress)
        try:
            how = checksums.check(part, file, folder, progress)
            break
        except HostError:
            transfer.forget(part)  # the beginning may be of an earlier version, or damaged: once more, from there
            if again or not there:
                raise
    with open(part, "rb") as whole:
        os.fsync(whole.fileno())
    os.replace(part, path)
    transfer.forget(part)
    say(f"{file.name}: {how}")


def _there(path: Path) -> int:
    """Bytes of a file that have come so far."""
    for candidate in (path, path.with_name(f".{path.name}.part")):
        if candidate.is_file():
            return candidate.stat().st_size
    return 0


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above that exists."""
    path = path.expanduser().absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _in_vain(data_set: Downloadable, folder: Path, reasons: list[str]) -> str:
    files = {file.name for source in data_set.sources for file in source.files}
    received = sum(_there(folder / name) for name in files)
    parts = [f"{data_set.name} could not be downloaded: {', '.join(reasons)}"]
    if received:
        parts.append(f"{amount(received)} have come and are kept in {folder}, the same command continues")
    instead = ["--mirror ADDRESS of a folder that has the files", "your own files by "
               f"`fedscale dataset import FILES --data-set {data_set.name}`"]  # fmt: skip
    if data_set.name == "femnist":
        instead.append("generated handwriting by `fedscale dataset synthesize femnist`")
    parts.append(f"what works instead: {', or '.join(instead)}")
    return one_line("; ".join(parts), 2000)
