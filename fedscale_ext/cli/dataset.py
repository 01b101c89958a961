"""``fedscale dataset``: get data into FedScale's layout, and look at it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.cli.dataset_options import (
    Force,
    Format,
    FormatOptions,
    OutputOptions,
    PartitionOptions,
    Seed,
    ShiftOptions,
    SplitOptions,
    TestFraction,
    folder_in_data,
)
from fedscale_ext.cli.dataset_view import progress_bar, report, report_import
from fedscale_ext.cli.option_groups import grouped
from fedscale_ext.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from fedscale_ext.data.importing.options import ImportOptions
    from fedscale_ext.data.importing.writer import Written

app = typer.Typer(
    cls=CommandGroup,
    help="Get data into FedScale's layout, and check it.\n\nExample: fedscale dataset synthesize digits",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where your data folders are.")] = Path("data"),
) -> None:
    """List the data sets known by name, and those that were imported or generated below FOLDER.

    Example: fedscale dataset list
    """
    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.data.layout.files import DESCRIPTION, read_description
    from fedscale_ext.data.registry import KNOWN
    from fedscale_ext.driver.tables import console, print_table

    if folder.is_file():
        raise UserError(f"{folder} is a file; name the folder that your data folders are in")
    out = console()
    known = [
        (
            entry.name,
            str(entry.classes),
            shape_text(entry.shape),
            "natural" if entry.natural_clients else "by partition",
            entry.title,
        )
        for entry in KNOWN
    ]
    print_table(out, ["data set", "classes", "shape", "clients", "what it is"], known)
    out.print("\nReal data: fedscale dataset import SOURCE --data-set NAME [--name OWN_NAME]")
    out.print("(npz, LEAF json, parquet, folders of images, CIFAR's and STL-10's binary files,")
    out.print("SVHN's and UniMiB SHAR's mat files, idx files, Speech Commands' wav files,")
    out.print("Hugging Face's hf:OWNER/NAME and save_to_disk, folders in FedScale's layout).")
    out.print("By partition: --partition dirichlet|classes|shard|iid --clients N, among others.")
    out.print("Over the network: fedscale dataset download NAME.")
    out.print("Generated handwriting: fedscale dataset synthesize digits.")
    there = []
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        description = read_description(path.parent)
        kind = "generated" if description.get("generated") else "real"
        there.append([str(path.parent), str(description.get("name", "")), kind, str(description.get("clients", ""))])
    if there:
        out.print()
        print_table(out, ["folder", "name", "kind", "clients"], there)


@app.command("import")
@grouped
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="npz, LEAF json or parquet file; a folder of json or parquet files, of images, of clips, of published "
            "files, or in FedScale's layout; hf:OWNER/NAME, or a folder of datasets.save_to_disk."
        ),
    ],
    data_set: Annotated[
        str,
        typer.Option(
            "--data-set",
            help="Kind of data: a name from `fedscale dataset list`, or a new word.",
            autocompletion=complete.data_sets,
        ),
    ],
    output: OutputOptions,
    partition: PartitionOptions,
    shift: ShiftOptions,
    split: SplitOptions,
    format_options: FormatOptions,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Format of SOURCE.", show_default="detected")
    ] = None,
) -> None:
    """Import data into FedScale's layout.

    Example: fedscale dataset import mnist.npz --data-set mnist --partition dirichlet --clients 500

    Example: fedscale dataset import photos/ --data-set animals --shape 3x128x128 -o data/animals

    Example: fedscale dataset import mnist.npz --data-set mnist --partition iid --clients 40 --shift rotation

    SOURCE's split into training and test samples stays, unless --test local replaces it. With --test local or
    --partition, a client's test samples have its mix of classes.
    """
    from fedscale_ext.data import registry
    from fedscale_ext.data.formats.hugging_face import on_hub

    spread = partition.build()
    entry = registry.known(data_set)
    data_set = registry.canonical(data_set)
    out = output.out or folder_in_data(output.name or data_set)
    kind = format_ or _format(source, data_set)
    if kind == "leaf" and entry is not None and entry.text:
        kind = "text"
    name = output.name
    # one's own samples in a known kind's layout are not that data set
    if name is None and kind == "npz":
        name = source.stem
    if name is None and kind == "datasets":
        name = str(source) if on_hub(source) else source.resolve().name
    common = {"name": name, "partition": spread, "generated": output.generated, "force": output.force,
              "shift": shift.build()}  # fmt: skip
    options = format_options.build(kind, source, {**common, **split.settings()})
    import_and_report(kind, source, out, data_set, options)
    if not registry.known(data_set):
        meant = did_you_mean(data_set, [entry.name for entry in registry.KNOWN])
        where = "is not in `fedscale dataset list`; its shape and labels come from the files"
        typer.echo(f"note: {data_set!r} {where}{meant}", err=True)


def import_and_report(kind: str, source: Path, out: Path, data_set: str, options: "ImportOptions") -> None:
    """Import ``source`` of that format to ``out``, decode it, and say what it is."""
    from fedscale_ext.data.importing import importers

    importer = getattr(importers, f"import_{kind}")
    with progress_bar(f"importing {source.name}") as progress:
        written = importer(source, out, data_set, replace(options, progress=progress))
    _decode_written(written)
    report_import(written)


def _format(source: Path, data_set: str) -> str:
    """The format of a file by its ending, of a folder by the files in it: those of the data set before others."""
    from fedscale_ext.data.download.catalogue import catalogue
    from fedscale_ext.data.formats.cifar import is_cifar
    from fedscale_ext.data.formats.hugging_face import is_saved, on_hub
    from fedscale_ext.data.formats.idx import IdxSource
    from fedscale_ext.data.formats.leaf import has_leaf_files
    from fedscale_ext.data.formats.speech import has_clips
    from fedscale_ext.data.formats.stl10 import Stl10Source
    from fedscale_ext.data.formats.svhn import SvhnSource
    from fedscale_ext.data.formats.unimib import UnimibSource
    from fedscale_ext.data.layout.data_folder import CSV_FOLDER

    if on_hub(source) or is_saved(source):
        return "datasets"
    by_ending = {".npz": "npz", ".json": "leaf", ".parquet": "parquet"}
    if source.is_file():
        if source.suffix in (".mat", ".bin", ".gz"):
            raise UserError(f"{source} is one of several files: name the folder that they lie in")
        if source.suffix == ".csv":
            raise UserError(
                f"{source} is a csv file, which is not read: write its columns as arrays x, y and client of an npz "
                "file (docs/adding-a-dataset.md, From a csv file)"
            )
        if source.suffix not in by_ending:
            raise UserError(f"{source} is no npz, json or parquet file; say what it is with --format")
        return by_ending[source.suffix]
    if not source.exists():
        raise UserError(f"{source} does not exist")
    if (source / CSV_FOLDER).is_dir():
        return "layout"
    by_files = {"svhn": SvhnSource, "stl10": Stl10Source, "unimib": UnimibSource, "idx": IdxSource}
    there = ["cifar"] if is_cifar(source) else []
    there += [name for name, published in by_files.items() if published.locate(source)]
    if there:
        entry = catalogue().get(data_set)
        usual = [name for name in there if entry and name in {files.format for files in entry.sources}]
        return (usual or there)[0]
    if has_clips(source):
        return "speech"
    if has_leaf_files(source):
        return "leaf"
    return "parquet" if next(source.rglob("*.parquet"), None) else "folder"


@app.command()
def synthesize(
    what: Annotated[str, typer.Argument(metavar="NAME", help="What to generate: femnist or digits.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write.", show_default="data/NAME_generated")
    ] = None,
    writers: Annotated[int, typer.Option(help="Writers, each a client.")] = 200,
    samples_per_class: Annotated[
        int | None, typer.Option(help="Samples of each character per writer.", show_default="2, for digits 12")
    ] = None,
    test_fraction: TestFraction = 0.2,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Generate handwriting: FEMNIST's 62 characters, or only digits. Every result calls it generated.

    Example: fedscale dataset synthesize digits

    Example: fedscale dataset synthesize femnist --writers 50 -o data/small
    """
    from fedscale_ext.data.synthetic.synthesize import synthesize as draw

    with progress_bar("drawing") as progress:
        written = draw(
            what, out or Path(f"data/{what}_generated"), writers=writers, samples_per_class=samples_per_class,
            test_fraction=test_fraction, seed=seed, force=force, progress=progress,
        )  # fmt: skip
    _decode_written(written)
    report_import(written)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A data folder, the data_dir of a configuration.")],
    data_set: Annotated[
        str | None, typer.Option("--data-set", help="Kind of data.", show_default="what dataset.json says")
    ] = None,
) -> None:
    """Read every row and picture of a data folder and count faults; exit code 1 if there are any.

    The pictures of a folder without faults are decoded, so that its first job starts at once.

    Example: fedscale dataset verify data/digits_generated
    """
    from fedscale_ext.data.layout.verify import verify as look

    kind = kind_of(folder, data_set)
    with progress_bar("reading") as progress:
        verification = look(folder, kind, progress=progress)
    report(verification)
    if not verification.ok:
        raise typer.Exit(1)
    _decode(folder, kind)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A data folder, the data_dir of a configuration.")],
    data_set: Annotated[
        str | None, typer.Option("--data-set", help="Kind of data.", show_default="what dataset.json says")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PNG", help="File of the picture.")] = Path("data.png"),
) -> None:
    """Show the samples by class and client, as a table and a picture.

    The picture has clients by classes, the clients' sizes, and a sample of each class.

    Example: fedscale dataset show data/digits_generated -o digits.png
    """
    from fedscale_ext.cli.dataset_view import show_overview
    from fedscale_ext.data.layout.overview import overview, shift_of
    from fedscale_ext.data.store import open_data_set
    from fedscale_ext.report.plots.data_picture import png
    from fedscale_ext.util.atomic_files import refusing, write_atomic

    with progress_bar("reading") as progress:
        data = open_data_set(folder, kind_of(folder, data_set), progress=progress)
    seen = overview(data, folder)
    show_overview(data, seen, shift_of(folder))
    with refusing(out):
        write_atomic(out, png(data, seen))
    print(f"picture  {out}")


def kind_of(folder: Path, data_set: str | None) -> str:
    """Return the kind of data of a folder: what the command says, else what dataset.json says."""
    from fedscale_ext.data.layout.data_folder import data_folder
    from fedscale_ext.data.layout.files import read_description

    kind = data_set or read_description(data_folder(folder)).get("data_set")
    if not kind:
        raise UserError(f"{folder} does not say what kind of data it holds; give --data-set")
    return str(kind)


def _decode_written(written: "Written") -> None:
    """Decode the pictures that a command wrote, before another one may replace them."""
    from fedscale_ext.data.importing.sole_writer import sole_writer

    with contextlib.nullcontext() if written.already_there else sole_writer(written.data_dir):
        _decode(written.data_dir, written.data_set)


def _decode(folder: Path, data_set: str) -> None:
    """Decode the pictures now, so that the folder's first job need not."""
    from fedscale_ext.data.layout.decoded_folder import open_decoded

    with progress_bar("decoding") as progress:
        open_decoded(folder, data_set, progress=progress)
