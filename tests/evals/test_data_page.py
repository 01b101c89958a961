import re
from pathlib import Path

import numpy as np
import pytest

from evals.benchmark.tasks import BENCHMARK
from evals.fedoras.settings import PAPER as FEDORAS
from evals.fedtrans.settings import PAPER as FEDTRANS
from evals.hypemefed.settings import PAPER as HYPEMEFED
from evals.moss.settings import PAPER as MOSS
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions

PAGE = (Path(__file__).resolve().parents[2] / "evals" / "data.md").read_text(encoding="utf-8")
SIGNALS = [f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def run_block_that_writes(file: str) -> None:
    """Run the page's code block that makes a file, in the working directory."""
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.S)
        if re.search(rf'np\.savez\(\s*"{file}"', block)
    ]
    assert len(blocks) == 1
    exec(blocks[0], {})


def test_the_page_names_every_file_that_an_evaluation_imports() -> None:
    papers = (BENCHMARK, FEDTRANS, HYPEMEFED, FEDORAS, MOSS)
    sources = {str(data.source) for paper in papers for data in paper.data.values() if data.source}
    assert sources
    assert {source for source in sources if f"| `{source}` |" not in PAGE} == set()


def test_windows_of_uci_har_are_written_with_mixed_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    windows = rng.integers(-8, 9, (14, 9, 128)) / 4  # [sample, signal, step], exact in float16
    for part, rows in (("train", slice(0, 10)), ("test", slice(10, 14))):
        folder = tmp_path / "UCI HAR Dataset" / part
        (folder / "Inertial Signals").mkdir(parents=True)
        for number, name in enumerate(SIGNALS):
            np.savetxt(folder / "Inertial Signals" / f"{name}_{part}.txt", windows[rows, number])
        np.savetxt(folder / f"y_{part}.txt", np.arange(14)[rows] % 6 + 1, fmt="%d")
        np.savetxt(folder / f"subject_{part}.txt", np.arange(14)[rows] % 2 + 1, fmt="%d")

    run_block_that_writes("uci_har.npz")

    written = np.load("uci_har.npz")
    assert written["x"].dtype == np.float16 and written["x"].shape == (14, 9, 128)
    assert np.array_equal(written["x"].reshape(14, 128, 9), windows.swapaxes(1, 2))
    assert written["y"].tolist() == (np.arange(14) % 6).tolist() and written["c"].tolist() == [0, 1] * 7
    assert import_npz("uci_har.npz", tmp_path / "har", "uci_har", NpzOptions(client="c")).clients == 2


def test_pictures_of_cifar10_are_drawn_by_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        rows = rng.integers(0, 256, (2500, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(2500) % 10
        rows[:, 1] = rows[:, 0]  # the first red pixel tells the label
        rows.tofile(folder / name)

    run_block_that_writes("cifar10_10k2k.npz")

    written = np.load("cifar10_10k2k.npz")
    for part, size in (("train", 1000), ("test", 200)):
        x, y = written[f"x_{part}"], written[f"y_{part}"]
        assert x.shape == (10 * size, 32, 32, 3) and np.bincount(y).tolist() == [size] * 10
        assert np.array_equal(x[:, 0, 0, 0], y)


def test_clips_of_the_test_archive_become_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("librosa", reason="features are computed with librosa")
    from fedscale_ext.data.decoding.audio import log_mel, write_wav

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    clips = {
        "_unknown_/bed_0c540988_nohash_0.wav.wav": rng.integers(-999, 999, 16000).astype(np.int16),
        "_silence_/1.wav": np.zeros(16000, np.int16),
        "yes/0a540988_nohash_2.wav": rng.integers(-999, 999, 16000).astype(np.int16),
    }
    for name, clip in clips.items():
        path = tmp_path / "speech_commands_test_set_v0.02" / name
        path.parent.mkdir(parents=True)
        write_wav(path, clip)

    run_block_that_writes("speech_commands_logmel.npz")

    written = np.load("speech_commands_logmel.npz")
    assert written["words"][written["label"]].tolist() == ["bed", "yes"]
    assert written["client_ids"][written["client"]].tolist() == ["0c540988", "0a540988"]
    assert np.array_equal(written["logmel"][0], log_mel(clips["_unknown_/bed_0c540988_nohash_0.wav.wav"])[0])
