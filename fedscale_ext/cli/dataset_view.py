"""What the ``fedscale dataset`` commands print: a bar while they work, what was imported, what a folder holds."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fedscale_ext.core.errors import one_line
from fedscale_ext.data.progress import Progress

if TYPE_CHECKING:
    from fedscale_ext.data.importing.writer import Written
    from fedscale_ext.data.layout.overview import Overview
    from fedscale_ext.data.layout.verify import Verification
    from fedscale_ext.data.store import DataSet

_NAMES_SHOWN = 10


def report(verification: "Verification") -> None:
    """Print what a data folder holds, and on standard error what is wrong with it."""
    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.data.layout.verify import QUANTILES
    from fedscale_ext.driver.tables import console, print_table

    test = "by test_split" if verification.test_samples is None else str(verification.test_samples)
    rows = [
        ["name", f"{'generated' if verification.generated else 'real'}: {verification.name}"],
        [
            "data set",
            f"{verification.data_set}, {shape_text(verification.shape)}, "
            f"{verification.classes_present} of {verification.classes} classes",
        ],
        ["clients", str(verification.clients)],
        ["train / test", f"{verification.train_samples} / {test}"],
        [f"train per client at {'/'.join(map(str, QUANTILES))} %", " ".join(map(str, verification.train_quantiles))],
        ["missing files", str(verification.missing_files)],
        ["broken files", str(verification.broken_files)],
        ["labels out of range", str(verification.labels_out_of_range)],
        ["bad rows", str(verification.bad_rows)],
        ["contradictory label names", str(verification.contradictory_names)],
        *(
            [["clients without training data", str(verification.test_only_clients)]]
            if verification.test_only_clients
            else []
        ),
    ]
    print_table(console(), ["data folder", ""], rows)
    _print_notes(verification.notes)
    for problem in verification.problems:
        typer.echo(problem, err=True)


def show_overview(data: "DataSet", seen: "Overview", shift: str = "") -> None:
    """Print a data set's classes with their samples and clients, what clients have, and its feature shift in words."""
    import numpy as np

    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.data.wording import quantile_text
    from fedscale_ext.driver.tables import console, print_table

    out = console()
    kind = "generated" if data.generated else "real"
    out.print(f"{kind}: {data.name}, samples of {shape_text(data.input_shape)}\n", highlight=False)
    train, test = seen.train.sum(0), seen.test.sum(0)
    rows = [[name, f"{of_train:,}", f"{of_test:,}", f"{having:,}"]
            for name, of_train, of_test, having in zip(seen.classes, train, test, (seen.train > 0).sum(0), strict=True)
            ]  # fmt: skip
    print_table(out, ["class", "training", "test", "clients that train on it"], rows)
    out.print()
    figures = {
        "training samples": seen.train.sum(1),
        "test samples": seen.test.sum(1),
        "classes": seen.labels_per_client,
    }
    print_table(
        out,
        [f"of {len(seen.clients):,} clients", "least", "quarter", "median", "three quarters", "most"],
        [[name, *(quantile_text(value) for value in np.percentile(values, [0, 25, 50, 75, 100]))]
         for name, values in figures.items()],
    )  # fmt: skip
    if shift:
        out.print(f"\nfeature shift: {shift}", highlight=False)
    _print_notes(data.notes)


def report_import(written: "Written") -> None:
    """Print what an import or a synthesis wrote, and what it changed, left out or noticed."""
    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.data.registry import known
    from fedscale_ext.data.wording import counted, listed

    kind = "generated" if written.generated else "real"
    how = "already there, unchanged" if written.already_there else f"written in {written.seconds:.1f} s"
    print(f"{kind}: {written.name}, {how}")
    print(f"{written.clients} clients, {written.train_samples} training and {written.test_samples} test samples")
    names = [one_line(name, 60) for name in written.label_names]
    some = f" ({listed(names, _NAMES_SHOWN)})" if names else ""
    print(f"{counted(written.classes, 'class', 'classes')}{some}, samples of {shape_text(written.shape)}")
    if written.left_out:
        entry = known(written.data_set)
        what = "speakers without a whole window" if entry and entry.text else "samples that no client has"
        print(f"{written.left_out} {what} were left out")
    if written.absent:
        print(f"{written.absent} clips that the client map names are not there")
    _print_notes(written.notes)
    data_dir, data_set = shlex.quote(str(written.data_dir)), shlex.quote(written.data_set)
    print(f"use it with: --set data_dir={data_dir} --set data_set={data_set}")


def _print_notes(notes: Sequence[str]) -> None:
    from rich.text import Text

    from fedscale_ext.driver.tables import console

    out = console()
    for note in notes:
        out.print(Text(f"note: {note}"), soft_wrap=not out.is_terminal)


@contextmanager
def progress_bar(what: str, *, of_bytes: bool = False) -> Iterator[Progress | None]:
    """A bar on standard error while something long runs, with bytes and speed if it counts these; nothing where that
    is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from fedscale_ext.driver.tables import console

    err = console(stderr=True)
    if not err.is_terminal:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(None), DownloadColumn(), TransferSpeedColumn()]
    with Bar(*columns if of_bytes else Bar.get_default_columns(), console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
