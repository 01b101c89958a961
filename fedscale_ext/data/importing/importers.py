"""Bring real data into FedScale's layout: npz arrays, data sets of the Hugging Face Hub, LEAF's JSON, texts by speaker,
FEMNIST as parquet, folders of images, CIFAR's and STL-10's binary files, Speech Commands, SVHN, UniMiB SHAR, idx files;
and folders in that layout anew, with other clients.

Each function writes ``out_dir`` completely or not at all, keeps pixels as they are given, and returns
:class:`Written`. A second call with the same source and options finds the work done; anything else
in ``out_dir`` is replaced only with the option ``force``. See :class:`ImportOptions` for what all of them take.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape, with_channels
from fedscale_ext.data.decoding.cache import FOLDER
from fedscale_ext.data.formats.cifar import CifarSource
from fedscale_ext.data.formats.folder import FolderSource
from fedscale_ext.data.formats.hugging_face import DatasetsSource
from fedscale_ext.data.formats.idx import IdxSource
from fedscale_ext.data.formats.leaf import LeafSource
from fedscale_ext.data.formats.npz_file import NpzSource
from fedscale_ext.data.formats.parquet import ParquetSource
from fedscale_ext.data.formats.source import Source
from fedscale_ext.data.formats.speech import SpeechSource
from fedscale_ext.data.formats.stl10 import Stl10Source
from fedscale_ext.data.formats.svhn import SvhnSource
from fedscale_ext.data.formats.text import TextSource
from fedscale_ext.data.formats.unimib import UnimibSource
from fedscale_ext.data.importing.conversions import Conversions, has_equal_channels
from fedscale_ext.data.importing.options import (
    DatasetsOptions,
    ImportOptions,
    NpzOptions,
    SpeechOptions,
    StrPath,
    TextOptions,
)
from fedscale_ext.data.importing.relayout import LayoutSource
from fedscale_ext.data.importing.sole_writer import sole_writer
from fedscale_ext.data.importing.writer import LayoutWriter, Written, already_written
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import describe
from fedscale_ext.data.layout.labels import number_classes
from fedscale_ext.data.progress import report_progress
from fedscale_ext.data.registry import KnownDataSet, Shape, canonical, known

_ANY, _NPZ, _TEXT, _SPEECH = ImportOptions(), NpzOptions(), TextOptions(), SpeechOptions()
_DATASETS = DatasetsOptions()


def fingerprint(source: Path, files: Sequence[Path] | None = None) -> str:
    """sha256 over the names and bytes of a file or of all files below a folder, or of ``files``; UserError for a name
    that is not UTF-8, which the data folder cannot repeat."""
    digest = hashlib.sha256()
    if files is None and source.is_file():
        files = [source]
    elif files is None:
        files = sorted(path for path in source.rglob("*") if path.is_file() and FOLDER not in path.parts)
    for path in files:
        name = path.relative_to(source.parent) if path.is_relative_to(source.parent) else path.name
        try:
            digest.update(f"{name}\n{path.stat().st_size}\n".encode())
        except UnicodeEncodeError:
            raise UserError(f"the name of the file {str(name)!r} is not UTF-8: rename it") from None
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def _import(source: Source, out_dir: StrPath, data_set: str, options: ImportOptions, **settings: Any) -> Written:
    """Import what ``source`` yields.

    Args:
        source: the samples.
        out_dir: folder to write.
        data_set: kind of data.
        options: see :class:`ImportOptions`.
        settings: what else decides the outcome, for dataset.json: another import with other values is another one.

    """
    out, how = Path(out_dir).expanduser(), f"imported from {source.kind}"
    if not source.exists():
        raise UserError(f"{source.path} does not exist")
    if not data_set:
        raise UserError("the data set to import as has no name: see `fedscale dataset list`")
    entry = known(data_set)
    data_set = canonical(data_set)
    options.check(entry)
    if options.shape is not None:
        source.sides = options.shape
    settings = {
        "source": source.title,
        "sha256": fingerprint(source.path, source.files()),
        "name": options.name or data_set,
        "data_set": data_set,
        "partition": options.partition.settings() if options.partition else None,
        "test_fraction": options.test_fraction,
        "seed": options.seed,
        **({"local_test": True} if options.local_test else {}),
        **({"shift": options.shift.settings()} if options.shift is not None else {}),
        **({"generated": True} if options.generated else {}),
        **({"shape": list(options.shape)} if options.shape is not None else {}),
        **settings,
    }
    done = already_written(out, how, settings, options.force, source.inputs())
    if done is not None:
        return done
    with sole_writer(out):
        done = already_written(out, how, settings, options.force, source.inputs())  # by a command that ended meanwhile
        return _write(source, out, how, settings, options) if done is None else done


def _write(source: Source, out: Path, how: str, settings: dict[str, Any], options: ImportOptions) -> Written:
    """Write the samples of a source to ``out``."""
    entry = known(settings["data_set"])
    name, generated = settings["name"], options.generated
    with LayoutWriter(out, settings["data_set"], name, how=how, settings=settings, generated=generated) as writer:
        pictures = _write_samples(source, writer, options)
        shape = _shape(source, entry, next(iter(pictures.shapes), (1, 1, 1)))
        notes = _resized_later(pictures, shape, len(writer))
        return writer.finish(options.allocation, shape, source, notes, options.shift)


@dataclass
class _Pictures:
    """Counts of the pictures that an import wrote, before jobs resize them.

    ``shapes`` counts them by shape. ``grey`` of them have several equal channels, of which one loses nothing.
    """

    shapes: Counter[Shape] = field(default_factory=Counter)
    grey: int = 0


def _write_samples(source: Source, writer: LayoutWriter, options: ImportOptions) -> _Pictures:
    """Write every sample of the source; UserError for samples without a client, or too few for the partition."""
    pictures, own_clients = _Pictures(), options.own_clients
    with contextlib.closing(source.samples()) as samples:
        for sample in samples:
            if own_clients and not sample.client:
                raise UserError(
                    f"{source.path} does not say whose its samples are: name the array that does with --client, or "
                    "spread them with --partition dirichlet --clients 100, or another"
                )
            if not own_clients and not len(writer):
                _check_partition(source, writer.entry, options)
            if sample.x.ndim == 3:
                pictures.shapes[sample.x.shape] += 1
                pictures.grey += sample.x.dtype == np.uint8 and has_equal_channels(sample.x)
            client = sample.client if own_clients else ""
            writer.add(sample.x, sample.label, client, None if options.local_test else sample.test, sample.where)
            report_progress(options.progress, len(writer), source.total())
    return pictures


def _check_partition(source: Source, entry: KnownDataSet | None, options: ImportOptions) -> None:
    """Raise UserError before minutes of writing, where the source's outline tells that a partition cannot be."""
    if source.outline is not None:
        labels, split = source.outline
        labels = number_classes(labels, entry, source.num_classes, source.label_names).labels
        options.allocation.clients(labels, np.full_like(split, -1) if options.local_test else split)


def _shape(source: Source, entry: KnownDataSet | None, first: Shape) -> Shape:
    """What models get: the shape that is asked for, else the data set's, else the first sample's."""
    if source.sides is not None:
        return with_channels(source.sides, entry.shape[0] if entry else first[0])
    return entry.shape if entry else check_shape(first)


def _resized_later(pictures: _Pictures, shape: Shape, samples: int) -> list[str]:
    """A sentence on arrays that are written as they are and resized for jobs to ``shape``; [] where none is."""
    conversions = Conversions(pictures=samples)
    for array_shape, number in pictures.shapes.items():
        if array_shape[1:] != shape[1:]:
            conversions.resize(array_shape[1], array_shape[2], shape, number)
        conversions.coloured += number * (array_shape[0] < shape[0])
        conversions.greyed += number * (array_shape[0] > shape[0])
    conversions.greyed = max(conversions.greyed - pictures.grey, 0)
    return conversions.sentences(shape, ", which is what models get")


def import_npz(path: StrPath, out_dir: StrPath, data_set: str, options: NpzOptions = _NPZ) -> Written:
    """Import arrays of an npz file; :class:`NpzOptions` names them.

    Where the file has no ``x``, ``x_train``, ``x_test``, ``y_train``, … are taken as a split (``c_train`` also for the
    clients). With a partition the clients of the file are set aside. A data set of values takes numbers of any kind,
    one of speech also clips [N, n] (int16, 16 kHz; of `fsdd` and `fsdd_mfcc32` 8 kHz).
    """
    source = NpzSource(
        Path(path).expanduser(), options.x, options.y, options.client, options.split, options.names, data_set,
        transposed=options.transposed,
    )  # fmt: skip
    turned = {"transposed": True} if options.transposed else {}
    return _import(source, out_dir, data_set, options, keys=options.arrays, **turned)


def import_datasets(path: StrPath, out_dir: StrPath, data_set: str, options: DatasetsOptions = _DATASETS) -> Written:
    """Import a data set of the Hugging Face Hub, ``hf:OWNER/NAME``, or a folder of ``datasets.save_to_disk``.

    :class:`DatasetsOptions` names columns and splits. Names of class labels are kept; a known data set gives them its
    own numbers. A repository's own code is never run.
    """
    source = DatasetsSource(Path(path), options.x, options.y, options.client, options.split, data_set, options.shape)
    return _import(source, out_dir, data_set, options, columns=options.columns)


def import_leaf(path: StrPath, out_dir: StrPath, data_set: str = "femnist", options: ImportOptions = _ANY) -> Written:
    """Import LEAF's JSON (``users``, ``user_data``: {user: {"x": [784 floats in 0..1], "y": [...]}}).

    ``path`` is a file, a folder of them, or a folder with ``train`` and ``test`` below it, whose split is
    then kept. With a partition its users are set aside.
    """
    return _import(LeafSource(Path(path).expanduser()), out_dir, data_set, options)


def import_text(
    path: StrPath, out_dir: StrPath, data_set: str = "shakespeare", options: TextOptions = _TEXT
) -> Written:
    """Import text as windows of 80 symbols and the one after them: LEAF's Shakespeare (``user_data``: {user: {"x":
    [80 characters], "y": [one]}}) in the places that ``import_leaf`` knows, or JSON as ``{speaker: text}``.

    A network that reads each position learns every symbol once with a stride of 80. Speakers without a whole window are
    left out (dataset.json says how many).
    """
    source = TextSource(Path(path).expanduser(), data_set, options.stride)
    return _import(source, out_dir, data_set, options, stride=options.stride)


def import_parquet(
    path: StrPath, out_dir: StrPath, data_set: str = "femnist", options: ImportOptions = _ANY
) -> Written:
    """Import the parquet files of Hugging Face's ``flwrlabs/femnist`` (columns ``image`` as a struct with
    ``bytes``, ``writer_id``, ``character``); ``path`` is a file or a folder of them. Needs pyarrow."""
    source = ParquetSource(Path(path).expanduser(), data_set, options.shape)
    return _import(source, out_dir, data_set, options)


def import_folder(path: StrPath, out_dir: StrPath, data_set: str, options: ImportOptions = _ANY) -> Written:
    """Import a tree ``client/label/*.png`` (jpg, bmp, gif, webp too) or, with partition, ``label/*.png``.

    Labels are the folders' names: numbers as they are, names by the data set's own order of labels, else
    in alphabetical order. Numbers of a kind of one's own that leave gaps are numbered anew from 0. Images get the shape
    of the data set, or ``shape``, or that of the first image, and are turned upright by their EXIF orientation.
    """
    source = FolderSource(Path(path).expanduser(), data_set, options.own_clients, options.shape)
    return _import(source, out_dir, data_set, options)


def import_cifar(path: StrPath, out_dir: StrPath, data_set: str, options: ImportOptions = _ANY) -> Written:
    """Import CIFAR-10 or CIFAR-100 (fine labels) from ``cifar-10-batches-bin`` or ``cifar-100-binary``, or the folder
    that they lie in, where ``data_set`` tells which. The official split is kept; CIFAR has no clients, so that a
    partition is needed."""
    return _import(CifarSource(Path(path).expanduser(), data_set), out_dir, data_set, options)


def import_speech(path: StrPath, out_dir: StrPath, data_set: str, options: SpeechOptions = _SPEECH) -> Written:
    """Import Speech Commands' wav files; speakers are the clients, or those of ``client_map``, FedScale's JSON
    ``{wav name: client}``, which leaves out the clips that it does not name (dataset.json says how many,
    and how many that it names are ``absent``).

    As ``speech`` all 35 words are classes; as ``speech12`` ten are, beside as many unknown words and
    seconds of background noise (silence) as a word has clips on average, drawn from ``seed``. As
    ``speech12_mfcc``, FedorAS's task, all other words are unknown ones, and each client has a tenth of its
    clips more as silence. ``speech12_mfcc32`` is the task of ``speech12`` with Moss's features, 32 cepstra of 32
    frames.
    """
    client_map = Path(options.client_map).expanduser() if options.client_map is not None else None
    if client_map is not None and not client_map.is_file():
        raise UserError(f"the client map {client_map} does not exist")
    source = SpeechSource(Path(path).expanduser(), data_set, client_map, options.seed)
    return _import(source, out_dir, data_set, options, client_map=fingerprint(client_map) if client_map else None)


def import_svhn(path: StrPath, out_dir: StrPath, data_set: str = "svhn", options: ImportOptions = _ANY) -> Written:
    """Import SVHN's cropped digits from the folder of ``train_32x32.mat`` and ``test_32x32.mat``. The official
    split is kept; SVHN has no clients, so that a partition is needed."""
    return _import(SvhnSource(Path(path).expanduser()), out_dir, data_set, options)


def import_stl10(path: StrPath, out_dir: StrPath, data_set: str = "stl10", options: ImportOptions = _ANY) -> Written:
    """Import STL-10's labelled pictures from ``stl10_binary``, or the folder that it lies in. The official split is
    kept; STL-10 has no clients, so that a partition is needed."""
    return _import(Stl10Source(Path(path).expanduser()), out_dir, data_set, options)


def import_unimib(
    path: StrPath, out_dir: StrPath, data_set: str = "unimib_shar", options: ImportOptions = _ANY
) -> Written:
    """Import UniMiB SHAR's falls from the folder of ``fall_data.mat`` and ``fall_labels.mat``, or that of the archive.
    Its subjects are the clients, or those of a partition."""
    return _import(UnimibSource(Path(path).expanduser()), out_dir, data_set, options)


def import_idx(path: StrPath, out_dir: StrPath, data_set: str, options: ImportOptions = _ANY) -> Written:
    """Import Fashion-MNIST or MNIST from the folder of its idx files, packed or not, or from torchvision's folder,
    where ``data_set`` tells which. The official split is kept; they have no clients, so that a partition is needed."""
    return _import(IdxSource(Path(path).expanduser(), data_set), out_dir, data_set, options)


def import_layout(path: StrPath, out_dir: StrPath, data_set: str, options: ImportOptions = _ANY) -> Written:
    """Write a folder in FedScale's layout anew, with the clients of the partition. The split into train.csv and
    test.csv is kept, and what was generated stays so; pictures get the data set's shape, speech becomes features."""
    source = LayoutSource(Path(path).expanduser(), data_set, options.shape)
    about = describe(data_folder(source.path), data_set)
    options = replace(options, name=options.name or about.name, generated=options.generated or about.generated)
    return _import(source, out_dir, data_set, options)
