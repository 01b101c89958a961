"""What an import changes, leaves out or notices is reported: pictures of several sizes and kinds, files, clients."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.images import decode, natural_shape
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.importing.importers import import_folder, import_layout, import_leaf, import_npz, import_parquet
from fedscale_ext.data.importing.notes import alike_note
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import open_data_set

from .conftest import picture


def save(path: Path, size: tuple[int, int], seed: int = 0, mode: str = "RGB", **options: object) -> None:
    """A picture of noise of (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path, **options)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two clients with two labels of three pictures each, 8 x 12, in colour."""
    for client in range(2):
        for label in range(2):
            for number in range(3):
                save(tmp_path / f"tree/c{client}/l{label}/{number}.png", (8, 12), 100 * client + 10 * label + number)
    return tmp_path / "tree"


# ---- pictures ----


def test_pictures_of_one_size_need_no_words(tree: Path, tmp_path: Path) -> None:
    written = import_folder(tree, tmp_path / "out", "own", ImportOptions(test_fraction=0.3))
    assert written.notes == () and (written.shape, written.label_names) == ((3, 8, 12), ("l0", "l1"))
    assert json.loads((tmp_path / "out/dataset.json").read_text())["notes"] == []


def test_resized_and_converted_pictures_are_counted(tree: Path, tmp_path: Path) -> None:
    save(tree / "c0/l1/a.png", (16, 24), 7)
    save(tree / "c1/l0/b.png", (20, 20), 8, "L")
    save(tree / "c1/l1/c.jpg", (8, 12), 9, "CMYK")
    written = import_folder(tree, tmp_path / "out", "own")
    first = "2 of 15 pictures were resized to 3x8x12, the first one's shape; --shape gives another"
    assert f"{first} (1 of 16x24, 1 of 20x20)" in written.notes
    assert "1 of 15 pictures changed the ratio of height to width by resizing" in written.notes
    assert "1 of 15 pictures was grey and got three equal channels" in written.notes
    assert any(note.startswith("1 of 15 pictures had CMYK colours") for note in written.notes)
    assert verify(tmp_path / "out", "own").notes == written.notes


@pytest.mark.parametrize(("shape", "full"), [((10, 5), (3, 10, 5)), ((1, 10, 5), (1, 10, 5))])
def test_a_shape_is_what_pictures_get(
    tree: Path, tmp_path: Path, shape: tuple[int, ...], full: tuple[int, ...]
) -> None:
    written = import_folder(tree, tmp_path / "out", "own", ImportOptions(shape=shape))
    assert written.shape == full
    assert any("as --shape asks (12 of 8x12)" in note for note in written.notes)
    assert open_data_set(tmp_path / "out", "own").input_shape == full
    with Image.open(next((tmp_path / "out").rglob("*.png"))) as image:
        assert image.size == (5, 10)


def test_a_shape_takes_the_place_of_a_known_kinds(tree: Path, tmp_path: Path) -> None:
    assert import_folder(tree, tmp_path / "kind", "cifar100").shape == (3, 32, 32)
    assert import_folder(tree, tmp_path / "shape", "cifar100", ImportOptions(shape=(16, 16))).shape == (3, 16, 16)
    assert open_data_set(tmp_path / "shape", "cifar100").input_shape == (3, 16, 16)


def test_big_pictures_are_resized_where_a_shape_is_given(tree: Path, tmp_path: Path) -> None:
    save(tree / "c0/l0/0.png", (1100, 1300))
    with pytest.raises(UserError, match=r"0\.png has 1100 x 1300 pixels .* by --shape \(height x width, as 128x128"):
        import_folder(tree, tmp_path / "out", "own")
    written = import_folder(tree, tmp_path / "out", "own", ImportOptions(shape=(3, 11, 13)))
    assert written.shape == (3, 11, 13) and any("1 of 1100x1300" in note for note in written.notes)
    with pytest.raises(UserError, match="1 or 3 channels and sides of 1 to 1024"):
        import_folder(tree, tmp_path / "no", "own", ImportOptions(shape=(3, 2000, 13)))


def test_big_pictures_of_an_array_are_resized_for_jobs(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3, 1030), np.uint8), y=[0, 1, 0, 1], client=[1, 1, 2, 2])
    with pytest.raises(UserError, match=r"array 'x' of .* --shape resizes pictures"):
        import_npz(tmp_path / "a.npz", tmp_path / "out", "own")
    written = import_npz(tmp_path / "a.npz", tmp_path / "out", "own", NpzOptions(shape=(3, 10)))
    assert written.shape == (1, 3, 10)
    assert any(note.startswith("4 of 4 pictures were resized to 1x3x10") for note in written.notes)
    assert open_data_set(tmp_path / "out", "own").input_shape == (1, 3, 10)


def test_arrays_of_another_size_than_their_kinds_are_reported(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz", x=np.stack([picture(n, (20, 20)) for n in range(4)]), y=[0, 1, 0, 1], client=[1, 1, 2, 2]
    )
    written = import_npz(tmp_path / "a.npz", tmp_path / "out", "femnist")
    assert "4 of 4 pictures were resized to 1x28x28, which is what models get (4 of 20x20)" in written.notes


def test_a_shape_is_for_pictures(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 9, 128), np.float32), y=[0, 1, 0, 1], client=[1, 1, 2, 2])
    with pytest.raises(UserError, match="samples of uci_har are values: leave --shape out"):
        import_npz(tmp_path / "a.npz", tmp_path / "out", "uci_har", NpzOptions(shape=(9, 64)))


def test_parquet_pictures_get_one_shape(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = []
    for number, size in enumerate([(6, 6), (6, 6), (12, 12)]):
        save(tmp_path / "a.png", size, number)
        rows.append({"bytes": (tmp_path / "a.png").read_bytes()})
    table = {"image": rows, "writer_id": ["a"] * 3, "character": [3, 3, 5]}
    parquet.write_table(arrow.table(table), tmp_path / "a.parquet")
    written = import_parquet(tmp_path / "a.parquet", tmp_path / "out", "own")
    assert "1 of 3 pictures was resized to 3x6x6" in (notes := " ".join(written.notes))
    assert "class 1 ('5') has a single sample: row 2 of" in notes and written.shape == (3, 6, 6)
    assert import_parquet(tmp_path / "a.parquet", tmp_path / "b", "own", ImportOptions(shape=(1, 4, 4))).shape == (
        1,
        4,
        4,
    )


def test_a_layout_anew_takes_a_shape(tree: Path, tmp_path: Path) -> None:
    import_folder(tree, tmp_path / "out", "own")
    written = import_layout(
        tmp_path / "out", tmp_path / "anew", "own", ImportOptions(shape=(4, 6), partition=Partition("iid", 2))
    )
    assert written.shape == (3, 4, 6)
    assert "12 of 12 pictures were resized to 3x4x6 (12 of 8x12)" in written.notes


def test_pictures_are_turned_upright(tree: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tree / "c0/l0/0.png", (12, 8), 5, exif=exif)
    assert natural_shape(tree / "c0/l0/0.png") == (3, 8, 12)
    written = import_folder(tree, tmp_path / "out", "own")
    assert "1 of 12 pictures was turned upright by the EXIF orientation" in written.notes
    assert not any("resized" in note for note in written.notes)
    pixels = np.random.default_rng(5).integers(0, 256, (12, 8, 3), dtype=np.uint8)
    stored = {row.tobytes() for row in open_data_set(tmp_path / "out", "own").x}
    assert np.rot90(pixels, -1).transpose(2, 0, 1).tobytes() in stored


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_as_pillow_turns_it(orientation: int) -> None:
    from PIL import ImageOps

    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(picture(1, (4, 7))).save(file, "PNG", exif=exif)
    with Image.open(io.BytesIO(file.getvalue())) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    shape = natural_shape(file.getvalue())
    assert shape == (1, *upright.shape)
    assert np.array_equal(decode(file.getvalue(), shape, upright=True)[0], upright)
    assert np.array_equal(decode(file.getvalue(), (1, 4, 7))[0], picture(1, (4, 7)))  # as FedScale's loaders


def deep_png() -> bytes:
    """A PNG of 4 x 4 pixels with 16 bits per channel, which Pillow does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(range(24)) for _ in range(4))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def encoded(mode: str, kind: str, colour: object = 0, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (4, 4), colour).save(file, kind, **options)
    return file.getvalue()


def paletted(**options: object) -> bytes:
    """A PNG with a palette of colours."""
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).quantize(8).save(file, "PNG", **options)
    return file.getvalue()


def test_arrays_lose_colours_only_where_they_have_some(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    x = np.stack([grey] * 3, axis=3)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(4), client=np.arange(4) % 2)
    notes = import_npz(tmp_path / "a.npz", tmp_path / "grey", "own", NpzOptions(shape=(1, 8, 8))).notes
    assert not any("became grey" in note for note in notes)
    x[1, 3, 3, 2] ^= 1
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(4), client=np.arange(4) % 2)
    notes = import_npz(tmp_path / "a.npz", tmp_path / "one", "own", NpzOptions(shape=(1, 8, 8))).notes
    assert "1 of 4 pictures was in colour and became grey" in notes


@pytest.mark.parametrize(
    ("content", "channels", "said"),
    [
        (encoded("RGBA", "PNG", (1, 2, 3, 99)), 3, "transparency"),
        (encoded("RGBA", "PNG", (1, 2, 3, 255)), 3, None),
        (paletted(), 3, None),
        (paletted(transparency=0), 3, "transparency"),
        (paletted(), 1, "became grey"),
        (encoded("RGB", "PNG", (9, 9, 8)), 1, "became grey"),
        (encoded("RGB", "PNG", (9, 9, 9)), 1, None),  # one of its equal channels is all of it
        (encoded("RGBA", "PNG", (9, 9, 9, 255)), 1, None),
        (encoded("1", "PNG"), 1, None),
        (deep_png(), 3, "16 bits per channel"),
        (encoded("L", "GIF", append_images=[Image.new("L", (4, 4), 9)], save_all=True), 1, "several frames"),
    ],
    ids=range(11),
)
def test_what_a_conversion_loses_is_counted(content: bytes, channels: int, said: str | None) -> None:
    conversions = Conversions()
    decode(content, (channels, 4, 4), "x", conversions)
    sentences = conversions.sentences((channels, 4, 4), "")
    assert len(sentences) == (said is not None) and all(str(said) in sentence for sentence in sentences)


def test_jobs_report_what_decoding_changes(make_folder) -> None:
    folder = make_folder([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
    exif = Image.Exif()
    exif[0x0112] = 3
    save(folder / "img/1.png", (1100, 1300), mode="L", exif=exif)
    expected = (
        "1 of 4 pictures was resized to 1x28x28 (1 of 1100x1300)",
        "1 of 4 pictures changed the ratio of height to width by resizing",
        "1 of 4 pictures had an EXIF orientation, which was not applied, as in FedScale: "
        "an import of the picture files applies it",
    )
    for _ in range(2):  # decoded, then from the cache
        data = open_data_set(folder, "own", input_shape=(1, 28, 28))
        assert data.notes == tuple(expected) and data.x.shape == (4, 1, 28, 28)


# ---- files ----


def test_files_that_are_left_out_are_counted(tree: Path, tmp_path: Path) -> None:
    save(tree / ".thumbs/l0/a.png", (8, 12))
    (tree / "c0/l0/._0.png").write_text("no picture")
    (tree / "c0/l0/readme.TXT").write_text("")
    (tree / "c0/scan.tif").write_text("")
    save(tree / "c0/over.png", (8, 12))
    (tree / "c1/empty").mkdir()
    (tree / "c2").mkdir()
    written = import_folder(tree, tmp_path / "out", "own", ImportOptions(test_fraction=0.3))
    assert written.clients == 2 and written.train_samples + written.test_samples == 12
    assert set(written.notes) == {
        "left out: 2 files with other endings (1 of .tif, 1 of .txt)",
        "left out: 1 picture that is not at client/label/picture ('c0/over.png')",
        "left out: 2 hidden files",
        "2 folders hold no pictures: 'c1/empty', 'c2'",
    }


def test_equal_samples_are_counted(tmp_path: Path) -> None:
    x = np.stack([picture(n, (6, 6)) for n in (0, 1, 2, 0, 1, 5)])
    test = [0, 0, 0, 0, 1, 0]
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 1, 1, 1, 0], client=[1] * 6, test=test)
    written = import_npz(tmp_path / "a.npz", tmp_path / "out", "own", NpzOptions(split="test"))
    assert written.notes == (
        "2 samples equal an earlier one, as images/0000/0000003.png does images/0000/0000000.png",
        "1 of these came with more than one label",
        "1 test sample equals a training sample",
    )


def test_constant_and_dark_samples_are_reported(tmp_path: Path) -> None:
    x = np.stack([picture(n, (6, 6)) % 2 for n in range(4)])
    x[2] = 1
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 1, 0], client=[1] * 4)
    notes = import_npz(tmp_path / "a.npz", tmp_path / "out", "own").notes
    assert any(note.startswith("1 sample has the same value everywhere, the first is row 2 of 'x'") for note in notes)
    assert "no pixel is above 1 of 255: give pixels of 0 to 255 as bytes, or of 0 to 1 as floats" in notes
    for brightest, dark in ((16, True), (31, True), (32, False)):
        scaled = np.where(x == 1, brightest, 0).astype(np.uint8)
        np.savez(tmp_path / "a.npz", x=scaled, y=[0, 1, 1, 0], client=[1] * 4)
        notes = import_npz(tmp_path / "a.npz", tmp_path / "out", "own", NpzOptions(force=True)).notes
        assert any(note.startswith(f"no pixel is above {brightest} of 255: ") for note in notes) == dark
    np.savez(tmp_path / "a.npz", x=x.astype(np.float32), y=[0, 1, 1, 0], client=[1] * 4)
    notes = import_npz(tmp_path / "a.npz", tmp_path / "out", "own", NpzOptions(force=True)).notes
    assert "the floats in 0..1 of array 'x' became bytes in 0..255" in notes
    assert not any("no pixel" in note for note in notes)


# ---- clients ----


def npz(tmp_path: Path, client: object, **more: object) -> Path:
    samples = len(client)  # type: ignore[arg-type]
    x = np.stack([picture(n, (6, 6)) for n in range(samples)])
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(samples) % 2, client=np.asarray(client), **more)
    return tmp_path / "a.npz"


def test_clients_without_test_samples_are_counted(tmp_path: Path) -> None:
    written = import_npz(npz(tmp_path, ["a", "a", "b", "c", "a"]), tmp_path / "out", "own")
    assert "2 of 3 clients have no test samples: they are not in the accuracies ('b', 'c')" in written.notes
    none = import_npz(tmp_path / "a.npz", tmp_path / "none", "own", NpzOptions(test_fraction=0.0))
    assert "there are no test samples: jobs hold out a share of each client's (test_split)" in none.notes
    split = npz(tmp_path, ["a", "a", "b", "c"], test=np.array([0, 1, 1, 0]))
    notes = import_npz(split, tmp_path / "split", "own", NpzOptions(split="test")).notes
    assert "1 client has only test samples, which no job uses: 'b'" in notes
    assert "1 of 2 clients has no test samples: it is not in the accuracies ('c')" in notes


def test_more_test_samples_than_training_samples_are_reported(tmp_path: Path) -> None:
    clients = ["a", "b"] * 3
    options = NpzOptions(split="part")
    path = npz(tmp_path, clients, part=[1, 1, 1, 1, 0, 0])
    note = (
        "there are more test samples (4) than training samples (2): in a split by numbers, 0 is training and 1 is test"
    )
    assert note in import_npz(path, tmp_path / "out", "own", options).notes
    path = npz(tmp_path, clients, part=[0, 0, 0, 0, 1, 1])
    assert not any("more test samples" in each for each in import_npz(path, tmp_path / "right", "own", options).notes)


def test_a_class_that_nobody_trains_on_is_reported(tmp_path: Path) -> None:
    split = npz(tmp_path, ["a", "a", "b", "b"], test=np.array([0, 1, 0, 1]))
    notes = import_npz(split, tmp_path / "out", "own", NpzOptions(split="test")).notes
    assert "class 1 has only test samples: nobody trains on it" in notes


def test_clients_that_are_hard_to_tell_apart_are_named(tmp_path: Path) -> None:
    notes = import_npz(npz(tmp_path, ["cam 1", "cam 1 ", "Cam 1", "cam 2"] * 2), tmp_path / "out", "own").notes
    assert "clients 'Cam 1', 'cam 1', 'cam 1 ' differ only by case or spaces, and stay apart" in notes
    notes = import_npz(npz(tmp_path, ["ab", "Ab", "x y", "xy"] * 2), tmp_path / "more", "own").notes
    assert "clients 'Ab', 'ab' differ only by case or spaces, and stay apart (2 such groups)" in notes
    notes = import_npz(npz(tmp_path, ["train", "test"] * 3), tmp_path / "splits", "own").notes
    assert any(note.startswith("the clients are called 'test', 'train': if these are splits") for note in notes)


def test_names_whose_accented_letters_are_coded_differently_are_named() -> None:
    one, two = "caf\u00e9", "cafe\u0301"  # look the same
    how = "differ only by case, spaces or how their accented letters are coded, and stay apart"
    for what in ("clients", "labels"):
        assert alike_note([one, "bar", two], what) == [f"{what} '{one}', '{two}' {how}"]
    assert alike_note([one, two.upper()], "clients") == [
        f"clients '{one}', '{two.upper()}' differ only by case or spaces, and stay apart"
    ]
    assert alike_note(["\u00e9", "e\u0301"], "labels") == [f"labels '\u00e9', 'e\u0301' {how}"]
    assert alike_note(["\u00e9", "e"], "labels") == []


def test_clients_are_text_or_whole_numbers(tmp_path: Path) -> None:
    import_npz(npz(tmp_path, [2.0, 10.0, 2.0, 10.0]), tmp_path / "floats", "own")
    assert open_data_set(tmp_path / "floats", "own").client_names == ["2", "10"]
    import_npz(npz(tmp_path, np.array([b"ann", b"bob"] * 2)), tmp_path / "bytes", "own")
    assert open_data_set(tmp_path / "bytes", "own").client_names == ["ann", "bob"]
    with pytest.raises(UserError, match=r"array 'client' of .* row 1 .* is nan"):
        import_npz(npz(tmp_path, [1.0, np.nan]), tmp_path / "no", "own")
    with pytest.raises(UserError, match=r"array 'client' of .* has no name in row 1 "):
        import_npz(npz(tmp_path, ["a", ""]), tmp_path / "no", "own")


def test_users_without_samples_are_reported(tmp_path: Path) -> None:
    user = {"x": [[0.1, 0.2, 0.3, 0.4]] * 2, "y": [0, 1]}
    data = {"users": ["a", "b"], "user_data": {"a": user, "b": {"x": [], "y": []}}}
    (tmp_path / "a.json").write_text(json.dumps(data))
    written = import_leaf(tmp_path / "a.json", tmp_path / "out", "own")
    assert "1 user has no samples in a file: 'b'" in written.notes


# ---- by hand ----


def test_a_folder_by_hand_is_looked_at_as_closely(make_folder) -> None:
    folder = make_folder([("cam 1", 0), ("cam 1 ", 1), ("c", 0)], [("c", 1)])
    path = folder / "client_data_mapping" / "train.csv"
    path.write_text(path.read_text() + "c,img/0.png,name1,1\n")
    report = verify(folder, "femnist")
    assert report.ok and report.notes == (
        "1 row names a file that an earlier row names",
        "clients 'cam 1', 'cam 1 ' differ only by case or spaces, and stay apart",
        "2 of 3 clients have no test samples: they are not in the accuracies ('cam 1', 'cam 1 ')",
    )


def test_an_import_of_an_older_version_says_so(tree: Path, tmp_path: Path) -> None:
    import_folder(tree, tmp_path / "out", "own")
    about = json.loads((tmp_path / "out/dataset.json").read_text())
    del about["notes"]
    (tmp_path / "out/dataset.json").write_text(json.dumps(about))
    again = import_folder(tree, tmp_path / "out", "own")
    assert again.already_there and "--force imports it anew" in again.notes[0]


def test_arrays_of_an_npz_file_that_are_not_read_are_named(tmp_path: Path) -> None:
    x, y = np.zeros((8, 1, 4, 4), dtype=np.uint8), np.arange(8) % 2
    client, split = np.repeat(["a", "b"], 4), np.tile([0, 1], 4)
    np.savez(tmp_path / "data.npz", x=x, y=y, client=client, split=split, board=client)
    note = "arrays 'board', 'split' are not read; --client, --split and --names name such arrays"
    assert note in import_npz(tmp_path / "data.npz", tmp_path / "out", "own").notes
    with_split = NpzOptions(split="split")
    notes = import_npz(tmp_path / "data.npz", tmp_path / "out2", "own", with_split).notes
    assert "array 'board' is not read; --client, --split and --names name such arrays" in notes
