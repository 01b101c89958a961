import errno
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest
from PIL import Image

import fedscale_ext.data.cache as cache
from fedscale_ext.data.store import open_data_set
from fedscale_ext.errors import UserError

ROWS = [("a", n % 10) for n in range(12)]


def caches(folder):
    return sorted((folder / cache.FOLDER).iterdir())


def count_decodes(monkeypatch):
    calls = []
    real = cache.decode
    monkeypatch.setattr(cache, "decode", lambda *args: calls.append(args) or real(*args))
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
    calls, real, flock = [], cache.decode, cache.fcntl.flock

    def unlocked(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    cache.decode = lambda *args: calls.append(args) or real(*args)
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
