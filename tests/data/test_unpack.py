"""Archives as they should be, and as they should not."""

import gzip
import io
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.download.unpack import Unpacked, unpack

FILES = {"set/a.bin": b"a" * 1000, "set/deep/b.txt": b"b", "set/c.mat": b""}


def tar(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in others:
            archive.addfile(info)
    return path


def zip_(path: Path, files: dict[str, bytes], kinds: dict[str, int] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (kinds or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def make(tmp_path: Path, kind: str, files: dict[str, bytes]) -> Path:
    return zip_(tmp_path / "a.zip", files) if kind == "zip" else tar(tmp_path / "a.tar.gz", files)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_plain_files_come_out_as_they_are(tmp_path: Path, kind: str) -> None:
    calls: list[tuple[int, int]] = []
    result = unpack(make(tmp_path, kind, FILES), tmp_path / "out", most=1001, progress=lambda *now: calls.append(now))
    assert contents(tmp_path / "out") == FILES
    assert result == Unpacked(3, 1001, 0) and len(calls) == 3


def test_dots_folders_and_what_macos_adds_do_no_harm(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("./")
    folder.type = tarfile.DIRTYPE
    archive = tar(tmp_path / "a.tar.gz", {"./set/a.wav": b"x", "./set/._a.wav": b"fork"}, folder)
    unpack(archive, tmp_path / "out", most=10)
    assert contents(tmp_path / "out") == {"set/a.wav": b"x"}


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_only_what_is_taken_and_no_pickle(tmp_path: Path, kind: str) -> None:
    archive = make(tmp_path, kind, {**FILES, "set/a.pkl": b"\x80\x04.", "set/b.PICKLE": b"x"})
    assert unpack(archive, tmp_path / "all", most=9999).pickles == 2
    assert contents(tmp_path / "all") == FILES
    unpack(archive, tmp_path / "some", take=["*/?.bin"], most=1000)
    assert set(contents(tmp_path / "some")) == {"set/a.bin"}
    with pytest.raises(UserError, match="holds none of the files that are looked for"):
        unpack(archive, tmp_path / "none", take=["*.npz"], most=9999)


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "a\\..\\x", "a/\x1b[2J", "/".join("a" * 30), "é" * 600]
)
def test_what_would_land_elsewhere_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "in").mkdir()
    archive = make(tmp_path / "in", kind, {name: b"x"})
    with pytest.raises(UserError, match="would land outside its folder"):
        unpack(archive, tmp_path / "in" / "out", most=100)
    assert set(contents(tmp_path)) == {f"in/{archive.name}"}


@pytest.mark.parametrize("type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, type_: bytes) -> None:
    other = tarfile.TarInfo("set/link")
    other.type, other.linkname = type_, "/etc/passwd"
    with pytest.raises(UserError, match="no plain file: 'set/link'"):
        unpack(tar(tmp_path / "a.tar.gz", FILES, other), tmp_path / "out", most=9999)
    assert "set/link" not in contents(tmp_path / "out")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    archive = zip_(tmp_path / "a.zip", {"link": b"/etc/passwd"}, {"link": stat.S_IFLNK | 0o777})
    with pytest.raises(UserError, match="no plain file: 'link'"):
        unpack(archive, tmp_path / "out", most=9999)


def test_no_more_than_was_said(tmp_path: Path) -> None:
    bomb = {"zeros": bytes(5_000_000)}
    for archive in (zip_(tmp_path / "a.zip", bomb), tar(tmp_path / "a.tar.gz", bomb)):
        assert archive.stat().st_size < 20_000
        with pytest.raises(UserError, match="would unpack to more than 4,999,999 bytes"):
            unpack(archive, tmp_path / archive.name.replace(".", ""), most=4_999_999)


def test_twice_the_same_name_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for data in (b"1", b"2"):
            info = tarfile.TarInfo("x")
            info.size = 1
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(UserError, match="holds 'x' twice"):
        unpack(tmp_path / "a.tar", tmp_path / "out", most=9)


def test_a_full_disk_is_told_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar(tmp_path / "a.tar.gz", FILES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="is full: free some"):
        unpack(archive, tmp_path / "out", most=9999)


def damaged(kind: str, keep: Sequence[int]) -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x", bytes(range(256)) * 20)
    else:
        with (
            gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar_,
        ):
            info = tarfile.TarInfo("x")
            info.size = 5120
            tar_.addfile(info, io.BytesIO(bytes(range(256)) * 20))
    data = bytearray(stream.getvalue())
    for index in keep:
        data[index % len(data)] ^= 0x55
    return bytes(data)


@pytest.mark.parametrize("kind", ["tar", "zip"])
@settings(max_examples=50)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=4), st.integers(0, 400))
def test_damage_is_one_sentence_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, kind: str, places: list[int], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    archive = folder / ("a.zip" if kind == "zip" else "a.tar.gz")
    data = damaged(kind, places)
    archive.write_bytes(data[: len(data) - cut] if cut < len(data) else data)
    try:
        unpack(archive, folder / "out", most=1 << 20)
    except UserError as error:
        assert "\n" not in str(error)
    inside = {path for path in folder.rglob("*") if path.is_file()} - {archive}
    assert all(path.is_relative_to(folder / "out") for path in inside)


def test_cut_off_archives_are_refused(tmp_path: Path) -> None:
    for kind in ("tar", "zip"):
        path = tmp_path / ("a.zip" if kind == "zip" else "a.tar.gz")
        path.write_bytes(damaged(kind, [])[:-40])
        with pytest.raises(UserError, match="damaged or no archive"):
            unpack(path, tmp_path / kind, most=1 << 20)
