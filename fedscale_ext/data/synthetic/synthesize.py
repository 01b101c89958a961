"""Generated handwriting, so that a newcomer has data at once: characters by made-up writers."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.importing.allocation import Allocation
from fedscale_ext.data.importing.sole_writer import sole_writer
from fedscale_ext.data.importing.writer import LayoutWriter, Written, already_written
from fedscale_ext.data.progress import Progress, report_progress
from fedscale_ext.data.registry import CHARACTERS, DIGITS
from fedscale_ext.data.synthetic.glyphs import draw, writer_style

HOW = "generated from the fonts that ship with matplotlib"
MAX_WRITERS = 3400
_VERSION = 1  # of the drawing: raise it when the same settings would give other pictures


@dataclass(frozen=True)
class Handwriting:
    """A data set that can be generated: the first ``classes`` of the 62 characters, so many samples of each."""

    classes: int
    samples_per_class: int


GENERATED = {
    "femnist": Handwriting(len(CHARACTERS), 2),
    "digits": Handwriting(len(DIGITS), 12),
}
"""What can be generated, by the name of the data set."""


def synthesize(
    data_set: str,
    out_dir: str | os.PathLike[str],
    *,
    writers: int = 200,
    samples_per_class: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write a generated data set of ``writers`` clients with ``samples_per_class`` samples of each class.

    Writer ``w`` draws from its own streams: more writers leave the first ones as they are. The folder's
    dataset.json says ``generated``, its name contains it. With the same settings already there nothing is
    done (``already_there``); other content of ``out_dir`` is replaced only with ``force``.

    ``data_set`` is a key of ``GENERATED``, which has the default of ``samples_per_class``. UserError for a data set
    that cannot be generated, an impossible setting, or a folder with other content.
    """
    if data_set not in GENERATED:
        raise UserError(f"{data_set!r} cannot be generated; {' and '.join(GENERATED)} can")
    drawn = GENERATED[data_set]
    samples_per_class = drawn.samples_per_class if samples_per_class is None else samples_per_class
    if not 1 <= writers <= MAX_WRITERS:
        raise UserError(f"the number of writers must be 1 to {MAX_WRITERS}, not {writers}")
    if not 1 <= samples_per_class <= 100:
        raise UserError(f"the samples per class and writer must be 1 to 100, not {samples_per_class}")
    out = Path(out_dir).expanduser()
    settings = {
        "writers": writers,
        "samples_per_class": samples_per_class,
        "test_fraction": test_fraction,
        "seed": seed,
        "version": _VERSION,
    }
    done = already_written(out, HOW, settings, force)
    if done is not None:
        return done
    labels = np.tile(np.arange(drawn.classes), samples_per_class)
    total = writers * len(labels)
    with sole_writer(out):
        done = already_written(out, HOW, settings, force)  # by a command that ended meanwhile
        if done is not None:
            return done
        with LayoutWriter(out, data_set, f"{data_set}-generated", how=HOW, settings=settings, generated=True) as writer:
            for number in range(1, writers + 1):
                pictures = draw(writer_style(seed, number), labels, stream(seed, 0, number, "glyph samples"))
                for picture, label in zip(pictures, labels.tolist(), strict=True):
                    writer.add(picture[None], label, f"w{number:04d}")
                    report_progress(progress, len(writer), total)
            return writer.finish(Allocation(seed, test_fraction), (1, *pictures.shape[1:]))
