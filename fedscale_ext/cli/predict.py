"""``fedscale predict``: labels of new samples, by the model that a job serves a client."""

from pathlib import Path
from typing import Annotated

import typer

from fedscale_ext.cli import complete


def predict(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Name of a finished job, or its log folder.", autocompletion=complete.jobs_and_arms
        ),
    ],
    inputs: Annotated[
        Path,
        typer.Argument(metavar="INPUTS", help="An npz file with an array x, a folder of pictures, or a data folder."),
    ],
    client: Annotated[str, typer.Option("--client", metavar="NAME", help="Client whose served model predicts.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="CSV file to write.", show_default="printed")
    ] = None,
) -> None:
    """Predict new samples with the model that a job serves a client.

    Writes a line per sample: its name or row, the predicted label, and the probability. Samples get the shape and the
    normalisation of the job's data. Notes say how this changes pictures.

    Exit code 0 if all samples are predicted, 2 for bad input.

    Example: fedscale predict fedavg_digits photos/ --client w0007

    Example: fedscale predict local_digits new.npz --client w0007 -o predictions.csv
    """
    from fedscale_ext.api.predict import comma_separated
    from fedscale_ext.api.predict import predict as predicted
    from fedscale_ext.driver.naming import find_trained_job
    from fedscale_ext.report.job.loading import load_job
    from fedscale_ext.util.atomic_files import refusing, write_atomic

    notes: list[str] = []
    text = comma_separated(predicted(load_job(find_trained_job(job)), client, inputs, notes.append))
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if out is None:
        print(text, end="")
        return
    with refusing(out):
        write_atomic(out, text)
    print(f"predictions  {out}, {text.count(chr(10)) - 1:,} samples")
