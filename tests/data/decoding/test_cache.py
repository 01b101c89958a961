import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal

import numpy as np
import pytest
from PIL import Image

import fedscale_ext.data.decoding.cache as cache
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.files import read_layout
from fedscale_ext.data.store import open_data_set

ROWS = [("a", n % 10) for n in range(12)]


def caches(folder):
    return sorted((folder / cache.FOLDER).iterdir())


def count_decodes(monkeypatch):
    calls = []
    real = cache.decode_sample
    monkeypatch.setattr(cache, "decode_sample", lambda *args: calls.append(args) or real(*args))
    return calls


def test_decodes_once(make_folder, monkeypatch):
    folder, calls = make_folder(ROWS), count_decodes(monkeypatch)
    first = open_data_set(folder, "femnist")
    assert len(calls) == 12
    second = open_data_set(folder, "femnist")
    assert len(calls) == 12 and second.digest == first.digest and len(caches(folder)) == 1
    assert isinstance(second.x, np.memmap) and not second.x.flags.writeable


def test_a_changed_image_shape_or_csv_makes_another_cache(make_folder):
    folder = make_folder(ROWS)
    first = open_data_set(folder, "femnist")
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / "img" / "3.png")
    second = open_data_set(folder, "femnist")
    assert second.digest != first.digest and not second.x[3].any()
    open_data_set(folder, "femnist", input_shape=(1, 14, 14))
    assert len(caches(folder)) == 3


@pytest.mark.parametrize("file", ["x.npy", "y.npy", "meta.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_cache_is_built_anew(make_folder, file, damage):
    folder = make_folder(ROWS)
    before = open_data_set(folder, "femnist")
    pixels = np.array(before.x)
    path = caches(folder)[0] / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-5] ^= 0x55
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    after = open_data_set(folder, "femnist")
    assert np.array_equal(after.x, pixels) and after.digest == before.digest
    assert len(caches(folder)) == 1 and json.loads((caches(folder)[0] / "meta.json").read_text())


def test_a_folder_that_cannot_be_written_uses_the_cache_home(make_folder, tmp_path, monkeypatch):
    folder = make_folder(ROWS)
    (folder / cache.FOLDER).write_text("a file where the folder would be")
    calls = count_decodes(monkeypatch)
    digest = open_data_set(folder, "femnist").digest
    assert list((tmp_path / "cache_home" / "fedscale_ext").iterdir())
    assert open_data_set(folder, "femnist").digest == digest and len(calls) == 12
    shutil.rmtree(tmp_path / "cache_home")
    (tmp_path / "cache_home").write_text("neither here")
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        open_data_set(folder, "femnist")


def test_the_cache_home_tells_equal_folders_apart(make_folder, tmp_path):
    """Their csv files, and the sizes and times of their pictures, are equal."""
    folder, other = make_folder(ROWS), tmp_path / "other"
    (folder / cache.FOLDER).write_text("a file where the folder would be")
    shutil.copytree(folder, other)
    for path in other.rglob("*.png"):
        path.write_bytes((folder / "img" / f"{(int(path.stem) + 1) % len(ROWS)}.png").read_bytes())
    sizes = {path.stat().st_size for path in other.rglob("*.png")}
    assert len(sizes) == 1
    for path in (*folder.rglob("*"), *other.rglob("*")):
        os.utime(path, (0, 0))
    first, second = open_data_set(folder, "femnist"), open_data_set(other, "femnist")
    assert np.array_equal(second.x[0], first.x[1]) and second.digest != first.digest


def test_abandoned_folders_are_cleared_and_new_ones_kept(make_folder):
    folder = make_folder(ROWS)
    for name in ("tmp-old", "tmp-new"):
        (folder / cache.FOLDER / name).mkdir(parents=True)
    os.utime(folder / cache.FOLDER / "tmp-old", (0, 0))
    open_data_set(folder, "femnist")
    names = [path.name for path in caches(folder)]
    assert "tmp-new" in names and "tmp-old" not in names


def test_a_broken_image_is_named_and_leaves_nothing_behind(make_folder):
    folder = make_folder(ROWS)
    path = folder / "img" / "7.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=r"img/7\.png cannot be decoded"):
        open_data_set(folder, "femnist")
    assert caches(folder) == []


def _open(folder, barrier, results, lock_fails):
    calls, real, flock = [], cache.decode_sample, cache.fcntl.flock

    def unlocked(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    cache.decode_sample = lambda *args: calls.append(args) or real(*args)
    cache.fcntl.flock = unlocked if lock_fails else flock
    barrier.wait()
    digest = open_data_set(folder, "femnist").digest
    results.put((digest, len(calls)))


@pytest.mark.parametrize("lock_fails", [False, True])
def test_of_processes_that_open_at_once_one_decodes_and_all_end_well(make_folder, lock_fails):
    folder = make_folder(ROWS)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    together = [context.Process(target=_open, args=(folder, barrier, results, lock_fails)) for _ in range(3)]
    for process in together:
        process.start()
    digests, decoded = zip(*[results.get(timeout=30) for _ in together], strict=True)
    for process in together:
        process.join(30)
    assert set(digests) == {open_data_set(folder, "femnist").digest}
    assert lock_fails or sorted(decoded) == [0, 0, len(ROWS)]
    assert len(caches(folder)) == 1


def test_a_link_in_place_of_the_cache_is_not_followed(make_folder, tmp_path):
    """Folders named tmp-* are cleared away in a cache: not in a place that a data set chose."""
    folder, target = make_folder(ROWS), tmp_path / "precious"
    (target / "tmp-thesis").mkdir(parents=True)
    os.utime(target / "tmp-thesis", (0, 0))
    (folder / cache.FOLDER).symlink_to(target)
    assert len(open_data_set(folder, "femnist").x) == 12
    assert [path.name for path in target.iterdir()] == ["tmp-thesis"]
    assert list((tmp_path / "cache_home" / "fedscale_ext").iterdir())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text("null"),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.mkdir(),
    ],
    ids=["deep", "null", "pipe", "endless", "folder"],
)
@pytest.mark.parametrize("file", ["meta.json", "x.npy"])
def test_whatever_lies_in_a_cache_it_is_built_anew(make_folder, spoil, file):
    folder = make_folder(ROWS)
    before = open_data_set(folder, "femnist").digest
    path = caches(folder)[0] / file
    path.unlink()
    spoil(path)
    assert open_data_set(folder, "femnist").digest == before
    assert len(caches(folder)) == 1


def test_every_single_bit_is_covered_by_the_digest(make_folder):
    folder = make_folder(ROWS[:2])
    before = open_data_set(folder, "femnist")
    pixels, path = np.array(before.x), caches(folder)[0] / "x.npy"
    whole = path.read_bytes()
    mappings = [read_layout(folder, "femnist", 62)[0]]
    key = cache._key(mappings, (1, 28, 28))
    for index in (0, 7, 20, 127, 128, 128 + 784, len(whole) - 1):
        spoilt = bytearray(whole)
        spoilt[index] ^= 1
        path.write_bytes(spoilt)
        assert cache._open(folder / cache.FOLDER / key, 2, (1, 28, 28)) is None
    path.write_bytes(whole)
    assert np.array_equal(cache._open(folder / cache.FOLDER / key, 2, (1, 28, 28)).x, pixels)


def _open_with_little_room(folder, results):
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))  # the cache needs 9,500 bytes
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        results.put(open_data_set(folder, "femnist").digest)
    except Exception as error:
        results.put(f"{type(error).__name__}: {error}")


def test_without_room_a_cache_is_one_sentence_and_nothing_is_left(make_folder):
    """By a limit of the system on the size of files: a write fails, as on a full disk."""
    folder = make_folder(ROWS)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_open_with_little_room, args=(folder, results))
    process.start()
    said = results.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert said.startswith("UserError: the decoded samples cannot be cached in") and "make room" in said
    assert caches(folder) == []
    assert len(open_data_set(folder, "femnist").x) == 12  # and with room again, all is well


def _open_until_killed(folder, started):
    real = cache.decode_sample

    def slowly(*args):
        started.set()
        signal.pause()
        return real(*args)

    cache.decode_sample = slowly
    open_data_set(folder, "femnist")


def test_a_builder_that_is_killed_leaves_no_one_waiting(make_folder):
    folder = make_folder(ROWS)
    context = multiprocessing.get_context("fork")
    started, barrier, results = context.Event(), context.Barrier(2), context.Queue()
    killed = context.Process(target=_open_until_killed, args=(folder, started))
    killed.start()
    assert started.wait(60)
    waits = context.Process(target=_open, args=(folder, barrier, results, False))
    waits.start()
    barrier.wait(60)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(60)
    digest, decoded = results.get(timeout=60)
    waits.join(60)
    assert decoded == len(ROWS)
    assert digest == open_data_set(folder, "femnist").digest


def test_a_cache_is_written_and_not_mapped_while_it_is_made(make_folder, monkeypatch):
    """Where the disk is full, a write is an error, but a store into a mapped file ends the process (SIGBUS)."""

    def mapped(*_, **__):
        raise AssertionError("a mapping for writing")

    monkeypatch.setattr(np.lib.format, "open_memmap", mapped)
    plain = np.memmap.__new__
    modes = []
    monkeypatch.setattr(
        np.memmap, "__new__", lambda cls, *args, **more: modes.append(more["mode"]) or plain(cls, *args, **more)
    )
    assert len(open_data_set(make_folder(ROWS), "femnist").x) == 12
    assert set(modes) == {"r"}
