"""UniMiB SHAR's falls (Micucci, Mobilio, Napoletano 2017, task AF-8): windows of a phone's accelerometer."""

from collections.abc import Generator

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.sample_files import as_values
from fedscale_ext.data.formats.mat import read_mat
from fedscale_ext.data.formats.published import Published
from fedscale_ext.data.formats.source import Sample
from fedscale_ext.data.registry import known

_AXES, _TIMES = 3, 151
DATA_SET = "unimib_shar"


class UnimibSource(Published):
    """``fall_data.mat`` with ``fall_data`` [N, 453], 151 times of x, then y, then z, and ``fall_labels.mat`` with
    ``fall_labels`` [N, 3]: kind of fall 1..8, subject, trial; see ``importers.import_unimib``.

    As in HypeMeFed's public code, the last time is dropped and the rest cut into 18 rows of 25: [1, 18, 25], six rows
    to an axis. The same numbers are [3, 1, 150] for a network along time.
    """

    kind = "UniMiB SHAR"
    parts = ("fall_data.mat", "fall_labels.mat")
    subfolders = ("data", "UniMiB-SHAR/data")

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; windows come by subject, who is the client. There is no split."""
        entry, folder = known(DATA_SET), self.folder()
        assert entry is not None
        (windows,) = read_mat(self.file("fall_data.mat"), ["fall_data"])
        (labels,) = read_mat(self.file("fall_labels.mat"), ["fall_labels"])
        count = len(windows)
        if windows.shape != (count, _AXES * _TIMES) or labels.shape != (count, 3):
            raise UserError(
                f"{folder} is not UniMiB SHAR: fall_data has shape {windows.shape} and fall_labels {labels.shape}, "
                f"not [N, {_AXES * _TIMES}] and [N, 3]"
            )
        if not np.isin(labels[:, 0], np.arange(1, entry.classes + 1)).all():
            raise UserError(f"{folder / 'fall_labels.mat'} has kinds of falls beyond 1 to {entry.classes}")
        cropped = windows.reshape(count, _AXES, _TIMES)[:, :, :-1].reshape(count, *entry.shape)
        x = as_values(cropped, f"fall_data of {folder}")
        self._outline([(labels[:, 0].astype(np.int64) - 1, None)])
        for row in np.argsort(labels[:, 1], kind="stable").tolist():
            yield Sample(x[row], int(labels[row, 0]) - 1, f"{labels[row, 1]:g}", None)
