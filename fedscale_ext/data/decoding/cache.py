"""Decoded samples in a memory-mapped array beside the data, made once and shared by all processes."""

import contextlib
import fcntl
import hashlib
import io
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.data.decoding.audio import FEATURES_VERSION
from fedscale_ext.data.decoding.images import DECODER_VERSION
from fedscale_ext.data.decoding.sample_files import VALUES, decode_sample
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.layout.sample_csv import SampleTable
from fedscale_ext.data.progress import Progress
from fedscale_ext.data.registry import Shape
from fedscale_ext.util.reading import open_plain, read_json
from fedscale_ext.util.temporary_folders import clear_abandoned, new_folder

FOLDER = ".fedscale_ext_cache"
_MOST_NOTES = 20


@dataclass(frozen=True)
class Cached:
    """``x`` uint8 or float16 [N, C, H, W] memory-mapped read-only, ``y`` int64 [N], ``digest`` of their bytes, and
    ``notes`` on what decoding changed."""

    x: np.ndarray
    y: np.ndarray
    digest: str
    notes: tuple[str, ...] = ()


def _cache_folders(data_dir: Path) -> list[Path]:
    """Where caches may be: beside the data, and in the user's cache folder for data that is read-only.

    Data may come from anywhere: a link among it must not decide where files are written and cleared away.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    beside = data_dir / FOLDER
    return [*([] if beside.is_symlink() else [beside]), Path(home) / "fedscale_ext"]


def _caches(data_dir: Path, key: str) -> list[Path]:
    """The cache of that key in each cache folder. All data folders share the user's: there the name tells whose it is.

    Folders may have equal csv files, and files of equal sizes and times.
    """
    of_folder = hashlib.sha256(f"{key}\n{data_dir.resolve()}".encode(errors="surrogateescape")).hexdigest()[:32]
    return [folder / (key if folder.name == FOLDER else of_folder) for folder in _cache_folders(data_dir)]


def _key(tables: Sequence[SampleTable], shape: Shape, values: bool = False) -> str:
    versions = (DECODER_VERSION, *((FEATURES_VERSION,) if values else ()))
    digest = hashlib.sha256(repr((*versions, shape, [len(part) for part in tables])).encode())
    for part in tables:
        digest.update(part.stamp)
    return digest.hexdigest()[:32]


def _head(dtype: type, shape: tuple[int, ...]) -> bytes:
    """What stands before the values in an npy file of that type and shape."""
    head = io.BytesIO()
    about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    return head.getvalue()


def _mapped(path: Path, dtype: type, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """The array in an npy file, memory-mapped, and the file's digest; ValueError where it is of another kind."""
    head, digest = _head(dtype, shape), hashlib.sha256()
    with open_plain(path, len(head) + math.prod(shape) * np.dtype(dtype).itemsize) as file:
        begin = file.read(len(head))
        if begin != head:
            raise ValueError("another type or shape")
        digest.update(begin)
        hashlib.file_digest(file, lambda: digest)
    return np.memmap(path, dtype, mode="r", offset=len(head), shape=shape), digest.hexdigest()


def _of_both(hashes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _type(values: bool) -> type:
    return VALUES if values else np.uint8


def _open(folder: Path, samples: int, shape: Shape, values: bool = False) -> Cached | None:
    """The cache in a folder if it is whole, else None."""
    try:
        meta = read_json(folder / "meta.json")
        x, x_hash = _mapped(folder / "x.npy", _type(values), (samples, *shape))
        y, y_hash = _mapped(folder / "y.npy", np.int64, (samples,))
        hashes = {"x.npy": x_hash, "y.npy": y_hash}
        if meta["sha256"] != hashes:
            return None
        notes = tuple(one_line(str(note), 1000) for note in list(meta.get("notes", ()))[:_MOST_NOTES])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cached(x, np.array(y), _of_both(hashes), notes)


def _fill(folder: Path, tables: Sequence[SampleTable], shape: Shape, values: bool, progress: Progress | None) -> None:
    """Write a cache. Its pixels are written, not mapped: a mapping would end the process on a full disk."""
    samples = sum(map(len, tables))
    changes = Conversions()
    images = (decode_sample(part.file(row), shape, values, changes) for part in tables for row in range(len(part)))
    labels = np.concatenate([part.labels for part in tables])
    hashes = {
        "x.npy": _write(folder / "x.npy", _type(values), (samples, *shape), _with_progress(images, progress, samples)),
        "y.npy": _write(folder / "y.npy", np.int64, (samples,), [labels]),
    }
    notes = changes.sentences(shape, "")
    meta = {"decoder": DECODER_VERSION, "shape": shape, "samples": samples, "sha256": hashes, "notes": notes}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def _write(path: Path, dtype: type, shape: tuple[int, ...], parts: Iterable[np.ndarray]) -> str:
    """Write an npy file part by part; its digest."""
    digest = hashlib.sha256()
    with open(path, "wb", buffering=1 << 20) as file:
        for part in itertools.chain([_head(dtype, shape)], map(np.ndarray.tobytes, parts)):
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def _with_progress(images: Iterable[np.ndarray], progress: Progress | None, samples: int) -> Iterator[np.ndarray]:
    for done, image in enumerate(images):
        if progress is not None and done % 256 == 0 and done:
            progress(done, samples)
        yield image
    if progress is not None:
        progress(samples, samples)


def _temporary_folder(parent: Path) -> Path | None:
    """A new folder to build in, None where nothing can be written; abandoned ones are cleared away."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        clear_abandoned(parent, "tmp-")
        return new_folder(parent, "tmp-")
    except OSError:
        return None


def _publish(built: Path, final: Path, samples: int, shape: Shape, values: bool) -> Cached:
    """Give a finished cache its name. Another process may do the same: whoever is first wins."""
    for _ in range(10):
        with contextlib.suppress(OSError):
            os.rename(built, final)
        cached = _open(final, samples, shape, values)
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
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a folder of caches while decoding for it, so that other processes wait instead of doing the same.

    The system lets go when the process ends, however it ends. A file system without locks is no error:
    then each process decodes, and the first to finish gives the cache its name.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_cache(
    data_dir: Path,
    tables: Sequence[SampleTable],
    shape: Shape,
    progress: Progress | None = None,
    *,
    values: bool = False,
) -> Cached:
    """Return the decoded samples of the csv files, in order, from the cache if possible: pixels, or ``values``.

    Opening reads every byte of the arrays once to compare their digest; a wrong cache is built anew.
    Raises UserError naming a file that cannot be decoded, or when nothing can be written anywhere.
    """
    key, samples = _key(tables, shape, values), sum(map(len, tables))
    caches = _caches(data_dir, key)
    for cache in caches:
        cached = _open(cache, samples, shape, values)
        if cached is not None:
            return cached
    for cache in caches:
        cache_folder = cache.parent
        folder = _temporary_folder(cache_folder)
        if folder is None:
            continue
        try:
            with _one_at_a_time(cache_folder):
                cached = _open(cache, samples, shape, values)  # another process may have made it meanwhile
                if cached is not None:
                    return cached
                _fill(folder, tables, shape, values, progress)
                return _publish(folder, cache, samples, shape, values)
        except OSError as error:
            raise UserError(
                f"the decoded samples cannot be cached in {cache_folder}: {error.strerror} "
                "(make room or set XDG_CACHE_HOME)"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    names = " or ".join(str(cache.parent) for cache in caches)
    raise UserError(f"no cache can be written in {names}: set XDG_CACHE_HOME to a writable folder")
