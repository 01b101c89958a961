"""From a host of files into FedScale's layout by the command."""

import hashlib
import importlib.util
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from file_host import Host, file_host

from fedscale_ext.data.decoding import audio
from fedscale_ext.data.download import catalogue, get
from fedscale_ext.data.download.catalogue import WITHOUT_CLIENTS, Downloadable, File, MirroredFiles
from fedscale_ext.data.download.transfer import Patience
from fedscale_ext.data.importing import importers
from fedscale_ext.data.registry import known
from tests.data.test_published import idx, unimib


@pytest.fixture
def host() -> Iterator[Host]:
    with file_host() as serving:
        yield serving


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    hasty = Patience(tries=2, pause_s=0.01)
    monkeypatch.setattr(get, "Patience", lambda: hasty)
    return folder


def serve(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, format_: str, paths: list[Path], *, pinned: bool = True,
    **more: object,
) -> Downloadable:  # fmt: skip
    """Serve files at two mirrors, and let them be all that is known of a data set."""
    files = []
    for path in paths:
        data = path.read_bytes()
        for mirror in ("one", "two"):
            host.put(f"{mirror}/{path.name}", data)
        sha = hashlib.sha256(data).hexdigest() if pinned else None
        files.append(File(path.name, len(data) if pinned else None, None, sha, "this test"))
    mirrors = {mirror: f"{host.address}/{mirror}/{{name}}" for mirror in ("one", "two")}
    source = MirroredFiles(format_, tuple(files), mirrors, more.get("take", ()), 10_000_000)  # type: ignore[arg-type]
    entry = Downloadable(name, name, 100, (source,))
    monkeypatch.setattr(catalogue, "catalogue", lambda: {name: entry})
    return entry


@pytest.fixture
def fashion(host: Host, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Downloadable:
    paths = sorted(path for path in idx(tmp_path / "idx").iterdir() if path.is_file())
    assert len(paths) == 4
    return serve(host, monkeypatch, "fashionmnist", "idx", paths)


SPREAD = ("--partition", "iid", "--clients", 2)


def test_download_import_and_again_without_the_host(call, host, here, fashion) -> None:
    code, stdout, err = call("dataset", "download", "fashionmnist", *SPREAD)
    assert code == 0, err
    assert "real: fashionmnist, written in" in stdout and "2 clients" in stdout
    assert "use it with: --set data_dir=data/fashionmnist --set data_set=fashionmnist" in stdout
    assert err.count("its sha256 is the one that is known (this test)") == 4
    assert json.loads(Path("data/fashionmnist/dataset.json").read_text())["name"] == "fashionmnist"
    names = {path.name for path in Path("data/downloads/fashionmnist").iterdir()}
    assert names == {".lock", *(file.name for file in fashion.sources[0].files)}
    host.files.clear()
    num_requests = len(host.requests)
    code, stdout, err = call("dataset", "download", "fashionmnist", *SPREAD, "--no-keep")
    assert code == 0, err
    assert "already there, unchanged" in stdout and err.count("is there already") == 4
    assert len(host.requests) == num_requests
    assert {path.name for path in Path("data/downloads/fashionmnist").iterdir()} == {".lock"}


def test_the_next_mirror_serves_where_one_does_not(call, host, here, fashion) -> None:
    broken = fashion.sources[0].files[2].name
    host.files[f"/one/{broken}"].data = b"x" * fashion.sources[0].files[2].size
    code, _, err = call("dataset", "download", "fashionmnist", *SPREAD)
    assert code == 0
    assert f"{broken} from two" in err and "one: its file has the sha256" in err
    assert [path for path, _, _ in host.requests].count(f"/one/{broken}") == 1


def test_a_part_is_continued_and_a_rotten_one_begun_anew(call, host, here, fashion) -> None:
    good, rotten = (file.name for file in fashion.sources[0].files[:2])
    folder = Path("data/downloads/fashionmnist")
    folder.mkdir(parents=True)
    (folder / f".{good}.part").write_bytes(host.files[f"/one/{good}"].data[:50])
    (folder / f".{rotten}.part").write_bytes(b"\0" * 20)
    code, _, err = call("dataset", "download", "fashionmnist", *SPREAD)
    assert code == 0, err
    assert f"{good} from one" in err and "of which 50 bytes are there" in err
    assert ("/one/" + good, "bytes=50-", None) in host.requests
    assert [ranged for path, ranged, _ in host.requests if path == f"/one/{rotten}"] == ["bytes=20-", None]


def test_all_hosts_down_is_one_sentence_with_what_works(call, host, here, fashion) -> None:
    for hosted in host.files.values():
        hosted.cuts = [30] * 9
    code, stdout, err = call("dataset", "download", "fashionmnist", *SPREAD)
    last = err.splitlines()[-1]
    assert code == 1 and not stdout
    assert last.startswith("fedscale: fashionmnist could not be downloaded: one (breaks off after 60 of")
    assert "two (" in last and "have come and are kept in data/downloads/fashionmnist" in last
    assert "`fedscale dataset import FILES --data-set fashionmnist`" in last and "--mirror ADDRESS" in last
    assert not Path("data/fashionmnist").exists()
    for hosted in host.files.values():
        hosted.cuts = []
    assert call("dataset", "download", "fashionmnist", *SPREAD)[0] == 0


def test_a_mirror_of_ones_own(call, host, here, fashion) -> None:
    for path in [path for path in host.files if path.startswith("/one/")]:
        host.files[path.replace("/one/", "/lab/data/")] = host.files[path]
    code, _, err = call("dataset", "download", "fashionmnist", *SPREAD, "--mirror", f"{host.address}/lab/data/")
    assert code == 0, err
    assert all(path.startswith("/lab/data/") for path, _, _ in host.requests)
    shutil.rmtree("data")
    host.requests.clear()
    assert call("dataset", "download", "fashionmnist", *SPREAD, "--mirror", "two")[0] == 0
    assert all(path.startswith("/two/") for path, _, _ in host.requests)


def test_an_archive_without_checksum_is_recorded(call, host, here, tmp_path, monkeypatch) -> None:
    folder = unimib(tmp_path / "UniMiB-SHAR" / "data")
    packed = tmp_path / "falls.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*.mat")):
            archive.write(path, f"UniMiB-SHAR/data/{path.name}")
        archive.writestr("UniMiB-SHAR/../../escaped.txt", "not taken, and refused all the same")
    serve(host, monkeypatch, "unimib_shar", "unimib", [packed], pinned=False, take=("*/fall_*.mat",))
    code, _, err = call("dataset", "download", "unimib_shar")
    assert code == 2 and "would land outside its folder" in err
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*.mat")):
            archive.write(path, f"UniMiB-SHAR/data/{path.name}")
        archive.writestr("UniMiB-SHAR/secret.pkl", "x")
    serve(host, monkeypatch, "unimib_shar", "unimib", [packed], pinned=False)
    shutil.rmtree("data")
    code, stdout, err = call("dataset", "download", "unimib_shar")
    assert code == 0, err
    assert "no sha256 is published for it: its own, " in err and "1 pickles were left in falls.zip" in err
    assert "real: unimib_shar" in stdout
    ledger = json.loads(Path("data/downloads/unimib_shar/first_downloads.json").read_text())
    assert ledger == {"falls.zip": hashlib.sha256(packed.read_bytes()).hexdigest()}
    Path("data/downloads/unimib_shar/falls.zip").unlink()
    for hosted in host.files.values():
        hosted.data += b"more"
    code, _, err = call("dataset", "download", "unimib_shar")
    assert code == 1
    assert "that of the first download had" in err.splitlines()[-1]


def test_fedscales_own_layout(call, host, here, tiny_femnist, tmp_path, monkeypatch) -> None:
    packed = tmp_path / "femnist.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for path in sorted(tiny_femnist.rglob("*")):
            if (
                path.is_file()
                and path.name != "dataset.json"
                and not path.relative_to(tiny_femnist).parts[0].startswith(".")
            ):
                archive.add(path, f"./femnist/{path.relative_to(tiny_femnist)}")
    serve(host, monkeypatch, "femnist", "layout", [packed])
    code, stdout, err = call("dataset", "download", "femnist", "--name", "FedScale's FEMNIST", "-o", "data/f")
    assert code == 0, err
    assert stdout.startswith("real: FedScale's FEMNIST, written in") and "7 clients" in stdout
    assert not list(Path("data/downloads/femnist").glob(".unpacked*"))
    assert call("dataset", "verify", "data/f")[0] == 0


def test_parquet_needs_pyarrow_and_says_so(call, host, here, tmp_path, monkeypatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    serve(host, monkeypatch, "femnist", "parquet", [tmp_path / "a.parquet"])
    monkeypatch.setattr(get, "find_spec", lambda _: None)
    code, _, err = call("dataset", "download", "femnist")
    assert code == 1 and not host.requests
    assert "one (pyarrow is missing, which reads parquet: pip install pyarrow)" in err
    assert "`fedscale dataset synthesize femnist`" in err


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_femnist_as_parquet(call, host, here, tmp_path, monkeypatch) -> None:
    import io

    import pyarrow
    from PIL import Image
    from pyarrow import parquet

    def png(number: int) -> dict[str, bytes]:
        stream = io.BytesIO()
        Image.fromarray(np.full((28, 28), number, np.uint8)).save(stream, "PNG")
        return {"bytes": stream.getvalue()}

    rows = {"image": [png(i) for i in range(12)], "writer_id": [f"f{i // 6}" for i in range(12)]}
    parquet.write_table(pyarrow.table({**rows, "character": [i % 6 for i in range(12)]}), tmp_path / "a.parquet")
    serve(host, monkeypatch, "femnist", "parquet", [tmp_path / "a.parquet"])
    code, stdout, err = call("dataset", "download", "femnist")
    assert code == 0, err
    assert "2 clients, 10 training and 2 test samples" in stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fashionmnist"], "fashionmnist has no clients of its own: add --partition"),
        (["fashionmnist", "--partition", "iid"], "--partition and --clients belong together"),
        (["fashionmnst"], "'fashionmnst' cannot be downloaded; did you mean 'fashionmnist'?"),
        (["emnist"], "'emnist' cannot be downloaded: import files of your own (fedscale dataset import"),
        (["fashionmnist", *SPREAD, "--mirror", "tow"], "has no mirror 'tow'; did you mean 'two'?"),
        (["fashionmnist", *SPREAD, "--mirror", "file:///etc"], "has no mirror 'file:///etc'"),
        (["fashionmnist", *SPREAD, "-o", "full"], "full is not empty and was not made by this command"),
        (["fashionmnist", *SPREAD, "-o", "."], "cannot be replaced by a data set"),
        (["fashionmnist", *SPREAD, "--test-fraction", 2], "the test fraction must be"),
        (["fashionmnist", *SPREAD, "--client-map", "m.json"], "--client-map is for the wav files"),
        (["fashionmnist", *SPREAD, "--downloads", "full/file"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked_for(call, host, here, fashion, arguments, words) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    code, _, err = call("dataset", "download", *arguments)
    assert code == 2
    assert words in err and err.startswith("fedscale: ") and err.count("\n") == 1
    assert not host.requests


def test_speech_without_librosa_is_told_before_two_gigabytes(call, here, monkeypatch) -> None:
    monkeypatch.setattr(audio, "find_spec", lambda _: None)
    code, _, err = call("dataset", "download", "speech12", "--mirror", "https://host.invalid/x")
    assert code == 2 and "computed with librosa" in err and err.count("\n") == 1


def test_a_small_disk_and_a_second_command_are_told(call, host, here, fashion, monkeypatch) -> None:
    with get.sole_user(Path("data/downloads/fashionmnist")):
        code, _, err = call("dataset", "download", "fashionmnist", *SPREAD)
    assert code == 2 and "another command downloads to data/downloads/fashionmnist" in err
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 2 * 10**8))
    code, _, err = call("dataset", "download", "fashionmnist", *SPREAD)
    assert code == 2 and "fashionmnist needs about" in err and "where 200 MB are free" in err
    assert not host.requests


def test_what_there_is_to_download(call) -> None:
    code, stdout, err = call("dataset", "download")
    assert code == 0 and not err
    assert max(map(len, stdout.splitlines())) <= 80 and "\x1b" not in stdout
    for name in ("femnist", "speech12", "cifar10", "unimib_shar"):
        assert f"{name} " in stdout


def test_the_catalogue_holds_what_the_importers_read() -> None:
    for entry in catalogue.catalogue().values():
        assert known(entry.name) is not None and entry.import_bytes() > 0
        for source in entry.sources:
            assert hasattr(importers, f"import_{source.format}")
            assert (source.format in WITHOUT_CLIENTS) == entry.needs_partition
            assert source.unpacked > 0 or not any(file.is_archive for file in source.files)
            for file in source.files:
                assert file.origin and file.name == os.path.basename(file.name)
                assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))
                assert file.sha256 or not file.size  # an exact size without a checksum would be nobody's
            for address in source.mirrors.values():
                assert "{name}" in address
                # what is not encrypted on its way has a checksum
                assert address.startswith("https://") or all(file.sha256 for file in source.files)
