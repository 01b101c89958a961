"""``fedscale dataset``: get data into FedScale's layout, and look at it."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.dataset_view import progress_bar, report, report_import
from fedscale_ext.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from fedscale_ext.data.importing.partition import Partition

app = typer.Typer(
    help="Get data into FedScale's layout, and check it.\n\nExample: fedscale dataset synthesize femnist",
    no_args_is_help=True,
)


class Format(str, Enum):
    """Kinds of files that can be imported."""

    npz = "npz"
    leaf = "leaf"
    text = "text"
    parquet = "parquet"
    folder = "folder"
    cifar = "cifar"
    speech = "speech"
    svhn = "svhn"
    stl10 = "stl10"
    unimib = "unimib"
    idx = "idx"
    layout = "layout"


class Spread(str, Enum):
    """Partitions over clients."""

    dirichlet = "dirichlet"
    classes = "classes"
    shard = "shard"
    iid = "iid"


class Tests(str, Enum):
    """Where test samples come from."""

    source = "source"
    local = "local"


PartitionOption = Annotated[
    Spread | None,
    typer.Option("--partition", metavar="KIND", help="For data without clients: dirichlet, classes, shard or iid."),
]
Clients = Annotated[int | None, typer.Option(help="Clients of the partition.")]
Alpha = Annotated[float, typer.Option(help="Concentration of a Dirichlet partition.")]
MinSamples = Annotated[int, typer.Option(help="Samples that each client of a Dirichlet partition has at least.")]
SamplesPerClient = Annotated[
    int, typer.Option(help="Samples that each client of a Dirichlet partition trains on, exactly.", show_default="any")
]
Shards = Annotated[int, typer.Option(help="Shards per client of a shard partition.")]
ClassesPerClient = Annotated[int, typer.Option(help="Classes of each client of a classes partition.")]
ClientMap = Annotated[
    Path | None, typer.Option(help="Speech Commands: FedScale's JSON {wav name: client}.", show_default="speakers")
]
PictureShape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="SHAPE",
        help="Resize pictures to height x width (128x128) or channels x height x width (3x128x128).",
        show_default="that of DATA_SET, else of the first picture",
    ),
]
Test = Annotated[
    Tests, typer.Option(help="Keep the split that SOURCE has, or draw each client's test samples from its own.")
]
DataSet = Annotated[
    str,
    typer.Option(
        "--data-set", help="Kind of data, a name from `fedscale dataset list`.", autocompletion=complete.data_sets
    ),
]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Folder to write.", show_default="data/NAME")]
Name = Annotated[
    str | None, typer.Option(help="Name of this very data set in results.", show_default="its kind, or the npz file's")
]
TestFraction = Annotated[float, typer.Option(help="Share of each client's samples kept for testing.")]
Seed = Annotated[int, typer.Option(help="Seed of partition, split and generation.")]
Generated = Annotated[bool, typer.Option("--generated", help="These data are made up: every result says so.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is in the folder.")]


@app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where your data folders are.")] = Path("data"),
) -> None:
    """List the data sets known by name, and those that were imported or generated below FOLDER.

    Example: fedscale dataset list
    """
    from fedscale_ext.core.shapes import shape_text
    from fedscale_ext.data.layout import DESCRIPTION, read_description
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
    out.print("folders in FedScale's layout).")
    out.print("By partition: --partition dirichlet|classes|shard|iid --clients N.")
    out.print("Brought here from the network: fedscale dataset download NAME.")
    out.print("Generated handwriting: fedscale dataset synthesize femnist.")
    there = []
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        description = read_description(path.parent)
        kind = "generated" if description.get("generated") else "real"
        there.append([str(path.parent), str(description.get("name")), kind, str(description.get("clients"))])
    if there:
        out.print()
        print_table(out, ["folder", "name", "kind", "clients"], there)


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="npz, LEAF json or parquet file, a folder of them, of images, of clips, of published files."
        ),
    ],
    data_set: DataSet,
    out: Out = None,
    name: Name = None,
    format_: Annotated[Format | None, typer.Option("--format", help="Format of SOURCE.", show_default="seen")] = None,
    partition: PartitionOption = None,
    clients: Clients = None,
    alpha: Alpha = 0.5,
    min_samples: MinSamples = 1,
    samples_per_client: SamplesPerClient = 0,
    shards: Shards = 2,
    classes_per_client: ClassesPerClient = 2,
    client_map: ClientMap = None,
    x: Annotated[str, typer.Option("--x", help="npz: array of pictures.")] = "x",
    y: Annotated[str, typer.Option("--y", help="npz: array of labels.")] = "y",
    client: Annotated[str, typer.Option(help="npz: array of clients.")] = "client",
    split: Annotated[str | None, typer.Option(help="npz: array that says train or test.")] = None,
    names: Annotated[str, typer.Option(help="npz: array of the labels' names.")] = "classes",
    stride: Annotated[
        int | None, typer.Option(help="Text: characters from one window to the next.", show_default="80; LEAF's own")
    ] = None,
    shape: PictureShape = None,
    test: Test = Tests.source,
    test_fraction: TestFraction = 0.2,
    seed: Seed = 1,
    generated: Generated = False,
    force: Force = False,
) -> None:
    """Import data into FedScale's layout.

    Example: fedscale dataset import mnist.npz --data-set Mnist --partition dirichlet --clients 500

    Example: fedscale dataset import photos/ --data-set animals --shape 3x128x128 -o data/animals

    A split that SOURCE has is kept, unless --test local sets it aside. With either that or --partition, a client's
    test samples have its own mix of classes.
    """
    from fedscale_ext.core.shapes import parse_picture_shape
    from fedscale_ext.data import registry

    spread = spread_over(partition, clients, alpha, shards, classes_per_client, min_samples, samples_per_client)
    kind = format_ or _format(source)
    entry = registry.known(data_set)
    if kind is Format.leaf and entry is not None and entry.text:
        kind = Format.text
    options: dict[str, Any] = {"name": name, "test_fraction": test_fraction, "seed": seed, "force": force}
    options |= {"partition": spread, "local_test": test is Tests.local, "generated": generated}
    if shape is not None:
        options["shape"] = parse_picture_shape(shape, "--shape")
    if kind is Format.npz:
        options |= {"x": x, "y": y, "client": client, "split": split, "names": names}
        options["name"] = name or source.stem  # one's own samples in a known kind's layout are not that data set
    elif (x, y, client, split, names) != ("x", "y", "client", None, "classes"):
        raise UserError(
            f"--x, --y, --client, --split and --names name arrays of an npz file, but {source} is {kind.value} data"
        )
    if kind is Format.speech:
        options["client_map"] = client_map
    elif client_map is not None:
        raise UserError(f"--client-map is for the wav files of Speech Commands, but {source} is {kind.value} data")
    if kind is Format.text:
        options["stride"] = stride
    elif stride is not None:
        raise UserError(f"--stride is for text, but {source} is {kind.value} data")
    import_and_report(kind.value, source, out or Path("data") / (name or data_set), data_set, options)
    if not registry.known(data_set):
        meant = did_you_mean(data_set, [entry.name for entry in registry.KNOWN])
        where = "is not in `fedscale dataset list`, its shape and labels are the files'"
        typer.echo(f"note: {data_set!r} {where}{meant}", err=True)


def spread_over(
    partition: Spread | None,
    clients: int | None,
    alpha: float,
    shards: int,
    classes_per_client: int,
    min_samples: int,
    samples_per_client: int,
) -> "Partition | None":
    """The partition that the options ask for; UserError where they do not go together."""
    from fedscale_ext.data.importing.partition import Partition

    if (partition is None) != (clients is None):
        raise UserError("--partition and --clients belong together: give both, or neither for data with clients")
    if partition is None and min_samples != 1:
        raise UserError("--min-samples is for --partition dirichlet")
    if partition is None and samples_per_client:
        raise UserError("--samples-per-client is for --partition dirichlet")
    if partition is None or clients is None:
        return None
    return Partition(partition.value, clients, alpha, shards, classes_per_client, min_samples, samples_per_client)


def import_and_report(kind: str, source: Path, out: Path, data_set: str, options: dict[str, Any]) -> None:
    """Import ``source`` of that format to ``out``, decode it, and say what it is."""
    from fedscale_ext.data.importing import importers

    importer = getattr(importers, f"import_{kind}")
    with progress_bar(f"importing {source.name}") as progress:
        written = importer(source, out, data_set, progress=progress, **options)
    _decode(written.data_dir, written.data_set)
    report_import(written)


def _format(source: Path) -> Format:
    """The format of a file by its ending, of a folder by the files in it."""
    from fedscale_ext.data.formats.cifar import is_cifar
    from fedscale_ext.data.formats.idx import IdxSource
    from fedscale_ext.data.formats.speech import has_clips
    from fedscale_ext.data.formats.stl10 import Stl10Source
    from fedscale_ext.data.formats.svhn import SvhnSource
    from fedscale_ext.data.formats.unimib import UnimibSource
    from fedscale_ext.data.layout import MAPPING

    by_ending = {".npz": Format.npz, ".json": Format.leaf, ".parquet": Format.parquet}
    if source.is_file():
        if source.suffix in (".mat", ".bin", ".gz"):
            raise UserError(f"{source} is one of several files: name the folder that they lie in")
        if source.suffix not in by_ending:
            raise UserError(f"{source} is no npz, json or parquet file; say what it is with --format")
        return by_ending[source.suffix]
    if not source.exists():
        raise UserError(f"{source} does not exist")
    if (source / MAPPING).is_dir():
        return Format.layout
    if is_cifar(source):
        return Format.cifar
    by_files = {"svhn": SvhnSource, "stl10": Stl10Source, "unimib": UnimibSource, "idx": IdxSource}
    for name, published in by_files.items():
        if published.locate(source):
            return Format(name)
    if has_clips(source):
        return Format.speech
    for ending in (".json", ".parquet"):
        if next(source.rglob(f"*{ending}"), None):
            return by_ending[ending]
    return Format.folder


@app.command()
def synthesize(
    what: Annotated[str, typer.Argument(metavar="NAME", help="What to generate; femnist is what there is.")],
    out: Out = None,
    writers: Annotated[int, typer.Option(help="Writers, each a client.")] = 200,
    samples_per_class: Annotated[int, typer.Option(help="Samples of each of the 62 characters per writer.")] = 2,
    test_fraction: TestFraction = 0.2,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Generate handwriting in FEMNIST's layout: a stand-in, always marked as generated.

    Example: fedscale dataset synthesize femnist --writers 50 -o data/small
    """
    from fedscale_ext.data.synthetic.synthesize import synthesize_femnist

    if what != "femnist":
        raise UserError(f"{what!r} cannot be generated; femnist can")
    with progress_bar("drawing") as progress:
        written = synthesize_femnist(
            out or Path("data/femnist_generated"), writers=writers, samples_per_class=samples_per_class,
            test_fraction=test_fraction, seed=seed, force=force, progress=progress,
        )  # fmt: skip
    _decode(written.data_dir, written.data_set)
    report_import(written)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A data folder, the data_dir of a configuration.")],
    data_set: Annotated[
        str | None, typer.Option("--data-set", help="Kind of data.", show_default="what dataset.json says")
    ] = None,
) -> None:
    """Read every row and picture of a data folder and count what is wrong; exit code 1 if anything is.

    A good folder is left decoded, so that its first job starts at once.

    Example: fedscale dataset verify data/femnist_generated
    """
    from fedscale_ext.data.layout import read_description
    from fedscale_ext.data.mapping import data_folder
    from fedscale_ext.data.verify import verify as look

    kind = data_set or read_description(data_folder(folder)).get("data_set")
    if not kind:
        raise UserError(f"{folder} does not say what kind of data it holds; give --data-set")
    with progress_bar("reading") as progress:
        verification = look(folder, str(kind), progress=progress)
    report(verification)
    if not verification.ok:
        raise typer.Exit(1)
    _decode(folder, str(kind))


def _decode(folder: Path, data_set: str) -> None:
    """Decode the pictures now, so that the folder's first job need not."""
    from fedscale_ext.data.decoded import open_decoded

    with progress_bar("decoding") as progress:
        open_decoded(folder, data_set, progress=progress)
