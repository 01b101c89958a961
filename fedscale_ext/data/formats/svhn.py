"""SVHN's cropped digits in MATLAB files, as they are published."""

from collections.abc import Generator

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.mat import read_mat
from fedscale_ext.data.formats.published import Published
from fedscale_ext.data.formats.source import Sample


class SvhnSource(Published):
    """``train_32x32.mat`` and ``test_32x32.mat`` with ``X`` uint8 [32, 32, 3, N] and ``y`` [N, 1], 10 for the digit 0;
    see ``importers.import_svhn``. The additional ``extra_32x32.mat`` is left aside."""

    kind = "SVHN"
    parts = ("train_32x32.mat", "test_32x32.mat")

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; the official split is kept."""
        parts = []
        for part, is_test in zip(self.parts, (False, True), strict=True):
            path = self.file(part)
            x, y = read_mat(path, ("X", "y"))
            y = y.reshape(-1)
            if x.shape != (32, 32, 3, len(y)) or x.dtype != np.uint8:
                raise UserError(f"{path} is not SVHN: X has shape {x.shape} and y {len(y)} labels, not [32, 32, 3, N]")
            if not np.isin(y, np.arange(11)).all():
                raise UserError(f"{path} has labels beyond the digits 1 to 10 (10 for 0)")
            parts.append((x, y.astype(np.int64) % 10, is_test))
        self._outline((y, is_test) for _, y, is_test in parts)
        for x, y, is_test in parts:
            for row, label in enumerate(y.tolist()):
                yield Sample(np.ascontiguousarray(x[..., row].transpose(2, 0, 1)), label, "", is_test)
