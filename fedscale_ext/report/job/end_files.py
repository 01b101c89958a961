"""The files that a job writes at its end, and no earlier."""

import shutil
from pathlib import Path

from fedscale_ext.metrics.job_folder.model_files import FOLDER as MODELS
from fedscale_ext.metrics.summary import SUMMARY
from fedscale_ext.report.job.tables import MARKDOWN

JOB_PLOT = "plot.png"
GROWTH_PLOT = "growth.png"


def drop_end(directory: Path) -> None:
    """Remove the summary, the models and the pictures of a job that goes on: from then on it has not ended.

    The summary goes first, as readers take a job that has one for finished. The last checkpoint has the weights.
    """
    for name in (SUMMARY, MARKDOWN, JOB_PLOT, GROWTH_PLOT):
        (directory / name).unlink(missing_ok=True)
    shutil.rmtree(directory / MODELS, ignore_errors=True)
