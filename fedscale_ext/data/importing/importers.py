"""Bring real data into FedScale's layout: npz arrays, LEAF's JSON, texts by speaker, FEMNIST as parquet, folders of
images, CIFAR's and STL-10's binary files, Speech Commands, SVHN, UniMiB SHAR, idx files; and folders in that layout
anew, with other clients.

Each function writes ``out_dir`` completely or not at all, keeps pixels as they are given, and returns
:class:`Written`. A second call with the same source and settings finds the work done; anything else
in ``out_dir`` is replaced only with ``force``. The options that all take are those of :class:`Common`.
"""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape, with_channels
from fedscale_ext.data.cache import FOLDER, Progress
from fedscale_ext.data.formats.cifar import CifarSource
from fedscale_ext.data.formats.folder import FolderSource
from fedscale_ext.data.formats.idx import IdxSource
from fedscale_ext.data.formats.npz_file import CLASS_NAMES, NpzSource
from fedscale_ext.data.formats.published import Published
from fedscale_ext.data.formats.source import LeafSource, ParquetSource, Source
from fedscale_ext.data.formats.speech import SpeechSource
from fedscale_ext.data.formats.stl10 import Stl10Source
from fedscale_ext.data.formats.svhn import SvhnSource
from fedscale_ext.data.formats.text import TextSource
from fedscale_ext.data.formats.unimib import UnimibSource
from fedscale_ext.data.importing.conversions import Conversions, has_equal_channels
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.importing.relayout import LayoutSource
from fedscale_ext.data.importing.writer import LayoutWriter, Written, already_written, report_progress, spread
from fedscale_ext.data.labels import number_classes
from fedscale_ext.data.layout import describe
from fedscale_ext.data.mapping import data_folder
from fedscale_ext.data.registry import KnownDataSet, Shape, known
from fedscale_ext.data.split import check_fraction

if TYPE_CHECKING:
    from typing_extensions import Unpack

StrPath = str | os.PathLike[str]


class Common(TypedDict, total=False):
    """What every import can be told.

    ``name`` of the data in results (default: its kind). ``partition`` over clients, in place of the source's own.
    ``test_fraction`` (0.2) of each client's samples is for tests where the source has no split; with ``local_test`` a
    split that it has is set aside, and each client's test samples have its own mix of classes. ``seed`` (1) of all
    draws. ``force`` replaces what is in the folder. ``progress`` is called with (samples done, samples in all).
    Pictures are resized to ``shape``, (height, width) or (channels, height, width); default: the data set's, else the
    first one's.
    """

    name: str | None
    partition: Partition | None
    test_fraction: float
    local_test: bool
    seed: int
    force: bool
    progress: Progress | None
    generated: bool
    shape: Sequence[int] | None


def fingerprint(source: Path, files: Sequence[Path] | None = None) -> str:
    """sha256 over the names and bytes of a file or of all files below a folder, or of those ``files`` of it."""
    digest = hashlib.sha256()
    if files is None and source.is_file():
        files = [source]
    elif files is None:
        files = sorted(path for path in source.rglob("*") if path.is_file() and FOLDER not in path.parts)
    for path in files:
        digest.update(f"{path.relative_to(source.parent)}\n{path.stat().st_size}\n".encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def _import(
    source: Source,
    out_dir: StrPath,
    data_set: str,
    *,
    name: str | None = None,
    partition: Partition | None = None,
    test_fraction: float = 0.2,
    local_test: bool = False,
    seed: int = 1,
    force: bool = False,
    progress: Progress | None = None,
    options: dict[str, Any] | None = None,
    generated: bool = False,
    shape: Sequence[int] | None = None,
) -> Written:
    out, how = Path(out_dir).expanduser(), f"imported from {source.kind}"
    if not source.path.exists():
        raise UserError(f"{source.path} does not exist")
    if not data_set:
        raise UserError("the data set to import as has no name: see `fedscale dataset list`")
    check_fraction(test_fraction)
    entry = known(data_set)
    if shape is not None:
        with_channels(shape, 1)  # refuses what is out of bounds before anything is read
        if entry is not None and entry.values:
            raise UserError(f"a shape is for pictures, but samples of {entry.name} are values: leave --shape out")
        source.sides = shape
    settings = {
        "source": source.path.name,
        "sha256": fingerprint(source.path, source.files() if isinstance(source, Published) else None),
        "name": name or data_set,
        "data_set": data_set,
        "partition": partition.settings() if partition else None,
        "test_fraction": test_fraction,
        "seed": seed,
        **({"local_test": True} if local_test else {}),
        **({"generated": True} if generated else {}),
        **({"shape": list(shape)} if shape is not None else {}),
        **(options or {}),
    }
    done = already_written(out, how, settings, force)
    if done is not None:
        return done
    shapes: Counter[Shape] = Counter()  # of samples as they are written
    grey = 0  # of these, in several equal channels
    with LayoutWriter(out, data_set, name or data_set, how=how, settings=settings, generated=generated) as writer:
        samples = source.samples()
        with contextlib.closing(samples):
            for sample in samples:
                if partition is None and not sample.client:
                    raise UserError(
                        f"{source.path} does not say whose its samples are: name the array that does with --client, or "
                        "spread them with --partition dirichlet --clients 100, or another"
                    )
                if partition is not None and source.outline is not None and not len(writer):
                    labels, split = source.outline  # refuses before minutes of writing what cannot be spread
                    labels = number_classes(labels, entry, source.num_classes, source.label_names()).labels
                    spread(partition, labels, np.full_like(split, -1) if local_test else split, seed, test_fraction)
                if sample.x.ndim == 3:
                    shapes[sample.x.shape] += 1
                    grey += sample.x.dtype == np.uint8 and has_equal_channels(sample.x)
                client = "" if partition else sample.client
                writer.add(sample.x, sample.label, client, None if local_test else sample.test, sample.where)
                report_progress(progress, len(writer), source.total())
        read_as = _shape(source, entry, next(iter(shapes), (1, 1, 1)))
        return writer.finish(
            seed=seed,
            test_fraction=test_fraction,
            partition=partition,
            shape=read_as,
            classes=source.num_classes,
            label_names=source.label_names(),
            left_out=source.left_out if isinstance(source, SpeechSource | TextSource) else 0,
            absent=source.absent if isinstance(source, SpeechSource) else 0,
            stratified=local_test,
            notes=[*source.notes(), *_resized_later(shapes, read_as, len(writer), grey)],
        )


def _shape(source: Source, entry: KnownDataSet | None, first: Shape) -> Shape:
    """What models get: the shape that is asked for, else the data set's, else the first sample's."""
    if source.sides is not None:
        return with_channels(source.sides, entry.shape[0] if entry else first[0])
    return entry.shape if entry else check_shape(first)


def _resized_later(shapes: Counter[Shape], shape: Shape, samples: int, grey: int) -> list[str]:
    """A sentence on arrays that are written as they are and resized for jobs to ``shape``; [] where none is. ``grey``
    of them have several equal channels, of which one loses nothing."""
    conversions = Conversions(pictures=samples)
    for array_shape, pictures in shapes.items():
        if array_shape[1:] != shape[1:]:
            conversions.resize(array_shape[1], array_shape[2], shape, pictures)
        conversions.coloured += pictures * (array_shape[0] < shape[0])
        conversions.greyed += pictures * (array_shape[0] > shape[0])
    conversions.greyed = max(conversions.greyed - grey, 0)
    return conversions.sentences(shape, ", which is what models get")


def import_npz(
    path: StrPath,
    out_dir: StrPath,
    data_set: str,
    *,
    x: str = "x",
    y: str = "y",
    client: str = "client",
    split: str | None = None,
    names: str = CLASS_NAMES,
    **common: "Unpack[Common]",
) -> Written:
    """Import arrays of an npz file: ``x`` [N, H, W], [N, H, W, C] or [N, C, H, W] (uint8, or floats in
    0..1), ``y`` int [N], ``client`` [N] (integers or names).

    ``split`` names an array [N] of "train" / "test" or of 0 / 1 (1: test). Where the file has no ``x``,
    ``x_train``, ``x_test``, ``y_train``, … are taken as such a split (``c_train`` also for the clients).
    ``names`` [classes] names the labels: a data set that knows them gives them its own numbers. With ``partition``
    the clients of the file are set aside. A data set of values takes numbers of any kind, one of speech also
    clips [N, n] (int16, 16 kHz; of `fsdd` and `fsdd_mfcc32` 8 kHz).
    """
    keys = {"x": x, "y": y, "client": client, "split": split, "names": names}
    return _import(
        NpzSource(Path(path).expanduser(), x, y, client, split, names, data_set), out_dir, data_set,
        options={"keys": keys}, **common,
    )  # fmt: skip


def import_leaf(
    path: StrPath,
    out_dir: StrPath,
    data_set: str = "femnist",
    **common: "Unpack[Common]",
) -> Written:
    """Import LEAF's JSON (``users``, ``user_data``: {user: {"x": [784 floats in 0..1], "y": [...]}}).

    ``path`` is a file, a folder of them, or a folder with ``train`` and ``test`` below it, whose split is
    then kept. With ``partition`` its users are set aside.
    """
    return _import(LeafSource(Path(path).expanduser()), out_dir, data_set, **common)


def import_text(
    path: StrPath,
    out_dir: StrPath,
    data_set: str = "shakespeare",
    *,
    stride: int | None = None,
    **common: "Unpack[Common]",
) -> Written:
    """Import text as windows of 80 symbols and the one after them: LEAF's Shakespeare (``user_data``: {user: {"x":
    [80 characters], "y": [one]}}) in the places that ``import_leaf`` knows, or JSON as ``{speaker: text}``.

    ``stride``: characters from one window to the next; LEAF's are one apart, and of these one in ``stride`` is taken
    (default: all), texts are cut every 80. A network that reads each position learns every symbol once with 80.
    Speakers without a whole window are left out (dataset.json says how many).
    """
    source = TextSource(Path(path).expanduser(), data_set, stride)
    return _import(source, out_dir, data_set, options={"stride": stride}, **common)


def import_parquet(
    path: StrPath,
    out_dir: StrPath,
    data_set: str = "femnist",
    **common: "Unpack[Common]",
) -> Written:
    """Import the parquet files of Hugging Face's ``flwrlabs/femnist`` (columns ``image`` as a struct with
    ``bytes``, ``writer_id``, ``character``); ``path`` is a file or a folder of them. Needs pyarrow."""
    source = ParquetSource(Path(path).expanduser(), data_set, common.get("shape"))
    return _import(source, out_dir, data_set, **common)


def import_folder(
    path: StrPath,
    out_dir: StrPath,
    data_set: str,
    **common: "Unpack[Common]",
) -> Written:
    """Import a tree ``client/label/*.png`` (jpg, bmp, gif, webp too) or, with ``partition``, ``label/*.png``.

    Labels are the folders' names: numbers as they are, names by the data set's own order of labels, else
    in alphabetical order. Numbers of a kind of one's own that leave gaps are numbered anew from 0. Images get the shape
    of the data set, or ``shape``, or that of the first image, and are turned upright by their EXIF orientation.
    """
    source = FolderSource(Path(path).expanduser(), data_set, common.get("partition") is None, common.get("shape"))
    return _import(source, out_dir, data_set, **common)


def import_cifar(
    path: StrPath,
    out_dir: StrPath,
    data_set: str,
    **common: "Unpack[Common]",
) -> Written:
    """Import CIFAR-10 or CIFAR-100 (fine labels) from ``cifar-10-batches-bin`` or ``cifar-100-binary``, or the folder
    that it lies in. The official split is kept; CIFAR has no clients, so that a ``partition`` is needed."""
    return _import(CifarSource(Path(path).expanduser()), out_dir, data_set, **common)


def import_speech(
    path: StrPath,
    out_dir: StrPath,
    data_set: str,
    *,
    client_map: StrPath | None = None,
    **common: "Unpack[Common]",
) -> Written:
    """Import Speech Commands' wav files; speakers are the clients, or those of ``client_map``, FedScale's JSON
    ``{wav name: client}``, which leaves out the clips that it does not name (dataset.json says how many,
    and how many that it names are ``absent``).

    As ``google_speech`` all 35 words are classes; as ``google_speech12`` ten are, beside as many unknown words and
    seconds of background noise (silence) as a word has clips on average, drawn from ``seed``. As
    ``speech12_mfcc``, FedorAS's task, all other words are unknown ones, and each client has a tenth of its
    clips more as silence. ``speech12_mfcc32`` is the task of ``google_speech12`` with Moss's features, 32 cepstra of 32
    frames.
    """
    map_path = Path(client_map).expanduser() if client_map is not None else None
    if map_path is not None and not map_path.is_file():
        raise UserError(f"the client map {map_path} does not exist")
    source = SpeechSource(Path(path).expanduser(), data_set, map_path, common.get("seed", 1))
    options = {"client_map": fingerprint(map_path) if map_path else None}
    return _import(source, out_dir, data_set, options=options, **common)


def import_svhn(path: StrPath, out_dir: StrPath, data_set: str = "svhn", **common: "Unpack[Common]") -> Written:
    """Import SVHN's cropped digits from the folder of ``train_32x32.mat`` and ``test_32x32.mat``. The official
    split is kept; SVHN has no clients, so that a ``partition`` is needed."""
    return _import(SvhnSource(Path(path).expanduser()), out_dir, data_set, **common)


def import_stl10(path: StrPath, out_dir: StrPath, data_set: str = "stl10", **common: "Unpack[Common]") -> Written:
    """Import STL-10's labelled pictures from ``stl10_binary``, or the folder that it lies in. The official split is
    kept; STL-10 has no clients, so that a ``partition`` is needed."""
    return _import(Stl10Source(Path(path).expanduser()), out_dir, data_set, **common)


def import_unimib(
    path: StrPath, out_dir: StrPath, data_set: str = "unimib_shar", **common: "Unpack[Common]"
) -> Written:
    """Import UniMiB SHAR's falls from the folder of ``fall_data.mat`` and ``fall_labels.mat``, or that of the archive.
    Its subjects are the clients, or those of a ``partition``."""
    return _import(UnimibSource(Path(path).expanduser()), out_dir, data_set, **common)


def import_idx(path: StrPath, out_dir: StrPath, data_set: str, **common: "Unpack[Common]") -> Written:
    """Import Fashion-MNIST or MNIST from the folder of its idx files, packed or not. The official split is kept; they
    have no clients, so that a ``partition`` is needed."""
    return _import(IdxSource(Path(path).expanduser()), out_dir, data_set, **common)


def import_layout(
    path: StrPath,
    out_dir: StrPath,
    data_set: str,
    **common: "Unpack[Common]",
) -> Written:
    """Write a folder in FedScale's layout anew, with the clients of ``partition``. The split into train.csv and
    test.csv is kept, and what was generated stays so; pictures get the data set's shape, speech becomes features."""
    source = LayoutSource(Path(path).expanduser(), data_set, common.get("shape"))
    about = describe(data_folder(source.path), data_set)
    common["name"] = common.get("name") or about.name
    common["generated"] = common.get("generated", False) or about.generated
    return _import(source, out_dir, data_set, **common)
