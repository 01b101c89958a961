"""AUC in an executor's answer: the section, and the check of whoever sent it.

A unit asks for it by its header's ``auc``, which lists the clients whose scores count: those that are served the unit's
model. Only the last test of a job with the key ``auc`` does.
"""

from typing import Final

import numpy as np

from fedscale_ext.core.auc import AucSums, bins_of, from_tensors, to_tensors
from fedscale_ext.core.confusion import Confusion
from fedscale_ext.tasks.answers.confusion import CLASSES
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import UnitHeader

AUC: Final = "auc"  # in the header of a unit, and the section of its answer


def auc_section(sums: AucSums) -> bytes:
    """Write sums as a section."""
    return wire.tensors_to_bytes(to_tensors(sums))


def read_auc(header: UnitHeader, section: wire.Section) -> AucSums:
    """Read the result of :func:`auc_section` for the unit of a header; WireError for anything else."""
    try:
        return from_tensors(wire.bytes_to_tensors(section), header[CLASSES])
    except ValueError as error:
        raise wire.WireError(str(error)) from None


def check_auc(header: UnitHeader, section: wire.Section, confusion: Confusion) -> None:
    """Raise WireError unless a section has sums of the samples that the unit's confusion matrices count."""
    sums = read_auc(header, section)
    asked = set(header[AUC])
    scored = confusion.of([row for row, client in enumerate(header["clients"]) if client in asked])
    client, _ = scored.tested_classes
    if len(sums.areas) != len(client):
        raise wire.WireError(f"{len(sums.areas)} areas of AUC, the clients' samples are of {len(client)} classes")
    of_one_class = np.bincount(client, minlength=1)[client] == 1
    if not np.array_equal(np.isnan(sums.areas), of_one_class):
        raise wire.WireError("areas of AUC of clients with one class, or none of clients with several")
    samples = np.bincount(scored.true, scored.counts, scored.classes)
    each = np.bincount(sums.cells // bins_of(scored.classes), sums.counts, 2 * scored.classes)
    others, own = each.reshape(2, -1)
    if not (np.array_equal(own, samples) and np.array_equal(others, samples.sum() - samples)):
        raise wire.WireError("counts of AUC that do not add up to the clients' samples")
