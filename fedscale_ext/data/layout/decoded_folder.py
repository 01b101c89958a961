"""A data folder read and decoded, for all who need no tensors: its csv files and the samples that they name."""

import os
from dataclasses import dataclass, replace

from fedscale_ext.data.decoding.cache import Cached, open_cache
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import Description, describe, read_layout
from fedscale_ext.data.layout.sample_csv import SampleTable
from fedscale_ext.data.progress import Progress


@dataclass(frozen=True)
class Decoded:
    """A data folder: its description, the rows of its csv files, and their samples in order.

    ``test`` is None without a test.csv. Samples have the shape of ``about``.
    """

    about: Description
    train: SampleTable
    test: SampleTable | None
    samples: Cached


def open_decoded(
    data_dir: str | os.PathLike[str],
    data_set: str,
    data_map_file: str | os.PathLike[str] | None = None,
    input_shape: tuple[int, int, int] | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """Open a data folder in FedScale's layout; the first time, decode its images into the cache.

    ``data_map_file`` takes the place of train.csv, ``input_shape`` (C, H, W) resizes pictures and gives values another
    shape of as many numbers, in their order. Raises UserError for anything that is missing or broken, naming the file
    (and line) and what to do.
    """
    folder = data_folder(data_dir, data_set)
    about = describe(folder, data_set, input_shape)
    train, test = read_layout(folder, data_set, about.classes, data_map_file)
    parts = [train] if test is None else [train, test]
    samples = open_cache(folder, parts, about.stored, progress, values=about.values)
    shaped = replace(samples, x=samples.x.reshape(len(samples.x), *about.shape))
    return Decoded(about, train, test, shaped)
