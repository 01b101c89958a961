"""Clients' confusion matrices in an executor's answer: the section, and the check of whoever sent it.

A unit asks for them by its header's ``classes``, only in the last test of a job. The matrices have no zeros, so that
an answer grows by a few bytes a test sample.
"""

from typing import Final

import numpy as np

from fedscale_ext.core.confusion import Confusion, from_tensors, to_tensors
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import UnitHeader

CLASSES: Final = "classes"  # in the header of a unit whose answer has them: the number of classes
SECTION = "confusion"


def confusion_section(confusion: Confusion) -> bytes:
    """Write clients' matrices as a section."""
    return wire.tensors_to_bytes(to_tensors(confusion))


def read_confusion(header: UnitHeader, section: wire.Section) -> Confusion:
    """Read the result of :func:`confusion_section` for the unit of a header; WireError for anything else."""
    try:
        return from_tensors(wire.bytes_to_tensors(section), header[CLASSES])
    except ValueError as error:
        raise wire.WireError(str(error)) from None


def check_confusion(header: UnitHeader, section: wire.Section, counts: np.ndarray, correct: np.ndarray) -> Confusion:
    """Return the matrices of a section; WireError unless they are of so many test samples and correct answers.

    Args:
        header: The unit's.
        section: The section.
        counts: int64 [clients], test samples of each of the unit's clients.
        correct: float64 [clients], correct answers by the figures that come with it.

    """
    confusion = read_confusion(header, section)
    if confusion.num_clients != len(counts):
        raise wire.WireError(f"confusion matrices of {confusion.num_clients} clients, {len(counts)} were asked for")
    if not (np.array_equal(confusion.samples, counts) and np.array_equal(confusion.correct, correct)):
        raise wire.WireError("confusion matrices that do not add up to the figures beside them")
    return confusion
