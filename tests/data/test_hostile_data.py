"""Data folders from anywhere: links that lead out, pipes, bombs, damaged files. One sentence with the file's name."""

import io
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedscale_ext.data.layout.sample_csv as sample_csv
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.images import _FORMATS, decode
from fedscale_ext.data.importing.importers import import_leaf, import_npz
from fedscale_ext.data.importing.options import NpzOptions
from fedscale_ext.data.layout.files import describe, read_layout
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import open_data_set
from tests.mutations import mutated

ROWS = [("a", n % 10) for n in range(6)]


def train_csv(folder: Path) -> Path:
    return folder / "client_data_mapping" / "train.csv"


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_layout(folder, "femnist", 62)
    assert str(caught.value).isprintable()
    return str(caught.value)


# ---- where a csv may lead ----


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(make_folder, tmp_path: Path) -> None:
    folder = make_folder(ROWS)
    outside = tmp_path / "outside"
    outside.mkdir()
    os.rename(folder / "img" / "3.png", outside / "3.png")
    os.rename(folder / "img" / "2.png", folder / "2.png")
    (folder / "img" / "2.png").symlink_to("../2.png")
    (folder / "img" / "3.png").symlink_to(outside / "3.png")
    assert "line 5 of" in (said := refusal(folder)) and "leads out of the data folder by a link" in said
    (folder / "img" / "3.png").unlink()
    os.rename(outside / "3.png", folder / "img" / "3.png")
    assert len(read_layout(folder, "femnist", 62)[0]) == 6
    os.rename(folder / "img", outside / "img")  # all of them, by a folder
    (folder / "img").symlink_to(outside / "img")
    assert "line 2 of" in refusal(folder)
    report = verify(folder, "femnist")
    assert (report.bad_rows, report.missing_files) == (6, 1)  # five rows that lead out, and a csv without usable ones


def test_the_data_folder_itself_may_be_a_link(make_folder, tmp_path: Path) -> None:
    folder = make_folder(ROWS)
    (tmp_path / "link").symlink_to(folder)
    assert len(open_data_set(tmp_path / "link", "femnist").x) == 6


@pytest.mark.parametrize("sample", ["/etc/passwd", "../x.png", "img/../../x.png", "img\\..\\..\\x", "a\0b"])
def test_no_path_leads_out(make_folder, sample: str) -> None:
    folder = make_folder(ROWS)
    train_csv(folder).write_text(f"client_id,sample_path,label_name,label_id\na,{sample},n,1\n")
    assert "leads out of" in (said := refusal(folder)) or "not a csv file" in said  # Python 3.10: a line with NUL


# ---- the csv ----


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"a," + b"x" * 70_000 + b",n,1", "a row has more than 65,536 characters"),
        (b'a,"' + b"x\n" * 40_000 + b'",n,1', "a row has more than 65,536 characters"),
        (b"a," + b'"\n",' * 20_000 + b"n,1", "a row has more than 65,536 characters"),
        (b"a,img/1.png,n," + b"1" * 60_000, "is out of range|is not an integer"),
        (b"a,\x1b[31mimg\n,n,1", "number of columns|does not exist"),
        (b"a,img/1.png,n,1000000", r"out of range \(0\.\.61\)"),
    ],
    ids=range(6),
)
def test_rows_that_would_not_end_are_refused(make_folder, row: bytes, said: str) -> None:
    folder = make_folder(ROWS)
    train_csv(folder).write_bytes(b"client_id,sample_path,label_name,label_id\n" + row + b"\n")
    with pytest.raises(UserError, match=said):
        read_layout(folder, "femnist", 62)


def test_labels_decide_on_no_layer_of_absurd_size(make_folder) -> None:
    folder = make_folder([("a", 999_999)])
    assert read_layout(folder, "own", None)[0].labels.tolist() == [999_999]
    train_csv(folder).write_text(train_csv(folder).read_text().replace("999999", "1000000"))
    with pytest.raises(UserError, match=r"out of range \(0\.\.999999\)"):
        read_layout(folder, "own", None)


def test_a_csv_of_absurd_size_is_not_read(make_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(ROWS)
    monkeypatch.setattr(sample_csv, "MAX_ROWS", 5)
    assert "more than 5 rows" in refusal(folder)
    with open(train_csv(folder), "wb") as file:
        file.truncate(1 << 33)
    assert "8,589,934,592 bytes" in refusal(folder)


@pytest.mark.parametrize("name", ["client_data_mapping/train.csv", "client_data_mapping/test.csv", "dataset.json"])
def test_what_is_no_plain_file_keeps_nobody_waiting(make_folder, name: str) -> None:
    folder = make_folder(ROWS, ROWS)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        path = folder / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        make(path)
        with pytest.raises(UserError, match="no plain file"):
            open_data_set(folder, "femnist")


def test_an_image_that_is_a_pipe_does_not_exist(make_folder) -> None:
    folder = make_folder(ROWS)
    (folder / "img" / "1.png").unlink()
    os.mkfifo(folder / "img" / "1.png")
    assert "does not exist" in refusal(folder)
    with pytest.raises(UserError, match=r"img/1\.png cannot be read: it is no plain file"):
        decode(folder / "img" / "1.png", (1, 28, 28))


def test_a_damaged_csv_ends_in_rows_or_one_sentence(make_folder) -> None:
    folder = make_folder(ROWS)
    refused = 0
    for data in mutated([train_csv(folder).read_bytes()], 400):
        train_csv(folder).write_bytes(data)
        try:
            read_layout(folder, "femnist", 62)
        except UserError as error:
            refused += 1
            assert str(error).isprintable()
    assert refused > 100


# ---- dataset.json ----

ABOUT = {"name": "own", "data_set": "own", "generated": False, "classes": 3, "shape": [1, 28, 28], "settings": {}}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' * 5000 + "1" + "}" * 5000,
        "[" * 100_000,
        '{"settings": {"a": ' + "[" * 40 + "]" * 40 + "}}",
        json.dumps({**ABOUT, "classes": 10**18}),
        json.dumps({**ABOUT, "classes": True}),
        json.dumps({**ABOUT, "classes": 1e400}),
        json.dumps({**ABOUT, "shape": [1, 10**9, 28]}),
        json.dumps({**ABOUT, "shape": [[1]] * 5000}),
        json.dumps({**ABOUT, "shape": "1x28x28"}),
        json.dumps({**ABOUT, "generated": "false"}),
        json.dumps({**ABOUT, "name": ["own"]}),
        json.dumps({**ABOUT, "data_set": {"own": 1}}),
        '{"classes": ' + "9" * 5000 + "}",
        "null",
    ],
    ids=range(14),
)
def test_no_description_is_believed_blindly(tmp_path: Path, text: str) -> None:
    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(UserError) as caught:
        describe(tmp_path, "own")
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 2000


def test_a_damaged_description_ends_in_one_or_one_sentence(tmp_path: Path) -> None:
    for data in mutated([json.dumps(ABOUT).encode()], 400):
        (tmp_path / "dataset.json").write_bytes(data)
        try:
            about = describe(tmp_path, "own")
            assert about.name.isprintable() and about.classes in (None, *range(1, 100))
        except UserError as error:
            assert str(error).isprintable()


# ---- images ----


def encoded(kind: str, mode: str = "L", size: tuple[int, int] = (20, 20)) -> bytes:
    noise = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(buffer, format=kind)
    return buffer.getvalue()


def png_of(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_001, 10_000, 12_000, 100_000, 2**31 - 1])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_of_absurd_size_is_refused_before_it_is_decoded(side: int) -> None:
    with pytest.raises(UserError, match=r"image a/b\.png .*(absurd|limit|decoded)"):
        decode(png_of(side, side), (1, 28, 28), "a/b.png")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", _FORMATS)
def test_damaged_images_end_in_pixels_or_one_sentence(kind: str) -> None:
    whole = [encoded(kind, mode) for mode in ("L", "RGB")]
    for data in mutated(whole, 200):
        try:
            assert decode(data, (3, 12, 12), "img/7.png").shape == (3, 12, 12)
        except UserError as error:
            assert "img/7.png" in str(error) and str(error).isprintable()


def test_a_conversion_that_fails_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoded("PNG")

    def fails(*_: object) -> None:
        raise ValueError("conversion not supported")

    monkeypatch.setattr(Image.Image, "convert", fails)
    with pytest.raises(UserError, match=r"image 7\.png cannot be decoded \(conversion not supported\)"):
        decode(whole, (3, 12, 12), "7.png")


# ---- sources of an import ----


def test_what_is_imported_is_read_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"users": ["a"], "user_data": {"a": {"x": ' + "[" * 9000 + "}}}")
    large = {"users": ["a"], "user_data": {"a": {"x": [[10**400] * 4], "y": [1]}}}
    (tmp_path / "large.json").write_text(json.dumps(large))
    for name in ("deep", "large"):
        with pytest.raises(UserError, match=f"{name}.json"):
            import_leaf(tmp_path / f"{name}.json", tmp_path / "out", "femnist")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(UserError, match="no plain file"):
        import_npz(tmp_path / "pipe.npz", tmp_path / "out", "femnist")
    assert not (tmp_path / "out").exists()


def test_a_damaged_npz_is_imported_or_one_sentence(tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 256, (4, 5, 5), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 2, 3], client=["a", "b", "a", "c"])
    whole = (tmp_path / "a.npz").read_bytes()
    for data in mutated([whole], 150):
        (tmp_path / "a.npz").write_bytes(data)
        try:
            import_npz(tmp_path / "a.npz", tmp_path / "out", "own", NpzOptions(force=True))
        except UserError as error:
            assert str(error).isprintable()
