"""``fedscale export``: a trained model as a file that phones and boards run."""

from pathlib import Path
from typing import Annotated

import typer

from fedscale_ext.core.errors import UserError


def export(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of a finished job, or its log folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write.")] = Path("model.onnx"),
    model: Annotated[
        str | None, typer.Option("--model", metavar="KEY", help="Key of the model.", show_default="the only one")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Client whose served model is written.")
    ] = None,
) -> None:
    """Write a trained model as ONNX, and check the file against the job.

    The file's input is `samples`, float32 [batch, C, H, W] as the data have them: pixels from 0 to 255, or values. Its
    output is `logits`, [batch, classes]. Names of the labels are in the file's metadata.

    Example: fedscale export fedavg_digits -o digits.onnx

    Example: fedscale export heterofl_digits --client w0007
    """
    from fedscale_ext.api.export import export as written
    from fedscale_ext.driver.naming import find_trained_job
    from fedscale_ext.metrics.accuracy import without_mask
    from fedscale_ext.report.job.loading import load_job

    if model is not None and client is not None:
        raise UserError("--model and --client both name a model; give one of them")
    loaded = load_job(find_trained_job(job))
    if not loaded.finished:
        raise UserError(f"{job} has not ended yet; its models are written at the end")
    try:
        done = written(loaded, out, model, client)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
    on = f"random samples ({done.why_noise})" if done.why_noise else "test samples"
    print(f"model   {done.model} of {loaded.name}")
    print(f"equal   logits of {done.samples:,} {on} differ by at most {done.difference:.1e} of the largest")
    if done.right is not None:
        masked = loaded.evaluation is not None and without_mask(loaded.evaluation) is not None
        of_test = f"the job's last test{' without mask_test' if masked else ''}"
        reached = "" if done.reached is None else f"; {of_test} had {100 * done.reached:.2f} %"
        print(f"right   {100 * done.right:.2f} % of them{reached}")
    print(f"file    {out}, {out.stat().st_size:,} bytes")
