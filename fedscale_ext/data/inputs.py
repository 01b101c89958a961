"""Samples to predict, without labels: arrays, an npz file, pictures, or a data folder; as a job's models take them.

They are read as ``fedscale dataset import`` reads them, and get the shape of the job's samples. Pixels are uint8,
values float16, both [C, H, W].
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import shape_text
from fedscale_ext.data.decoding.images import decode, png_bytes
from fedscale_ext.data.decoding.sample_files import decode_sample
from fedscale_ext.data.formats.folder import IMAGE_ENDINGS, pictures_in
from fedscale_ext.data.formats.npz_file import NpzSource
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.importing.notes import SampleNotes
from fedscale_ext.data.layout.data_folder import CSV_FOLDER
from fedscale_ext.data.layout.files import describe, read_layout
from fedscale_ext.data.registry import Shape, known

Inputs = Iterator[tuple[str, np.ndarray]]
"""Name and sample [C, H, W] of each input."""


def read_inputs(
    source: Path | np.ndarray, data_set: str, shape: Shape, notice: Callable[[str], None] | None = None
) -> Inputs:
    """Read samples for a model.

    Args:
        source: An npz file with an array ``x``, a picture, a folder of pictures, or a data folder in FedScale's layout;
            or an array as ``x`` is: [N, H, W], [N, H, W, C] or [N, C, H, W], of uint8, of floats in 0..1, or of the
            values of a data set of values.
        data_set: The job's kind of data.
        shape: Of the model's samples, (C, H, W). Pictures are resized to it.
        notice: Gets the notes that an import gives on pictures it converts and on values, after the last input.

    Returns:
        Inputs one by one: the row's number from 0 on, or the file's path below ``source``.

    Raises:
        UserError: If ``source`` is missing, or holds no samples of that kind.

    """
    conversions = Conversions()
    inputs = _read(source, data_set, shape, conversions)
    return inputs if notice is None else _noted(inputs, shape, conversions, notice)


def _noted(inputs: Inputs, shape: Shape, conversions: Conversions, notice: Callable[[str], None]) -> Inputs:
    seen = SampleNotes()
    for name, sample in inputs:
        seen.see(sample, name)
        yield name, sample
    for note in [*conversions.sentences(shape, ", the shape of the job's samples"), *seen.values()]:
        notice(note)


def _read(source: Path | np.ndarray, data_set: str, shape: Shape, conversions: Conversions) -> Inputs:
    if isinstance(source, np.ndarray):
        return _of_array(_npz(Path("the inputs"), data_set).pixels(source, "inputs"), data_set, shape, conversions)
    if not isinstance(source, Path):
        raise UserError(f"inputs are {type(source).__name__}; give a NumPy array, or the path of a file or a folder")
    path = source.expanduser()
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.is_file() and path.suffix == ".npz":
        return _of_array(_npz(path, data_set).samples_alone(), data_set, shape, conversions)
    if path.is_dir() and (path / CSV_FOLDER).is_dir():
        return _of_layout(path, data_set, shape, conversions)
    return _of_pictures(path, data_set, shape, conversions)


def _npz(path: Path, data_set: str) -> NpzSource:
    source = NpzSource(path, "x", "y", "client", None, "classes", data_set)
    source.sides = ()  # whatever their size, they get the model's
    return source


def _of_array(x: np.ndarray, data_set: str, shape: Shape, conversions: Conversions) -> Inputs:
    entry = known(data_set)
    if x.ndim != 4:
        raise UserError(
            f"clips of speech [N, n] are not read here: import them, and give the data folder of {data_set}"
        )
    if entry is not None and entry.values and not _has_order(x.shape[1:], shape, entry.shape):
        raise UserError(f"samples of the shape {shape_text(x.shape[1:])} cannot be those of this job, which are "
                        f"{shape_text(shape)}; are their axes in another order?")  # fmt: skip
    for row, sample in enumerate(x):
        if entry is not None and entry.values:
            yield str(row), sample.reshape(shape)
        elif sample.shape == shape:
            yield str(row), sample
        else:
            yield str(row), decode(png_bytes(sample), shape, f"in row {row}", conversions)


def _has_order(sample: Sequence[int], *shapes: Shape) -> bool:
    """Tell whether values have the axes of one of these shapes, but for sides of 1, or one axis of as many values."""
    sides = [[side for side in shape if side > 1] for shape in (sample, *shapes)]
    flat = len(sides[0]) <= 1 and math.prod(sample) == math.prod(shapes[0])
    return flat or sides[0] in sides[1:]


def _of_pictures(path: Path, data_set: str, shape: Shape, conversions: Conversions) -> Inputs:
    entry = known(data_set)
    if entry is not None and entry.values:
        raise UserError(f"{path} cannot be read: samples of {entry.name} are values, so give an npz file with an array "
                        "x, or a data folder")  # fmt: skip
    files = [path] if path.is_file() else pictures_in(path, "**/*")
    if not files:
        raise UserError(f"{path} holds no pictures ({', '.join(sorted(IMAGE_ENDINGS))}) and is no data folder")
    for file in files:
        name = file.name if file == path else file.relative_to(path).as_posix()
        yield name, decode(file, shape, str(file), conversions, upright=True)


def _of_layout(path: Path, data_set: str, shape: Shape, conversions: Conversions) -> Inputs:
    """The samples of train.csv, then those of test.csv."""
    entry = known(data_set)
    about = describe(path, data_set, shape)
    for part in read_layout(path, data_set, None):
        for row in range(0 if part is None else len(part)):
            assert part is not None
            sample = decode_sample(part.file(row), about.stored, bool(entry and entry.values), conversions)
            yield part.paths[row], sample.reshape(shape)
