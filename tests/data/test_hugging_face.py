"""Data sets of the Hugging Face library: with a stand-in for it, and with the library itself where it is installed."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.hugging_face import is_saved
from fedscale_ext.data.importing.importers import import_datasets
from fedscale_ext.data.importing.options import DatasetsOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.layout.files import read_description
from fedscale_ext.data.store import DataSet, open_data_set

from .conftest import picture

X = np.stack([picture(n)[None] for n in range(12)])
LABELS = [n % 3 for n in range(12)]
CLIENTS = ["ben", "ada", "ben", "cy"] * 3
NAMES = ["round", "flat", "long"]


class Feature:
    """Stand-in for a column's type."""

    def __init__(self, names: list[str] | None = None, decode: bool = True) -> None:
        self.names, self.decode = names, decode


class FakeImage(Feature):
    """Stand-in for ``datasets.Image``."""


class FakeDataset:
    """Stand-in for ``datasets.Dataset``: what the import uses of it, with the same results."""

    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Feature], form: str | None = None) -> None:
        self._columns, self.features, self._form = columns, features, form
        self.column_names = list(columns)
        self.cache_files: list[dict[str, str]] = []

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def select_columns(self, names: list[str]) -> "FakeDataset":
        return FakeDataset({name: self._columns[name] for name in names}, self.features, self._form)

    def cast_column(self, name: str, feature: Feature) -> "FakeDataset":
        return FakeDataset(self._columns, {**self.features, name: feature}, self._form)

    def with_format(self, form: str | None) -> "FakeDataset":
        return FakeDataset(self._columns, self.features, form)

    def __getitem__(self, rows: Any) -> dict[str, Any]:
        of = range(len(self))[rows] if isinstance(rows, slice) else rows
        assert not any(
            isinstance(self.features[name], FakeImage) and self.features[name].decode for name in self._columns
        )
        columns = {name: [cells[row] for row in of] for name, cells in self._columns.items()}
        return {name: _array(cells) for name, cells in columns.items()} if self._form == "numpy" else columns


def _array(cells: list[Any]) -> np.ndarray:
    """The library has whole numbers as int64, others as float32, and rows of several shapes as objects."""
    try:
        array = np.array(cells)
    except ValueError:
        array = np.empty(len(cells), dtype=object)
    return array.astype({"i": np.int64, "u": np.int64, "f": np.float32}.get(array.dtype.kind, array.dtype))


class Library:
    """Makes data sets, by the library or by its stand-in."""

    def __init__(self, module: Any, fake: bool) -> None:
        self.module, self._fake = module, fake

    def pictures(self, rows: list[int], names: list[str] | None = NAMES, **more: list[Any]) -> Any:
        """Columns img, kind and who, and others."""
        columns = {"img": [Image.fromarray(X[row][0]) for row in rows], "kind": [LABELS[row] for row in rows],
                   "who": [CLIENTS[row] for row in rows], **more}  # fmt: skip
        return self.table(columns, {"kind": names} if names else {}, ["img"])

    def table(self, columns: dict[str, list[Any]], classes: dict[str, list[str]], images: list[str] = []) -> Any:  # noqa: B006
        if self._fake:
            cells = {name: [_encoded(cell) for cell in column] if name in images else column
                     for name, column in columns.items()}  # fmt: skip
            kinds = {name: FakeImage() if name in images else Feature(classes.get(name)) for name in columns}
            return FakeDataset(cells, kinds)
        dataset = self.module.Dataset.from_dict(columns)
        for name in images:
            dataset = dataset.cast_column(name, self.module.Image())
        for name, names in classes.items():
            dataset = dataset.cast_column(name, self.module.ClassLabel(names=names))
        return dataset

    def saved(self, folder: Path, **splits: Any) -> Path:
        """A folder of save_to_disk: of one data set (``only``), or of several by split."""
        whole = splits.get("only") or (splits if self._fake else self.module.DatasetDict(splits))
        if not self._fake:
            whole.save_to_disk(str(folder))
            return folder
        folder.mkdir()
        (folder / ("dataset_dict.json" if "only" not in splits else "state.json")).write_text("{}")
        (folder / "dataset_info.json").write_text("{}")
        self.module.there[str(folder)] = whole
        return folder


def _encoded(cell: Any) -> dict[str, Any]:
    if isinstance(cell, dict):
        return cell
    out = io.BytesIO()
    cell.save(out, "PNG")
    return {"bytes": out.getvalue(), "path": None}


def stand_in() -> Any:
    there: dict[str, Any] = {}

    def load_dataset(name: str, config: str | None, revision: str | None) -> Any:
        module.requests.append((name, config, revision))
        if name not in there:
            raise ConnectionError("Couldn't reach the Hub\nat all")
        return there[name]

    def load_from_disk(name: str) -> Any:
        if name not in there:
            raise FileNotFoundError(f"Directory {name} is neither of them.")
        return there[name]

    module = SimpleNamespace(
        there=there, requests=[], load_dataset=load_dataset, load_from_disk=load_from_disk, Image=FakeImage,
        __version__="4.1.0", config=SimpleNamespace(HF_CACHE_HOME="/nowhere/cache"),
    )  # fmt: skip
    return module


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Library:
    module = stand_in()
    monkeypatch.setitem(sys.modules, "datasets", module)
    return Library(module, fake=True)


@pytest.fixture(params=["fake", "real"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    if request.param == "fake":
        yield request.getfixturevalue("fake")
        return
    module: ModuleType = pytest.importorskip("datasets", minversion="4.0")
    module.disable_progress_bars()
    yield Library(module, fake=False)


def read(folder: Path, kind: str = "own-shapes") -> tuple[DataSet, dict[bytes, tuple[str, int]]]:
    """The data, and by pixels of each sample its client and label."""
    data = open_data_set(folder, kind)
    samples = {}
    for number, name in enumerate(data.client_names, 1):
        for row in np.concatenate([data.train_rows(number), data.test_rows(number)]):
            samples[np.asarray(data.x[row]).tobytes()] = (name, int(data.y[row]))
    return data, samples


COLUMNS = DatasetsOptions(client="who")


def test_pictures_labels_names_and_clients_are_kept(library: Library, tmp_path: Path) -> None:
    folder = library.saved(tmp_path / "saved", only=library.pictures(list(range(12))))
    assert is_saved(folder) and not is_saved(tmp_path)
    report = import_datasets(folder, tmp_path / "out", "own-shapes", COLUMNS)
    assert (report.clients, report.train_samples + report.test_samples, report.classes) == (3, 12, 3)
    data, samples = read(tmp_path / "out")
    assert data.client_names == ["ada", "ben", "cy"] and list(report.label_names) == NAMES
    assert samples == {X[row].tobytes(): (CLIENTS[row], LABELS[row]) for row in range(12)}
    assert not any("not read" in note for note in report.notes)
    assert import_datasets(folder, tmp_path / "out", "own-shapes", COLUMNS).already_there
    other = DatasetsOptions(client="kind")
    with pytest.raises(UserError, match="made with other settings"):
        import_datasets(folder, tmp_path / "out", "own-shapes", other)


def test_splits_are_kept_chosen_and_left_out(library: Library, tmp_path: Path) -> None:
    parts = {"train": list(range(8)), "validation": [8, 9], "extra": [10, 11]}
    folder = library.saved(tmp_path / "saved", **{name: library.pictures(rows) for name, rows in parts.items()})
    report = import_datasets(folder, tmp_path / "out", "own-shapes", COLUMNS)
    assert (report.train_samples, report.test_samples) == (8, 2)
    assert any("'extra' are left out" in note or "splits extra" in note for note in report.notes), report.notes
    chosen = DatasetsOptions(client="who", split="train,extra")
    _, samples = read(import_datasets(folder, tmp_path / "two", "own-shapes", chosen).data_dir)
    assert set(samples) == {X[row].tobytes() for row in [*range(8), 10, 11]}
    one = DatasetsOptions(client="who", split="extra", test_fraction=0.0)
    assert import_datasets(folder, tmp_path / "one", "own-shapes", one).train_samples == 2
    for split in ("train,none", "a,b,c", "train,train"):
        with pytest.raises(UserError, match="name one, or one for training and one for tests"):
            import_datasets(folder, tmp_path / "no", "own-shapes", DatasetsOptions(client="who", split=split))
    unclear = library.saved(tmp_path / "unclear", a=library.pictures([0]), b=library.pictures([1]))
    with pytest.raises(UserError, match="name the one for training"):
        import_datasets(unclear, tmp_path / "no", "own-shapes", COLUMNS)


def test_arrays_lists_and_columns_of_numbers_are_samples(library: Library, tmp_path: Path) -> None:
    columns = {
        "square": [X[row][0].tolist() for row in range(12)],
        "vector": [[row, 255 - row, 7] for row in range(12)],
        "a": [row / 11 for row in range(12)],
        "b": [1.0] * 12,
        "label": [["dark", "light"][row % 2] for row in range(12)],
        "client": [row // 4 for row in range(12)],
    }
    folder = library.saved(tmp_path / "saved", only=library.table(columns, {}))
    squares = import_datasets(folder, tmp_path / "square", "own-shapes", DatasetsOptions(x="square"))
    assert squares.shape == (1, 28, 28) and list(squares.label_names) == ["dark", "light"]
    _, samples = read(tmp_path / "square")
    assert samples == {X[row].tobytes(): (str(row // 4), row % 2) for row in range(12)}
    vectors = import_datasets(folder, tmp_path / "vector", "own-shapes", DatasetsOptions(x="vector"))
    assert vectors.shape == (1, 1, 3)
    _, samples = read(tmp_path / "vector")
    assert bytes([3, 252, 7]) in samples
    two = import_datasets(folder, tmp_path / "two", "own-shapes", DatasetsOptions(x="a, b"))
    assert two.shape == (1, 1, 2) and any("floats in 0..1 of column a, b" in note for note in two.notes)
    assert "columns 'square', 'vector' are not read; --x, --y and --client name columns" in two.notes


def test_values_of_a_known_kind_get_its_shape(library: Library, tmp_path: Path) -> None:
    draws = np.random.default_rng(1).standard_normal((12, 9 * 128)).astype(np.float16)
    columns = {"signal": draws.astype(float).tolist(), "label": [row % 6 for row in range(12)], "client": CLIENTS}
    folder = library.saved(tmp_path / "saved", only=library.table(columns, {}))
    import_datasets(folder, tmp_path / "out", "uci_har", DatasetsOptions(x="signal"))
    _, samples = read(tmp_path / "out", "uci_har")
    assert set(samples) == {row.tobytes() for row in draws}


def test_arrays_whose_axes_are_in_another_order_are_refused(library: Library, tmp_path: Path) -> None:
    steps_first = np.zeros((12, 128, 9)).tolist()
    columns = {"signal": steps_first, "label": [row % 6 for row in range(12)], "client": CLIENTS}
    folder = library.saved(tmp_path / "saved", only=library.table(columns, {}))
    with pytest.raises(UserError, match=r"samples of uci_har have the shape \(1, 9, 128\), but these \(1, 128, 9\)"):
        import_datasets(folder, tmp_path / "out", "uci_har", DatasetsOptions(x="signal"))


def test_a_known_kind_has_its_own_numbers_of_names(library: Library, tmp_path: Path) -> None:
    names = ["9", "1", "0"]
    folder = library.saved(tmp_path / "saved", only=library.pictures(list(range(12)), names))
    import_datasets(folder, tmp_path / "out", "mnist", COLUMNS)
    _, samples = read(tmp_path / "out", "mnist")
    assert {label for _, label in samples.values()} <= {0, 1, 2, 9}
    assert read_description(tmp_path / "out")["classes"] == 10


def test_partitions_take_the_place_of_clients(library: Library, tmp_path: Path) -> None:
    folder = library.saved(tmp_path / "saved", only=library.pictures(list(range(12))))
    for kind, clients in (("iid", 4), ("grouped", 2)):
        options = DatasetsOptions(client="who", partition=Partition(kind, clients))
        assert import_datasets(folder, tmp_path / kind, "own-shapes", options).clients == clients


@pytest.mark.parametrize(
    ("more", "options", "why"),
    [
        ({}, {"x": "none"}, "has no column none: it has img, kind, who.* --x"),
        ({}, {"client": "none"}, "has no column none: .* --client"),
        ({}, {}, "does not say whose its samples are"),
        ({"text": ["word"] * 2}, {"x": "text", "client": "who"}, "holds neither pictures nor numbers"),
        ({"wide": [[300, 1], [2, 3]]}, {"x": "wide", "client": "who"}, r"beyond 0\.\.255"),
        ({"ragged": [[1, 2], [3]]}, {"x": "ragged", "client": "who"}, "of one shape in each row"),
        ({"none": [None, "a"]}, {"client": "none"}, "is empty in row 0"),
        ({"blank": ["a", ""]}, {"client": "blank"}, "has no name in row 1"),
        ({"half": [0.5, 1.0]}, {"client": "who", "y": "half"}, "must be a list of integers"),
    ],
)
def test_columns_that_do_not_do_are_one_sentence(
    library: Library, tmp_path: Path, more: dict[str, list[Any]], options: dict[str, str], why: str
) -> None:
    folder = library.saved(tmp_path / "saved", only=library.pictures([0, 1], **more))
    with pytest.raises(UserError, match=why) as error:
        import_datasets(folder, tmp_path / "out", "own-shapes", DatasetsOptions(**options))  # type: ignore[arg-type]
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_a_label_that_is_hidden_is_one_sentence(fake: Library, tmp_path: Path) -> None:
    dataset = fake.pictures([0, 1])
    dataset._columns["kind"] = [1, -1]
    with pytest.raises(UserError, match=r"has no class for row 1 .*, which is -1"):
        import_datasets(fake.saved(tmp_path / "saved", only=dataset), tmp_path / "out", "own-shapes", COLUMNS)


def test_a_client_that_is_missing_is_one_sentence(fake: Library, tmp_path: Path) -> None:
    cells = {"img": [Image.fromarray(X[row][0]) for row in (0, 1)], "kind": [0, 1], "who": [0, -1]}
    dataset = fake.table(cells, {"kind": NAMES, "who": ["ada", "ben"]}, ["img"])
    options = DatasetsOptions(client="who", y="kind")
    with pytest.raises(UserError, match=r"column who .* has no client for row 1 .*, which is -1"):
        import_datasets(fake.saved(tmp_path / "saved", only=dataset), tmp_path / "out", "own-shapes", options)


def test_files_outside_of_the_librarys_cache_are_never_opened(fake: Library, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("cache/in.png", "out.png"):
        Image.fromarray(X[0][0]).save(tmp_path / name)
    fake.module.config.HF_CACHE_HOME = str(tmp_path / "cache")

    def imported(path: str) -> None:
        cells = [{"bytes": None, "path": str(tmp_path / path)}]
        dataset = fake.table({"img": cells, "kind": [0], "who": ["ada"]}, {"kind": NAMES}, ["img"])
        folder = fake.saved(tmp_path / f"saved {len(fake.module.there)}", only=dataset)
        import_datasets(folder, tmp_path / "data", "own-shapes", DatasetsOptions(client="who", force=True))

    imported("cache/in.png")
    for path in ("out.png", "cache/../out.png"):
        with pytest.raises(UserError, match=r"row 0 of .* holds no picture, but the name of a file"):
            imported(path)


def test_the_hub_is_asked_by_name_and_never_to_run_code(fake: Library, tmp_path: Path) -> None:
    arrow = tmp_path / "part.arrow"
    arrow.write_bytes(b"one")
    dataset = fake.pictures(list(range(12)))
    dataset.cache_files = [{"filename": str(arrow)}]
    fake.module.there["owner/shapes"] = {"train": dataset}
    report = import_datasets("hf:owner/shapes:small@main", tmp_path / "out", "own-shapes", COLUMNS)
    assert report.clients == 3 and fake.module.requests == [("owner/shapes", "small", "main")]
    about = read_description(tmp_path / "out")
    assert about["settings"]["source"] == "hf:owner/shapes:small@main"
    assert import_datasets("hf:owner/shapes:small@main", tmp_path / "out", "own-shapes", COLUMNS).already_there
    arrow.write_bytes(b"two")
    with pytest.raises(UserError, match="made with other settings"):
        import_datasets("hf:owner/shapes:small@main", tmp_path / "out", "own-shapes", COLUMNS)


def test_offline_unknown_and_odd_names_are_one_sentence(fake: Library, tmp_path: Path, call: Any) -> None:
    for name, why in (
        (
            "hf:owner/none",
            "cannot be downloaded (ConnectionError: Couldn't reach the Hub at all); check name",
        ),
        ("hf:owner/none/more", "write a data set of the Hub as hf:owner/name"),
    ):
        code, out, err = call("dataset", "import", name, "--data-set", "own", "-o", str(tmp_path / "out"))
        assert code == 2 and not out and why in " ".join(err.split()) and "Traceback" not in err


def test_without_the_library_or_with_an_old_one_it_is_one_sentence(
    fake: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake.saved(tmp_path / "saved", only=fake.pictures([0]))
    fake.module.__version__ = "3.6.0"
    with pytest.raises(UserError, match=r"datasets 3\.6\.0 can run code of a repository"):
        import_datasets(folder, tmp_path / "out", "own", COLUMNS)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'fedscale_ext\[datasets\]'"):
        import_datasets(folder, tmp_path / "out", "own", COLUMNS)


def test_a_folder_of_something_else_is_one_sentence(library: Library, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no data set that save_to_disk wrote"):
        import_datasets(tmp_path, tmp_path / "out", "own", COLUMNS)


def test_the_command_knows_a_saved_data_set(fake: Library, tmp_path: Path, call: Any) -> None:
    folder = fake.saved(tmp_path / "shapes", only=fake.pictures(list(range(12))))
    out = str(tmp_path / "out")
    code, printed, err = call("dataset", "import", str(folder), "--data-set", "own", "--client", "who", "-o", out)
    assert code == 0, err
    assert read_description(Path(out))["name"] == "shapes" and "3" in printed
    code, _, err = call("dataset", "import", str(folder), "--data-set", "own", "--names", "n", "-o", out)
    assert code == 2 and "--names names an array of an npz file" in " ".join(err.split())
