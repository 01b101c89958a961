"""``fedscale models``: the named models with their costs on a data set."""

from pathlib import Path
from typing import Annotated

import typer

from fedscale_ext.cli import complete
from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.core.model_spec import ModelSpec

_MEGA = 1e6


def list_models(
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="NAME|FOLDER",
            help="Data set whose samples the models read: a known one, or a data folder of yours.",
            autocompletion=complete.data_sets,
        ),
    ] = "cifar10",
) -> None:
    """List the named models: parameters, MACs on samples of a data set, and the parts that some methods need.

    A configuration takes one by `model: NAME`. MACs are of one forward pass of one sample.

    Example: fedscale models --data digits

    Example: fedscale models --data data/mine
    """
    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.driver.tables import console, print_table

    name, shape, classes, text = _samples(data)
    rows, unfit = _rows(shape, classes, text)
    out = console()
    print_table(out, ["model", "family", "parameters", "MMACs", "has"], rows)
    out.print(f"\non {name}: samples of {shape_text(shape)}, {classes} classes", highlight=False, soft_wrap=True)
    out.print("cells: for fedtrans; exits: for hypemefed, depthfl, scalefl; paths: for fedoras, fednas, spider")
    if unfit:
        out.print(f"cannot read such samples: {', '.join(unfit)}", highlight=False)


def _samples(data: str) -> tuple[str, tuple[int, int, int], int, bool]:
    """Return a known data set's, or a folder's, name, shape of samples, number of classes, and whether it is text."""
    from fedscale_ext.cli.dataset import kind_of
    from fedscale_ext.data.registry import KNOWN, is_text, known
    from fedscale_ext.data.store import open_data_set

    entry, folder = known(data), Path(data)
    if entry is not None:
        return entry.name, entry.shape, entry.classes, entry.text
    if not folder.is_dir():
        raise UserError(
            f"there is no data set and no folder {data!r}{meant_or_known(data, [each.name for each in KNOWN])}"
        )
    kind = kind_of(folder, None)
    samples = open_data_set(folder, kind)
    return data, samples.input_shape, samples.num_classes, is_text(kind)


def _rows(shape: tuple[int, int, int], classes: int, text: bool) -> tuple[list[list[str]], list[str]]:
    """Return a row for each model that reads such samples, and the names of the others."""
    from fedscale_ext import models
    from fedscale_ext.models.registry import model_names

    rows, unfit = [], []
    for name in model_names():
        try:
            spec = models.named_spec(name, shape, classes, text=text)
            cost = models.cost(spec)
        except UserError:
            unfit.append(name)
            continue
        macs = f"{cost.forward_macs / _MEGA:,.3g}" if cost.forward_macs < 1e8 else f"{cost.forward_macs / _MEGA:,.0f}"
        rows.append([name, spec.family, f"{cost.parameters:,}", macs, _abilities(spec)])
    return rows, unfit


def _abilities(spec: ModelSpec) -> str:
    """Return what a model has that some methods need."""
    from fedscale_ext import models
    from fedscale_ext.models.cells import cell_family

    if spec.family == "supernet":
        return "paths" if models.searched(spec) else ""
    if spec.family == "multi_exit":
        exits = spec["exits"] if spec["heads"] == "all" else 1
        return f"{exits} exits" if exits > 1 else ""
    try:
        cell_family(spec)
    except UserError:
        return ""
    return "cells"
