"""Decoded images in a memory-mapped array beside the data, made once and shared by all processes."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.data.folders import new_folder
from fedscale_ext.data.images import DECODER_VERSION, decode
from fedscale_ext.data.mapping import Mapping
from fedscale_ext.data.registry import Shape
from fedscale_ext.errors import UserError

FOLDER = ".fedscale_ext_cache"
_ABANDONED_S = 24 * 3600.0

Progress = Callable[[int, int], None]
"""Called with (samples done, samples in all); the latter is 0 while unknown."""


@dataclass(frozen=True)
class Cached:
    """``x`` uint8 [N, C, H, W] memory-mapped read-only, ``y`` int64 [N], ``digest`` of their bytes."""

    x: np.ndarray
    y: np.ndarray
    digest: str


def _places(data_dir: Path) -> list[Path]:
    """Where caches may be: beside the data, and in the user's cache folder for data that is read-only."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [data_dir / FOLDER, Path(home) / "fedscale_ext"]


def _key(mappings: Sequence[Mapping], shape: Shape) -> str:
    digest = hashlib.sha256(repr((DECODER_VERSION, shape, [len(part) for part in mappings])).encode())
    for part in mappings:
        digest.update(part.stamp)
    return digest.hexdigest()[:32]


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _open(folder: Path, samples: int, shape: Shape) -> Cached | None:
    """The cache in a folder if it is whole, else None."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        hashes = {name: _hash_file(folder / name) for name in ("x.npy", "y.npy")}
        if meta["sha256"] != hashes:
            return None
        x = np.load(folder / "x.npy", mmap_mode="r", allow_pickle=False)
        y = np.load(folder / "y.npy", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if x.dtype != np.uint8 or x.shape != (samples, *shape) or y.dtype != np.int64 or y.shape != (samples,):
        return None
    return Cached(x, y, hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest())


def _fill(folder: Path, mappings: Sequence[Mapping], shape: Shape, progress: Progress | None) -> None:
    samples = sum(map(len, mappings))
    x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.uint8, shape=(samples, *shape))
    done = 0
    for part in mappings:
        for row in range(len(part)):
            x[done] = decode(part.file(row), shape)
            done += 1
            if progress is not None and done % 256 == 0:
                progress(done, samples)
    x.flush()
    np.save(folder / "y.npy", np.concatenate([part.labels for part in mappings]))
    hashes = {name: _hash_file(folder / name) for name in ("x.npy", "y.npy")}
    meta = {"decoder": DECODER_VERSION, "shape": shape, "samples": samples, "sha256": hashes}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    if progress is not None:
        progress(samples, samples)


def _temporary_folder(place: Path) -> Path | None:
    """A new folder to build in, None where nothing can be written; abandoned ones are cleared away."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob("tmp-*"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(old, ignore_errors=True)
        return new_folder(place, "tmp-")
    except OSError:
        return None


def _publish(built: Path, final: Path, samples: int, shape: Shape) -> Cached:
    """Give a finished cache its name. Another process may do the same: whoever is first wins."""
    for _ in range(10):
        with contextlib.suppress(OSError):
            os.rename(built, final)
        cached = _open(final, samples, shape)
        if cached is not None:
            shutil.rmtree(built, ignore_errors=True)
            return cached
        # a broken one has the name: put it aside, processes that mapped its files keep them
        with contextlib.suppress(OSError):
            aside = new_folder(final.parent, "tmp-")
            os.rename(final, aside / "broken")
            shutil.rmtree(aside, ignore_errors=True)
    raise UserError(f"the cache {final} cannot be put in place: delete that folder and try again")


@contextlib.contextmanager
def _one_at_a_time(place: Path) -> Iterator[None]:
    """Hold a place while decoding for it, so that the other processes of a job wait instead of doing the same.

    The system lets go when the process ends, however it ends. A file system without locks is no error:
    then each process decodes, and the first to finish gives the cache its name.
    """
    handle = os.open(place, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_cache(data_dir: Path, mappings: Sequence[Mapping], shape: Shape, progress: Progress | None = None) -> Cached:
    """The decoded samples of the given csv files in order, from the cache or decoded now.

    Opening reads every byte of the arrays once to compare their digest; a wrong cache is built anew.
    Raises UserError naming a file that cannot be decoded, or when nothing can be written anywhere.
    """
    key, samples = _key(mappings, shape), sum(map(len, mappings))
    places = _places(data_dir)
    for place in places:
        cached = _open(place / key, samples, shape)
        if cached is not None:
            return cached
    for place in places:
        folder = _temporary_folder(place)
        if folder is None:
            continue
        try:
            with _one_at_a_time(place):
                cached = _open(place / key, samples, shape)  # another process may have made it meanwhile
                if cached is not None:
                    return cached
                _fill(folder, mappings, shape, progress)
                return _publish(folder, place / key, samples, shape)
        except OSError as error:
            raise UserError(
                f"the decoded images cannot be cached in {place}: {error.strerror} (make room or set XDG_CACHE_HOME)"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    raise UserError(f"no cache can be written in {places[0]} or {places[1]}: set XDG_CACHE_HOME to a writable folder")
