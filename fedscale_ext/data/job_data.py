"""A job's data set, as executors and aggregator open it alike, the server's public data, and clients' main classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedscale_ext.config.data_settings import data_settings
from fedscale_ext.config.job_config import JobConfig, set_aside
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import names_in, read_description
from fedscale_ext.data.majority import majority_labels
from fedscale_ext.data.progress import Progress
from fedscale_ext.data.public import PublicData, of_another_folder, of_the_same_task
from fedscale_ext.data.public_draw import PublicDraw
from fedscale_ext.data.store import TEST_CSV, DataSet, open_data_set


def open_job_data(config: JobConfig, progress: Progress | None = None) -> DataSet:
    """Open the clients' data set. Public samples of the same task belong to no client.

    The job's ``seed`` does not affect it. ``progress`` is called with the number of decoded samples.
    """
    return open_data_set(**data_arguments(config.echo()), progress=progress)


def local_digest(config: JobConfig) -> str | None:
    """Return the digest of the job's data on this machine; None where ``data_dir`` holds no data set.

    Raises:
        UserError: If there is a data set, but a broken one.

    """
    try:
        data_folder(config.fedscale.data_dir)
    except UserError:
        return None
    return open_job_data(config).digest


def open_recorded_data(echo: Mapping[str, Any]) -> DataSet:
    """Open the clients' data set of a finished job, as the job did.

    Args:
        echo: The ``config`` of the job's header.json.

    Raises:
        UserError: If the data are not there any more, or cannot be read.
        KeyError: If ``echo`` is not that of a job.

    """
    return open_data_set(**data_arguments(echo))


def data_arguments(echo: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of ``open_data_set`` for the clients' data set: equal ones give the same data set."""
    settings = data_settings(echo)
    draw = settings["public_draw"]
    return {**settings, "public_draw": None if draw is None else PublicDraw(*draw)}


def check_same_data(config: JobConfig, digest: str, before: str, when: str) -> None:
    """Raise UserError where a resumed job's data set has another ``digest`` than ``before``.

    ``when`` names the time of ``before``.
    """
    if digest != before:
        raise UserError(
            f"data_dir {config.fedscale.data_dir} holds other samples or clients than when {when}: put these back, or "
            "start anew without --resume"
        )


def source_notice(config: JobConfig, executors: int, local_digest: str | None) -> str | None:
    """Return a notice about a job without ``executors`` of its own whose data are on other machines; None for others.

    ``local_digest`` is the digest of the data on this machine, if there are any.
    """
    if executors or local_digest is not None:
        return None
    return (
        f"this machine has no data set in {config.fedscale.data_dir}: the job's data are those of the executor that "
        "joined first"
    )


def split_notice(config: JobConfig, test_source: str) -> str | None:
    """Return a notice about a configured ``test_split`` or ``data_seed`` that the data ignore; None for none."""
    # with a test.csv that names no training client, samples are held out after all: the csv being there is no reason
    if test_source != TEST_CSV:
        return None
    unread = []
    if "test_split" in config.given:
        unread.append("test_split does nothing: the data have a test.csv")
    if "data_seed" in config.given and not config.job.public_samples:
        unread.append("data_seed does nothing: the data have a test.csv, and public_samples is 0")
    return "; ".join(unread) or None


def public_notice(config: JobConfig, used: bool) -> str | None:
    """Return a job's first notice about its public data; None where it has none.

    ``used``: whether its method uses them.
    """
    job, samples = config.job, set_aside(config.echo())
    if samples and used:
        return f"{samples:,} training samples are set aside from the clients as public data"
    if samples:
        return (
            f"{samples:,} training samples are set aside as public data, as for every method of this configuration; "
            "this job's method does not use them"
        )
    if job.public_dir and not used:
        return f"this job's method does not use public data: it leaves public_dir {job.public_dir} unread"
    return None


def public_data(config: JobConfig, digest: str) -> PublicData:
    """Open the server's public data in a job whose executors reported the data set ``digest``."""
    job = config.job
    if not job.public_samples:
        raise UserError(
            f"method {job.method} learns from public data that the server holds: set public_samples to their number"
        )
    data = _as_executors(config, digest, "so that public samples could be clients'")
    if job.public_dir is None:
        return of_the_same_task(data, job.public_fraction, job.public_classes == "balanced")
    labels = names_in(read_description(data_folder(config.fedscale.data_dir)))
    draw = PublicDraw(job.public_samples, job.public_classes, job.public_alpha)
    return of_another_folder(job.public_dir, draw, job.public_fraction, job.data_seed, data, labels)


def main_classes(config: JobConfig, digest: str) -> np.ndarray:
    """Return the most frequent class of each client's training samples, int64 [clients].

    Of equally frequent classes the first counts. ``digest`` is the data set that the executors reported. Only a
    simulation can look at clients' labels.
    """
    data = _as_executors(config, digest, "so that clients' classes are not known")
    return majority_labels(data.train, data.y)


def _as_executors(config: JobConfig, digest: str, consequence: str) -> DataSet:
    """The clients' data set; UserError where the executors' is another one."""
    data = open_job_data(config)
    if data.digest != digest:
        raise UserError(
            f"data_dir {config.fedscale.data_dir} holds other samples or clients on the aggregator's machine than on "
            f"the executors', {consequence}; copy the folder"
        )
    return data
