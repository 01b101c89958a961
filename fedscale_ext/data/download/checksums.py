"""sha256 of what was downloaded: compared with the published one, or with that of the first download."""

import hashlib
import json
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.download.catalogue import File
from fedscale_ext.data.download.transfer import HostError
from fedscale_ext.data.progress import Progress
from fedscale_ext.util.atomic_files import refusing, write_atomic
from fedscale_ext.util.reading import read_json

LEDGER = "first_downloads.json"
_BLOCK = 1 << 22


def sha256(path: Path, progress: Progress | None = None) -> str:
    """Compute the sha256 of a file's bytes, in hex."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress(done, size)
    return digest.hexdigest()


def check(path: Path, file: File, downloads: Path, progress: Progress | None = None) -> str:
    """Check the file at ``path`` and return, in words, how it was checked; HostError where it is wrong.

    A file without a published sha256 is compared with that of its first download, which ``first_downloads.json`` in
    ``downloads`` keeps.
    """
    if file.size is not None and path.stat().st_size != file.size:
        raise HostError(f"its file has {path.stat().st_size:,} bytes where {file.size:,} belong")
    digest = sha256(path, progress)
    if file.sha256 is not None:
        if digest != file.sha256:
            raise HostError(f"its file has the sha256 {digest[:12]}…, where {file.sha256[:12]}… is known")
        return f"its sha256 is the one that is known ({file.origin})"
    known = _read(downloads / LEDGER)
    first = known.setdefault(file.name, digest)
    if first != digest:
        raise HostError(
            f"its file has the sha256 {digest[:12]}…, that of the first download had {first[:12]}… "
            f"(in {downloads / LEDGER}: delete it there to take the new one)"
        )
    _write(downloads / LEDGER, known)
    return f"no sha256 is published for it: its own, {digest[:12]}…, is kept in {downloads / LEDGER} for comparison"


def _read(path: Path) -> dict[str, str]:
    try:
        content = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it to record downloads anew") from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise UserError(f"{path} is not a list of checksums: delete it to record downloads anew")
    return content


def _write(path: Path, content: dict[str, str]) -> None:
    with refusing(path):
        write_atomic(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
