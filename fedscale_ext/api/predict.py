"""Predict samples with the model that a job serves a client: their labels, and how probable the model takes them."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from fedscale_ext.api.served_model import load_served_model
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.types import is_personal
from fedscale_ext.data.inputs import read_inputs
from fedscale_ext.metrics.job_folder.round_records import trained_clients
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.server.method_base.method_traits import untrained_weights

_BATCH = 256
COLUMNS = ("name", "label", "probability")


@dataclass(frozen=True)
class Prediction:
    """A sample's prediction.

    Attributes:
        name: The input's: a file below the folder, or the number of a row, from 0 on.
        label: Name of the class with the largest logit.
        probability: The softmax of its logit, in [0, 1].

    """

    name: str
    label: str
    probability: float


def predict(
    job: LoadedJob, client: str, inputs: Path | np.ndarray, notice: Callable[[str], None] | None = None
) -> Iterator[Prediction]:
    """Predict inputs one by one.

    Args:
        job: A finished job.
        client: Name of the client whose served model predicts.
        inputs: What :func:`fedscale_ext.data.inputs.read_inputs` takes.
        notice: Gets a sentence on a client's own model that was never trained, before the first prediction, and
            sentences on the inputs after the last one.

    Raises:
        UserError: If the client or its model is not there, or inputs cannot be read.

    """
    served = load_served_model(job, client)
    number = job.client_number(client)
    if notice is not None and is_personal(served.key) and number not in trained_clients(job.records):
        weights = untrained_weights(method_class(job.header["method"]))
        notice(f"client {client} never trained: {weights}")
    samples_by_name = read_inputs(inputs, served.data_set, served.shape, notice)
    while part := list(islice(samples_by_name, _BATCH)):
        names, samples = zip(*part, strict=True)
        logits = served.logits(np.stack(samples)).double()
        probability, label = logits.softmax(1).max(1)
        for name, index, share in zip(names, label.tolist(), probability.tolist(), strict=True):
            yield Prediction(name, served.labels[index], share)


def comma_separated(predictions: Iterator[Prediction]) -> str:
    """Write predictions as CSV with a line of titles; probabilities have six digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([each.name, each.label, f"{each.probability:.6f}"] for each in predictions)
    return out.getvalue()
