"""``fedscale dataset download``: from the network into FedScale's layout in one command."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.dataset import import_and_report
from fedscale_ext.cli.dataset_options import (
    ClientMap,
    Force,
    FormatOptions,
    Out,
    PartitionOptions,
    ShiftOptions,
    SplitOptions,
    folder_in_data,
)
from fedscale_ext.cli.dataset_view import progress_bar
from fedscale_ext.cli.option_groups import grouped
from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    from fedscale_ext.data.download.catalogue import Downloadable
    from fedscale_ext.data.download.get import Downloaded


@dataclass(frozen=True)
class NetworkOptions:
    """Network."""

    mirror: Annotated[
        str | None,
        typer.Option(help="Mirror to use, or the address of a folder with the files.", show_default="each in turn"),
    ] = None
    downloads: Annotated[Path, typer.Option(help="Folder of downloaded files.")] = Path("data/downloads")
    drop: Annotated[bool, typer.Option("--no-keep", help="Remove the downloaded files after the import.")] = False


@dataclass(frozen=True)
class OutputOptions:
    """Output."""

    out: Out = None
    own_name: Annotated[
        str | None, typer.Option("--name", help="Name of the imported data in results.", show_default="NAME")
    ] = None
    force: Force = False


@grouped
def download(
    network: NetworkOptions,
    output: OutputOptions,
    partition: PartitionOptions,
    shift: ShiftOptions,
    split: SplitOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Data set to download; without it, the command lists all.",
            autocompletion=complete.downloads,
        ),
    ] = None,
    client_map: ClientMap = None,
) -> None:
    """Download a data set, check it, and import it into FedScale's layout.

    Example: fedscale dataset download cifar10 --partition dirichlet --clients 100

    The same command continues an interrupted download. Exit code 1: no mirror delivered the files.
    """
    if name is None:
        return _list()
    from fedscale_ext.data.decoding.audio import check_librosa
    from fedscale_ext.data.download import get
    from fedscale_ext.data.download.catalogue import downloadable
    from fedscale_ext.data.importing.writer import check_out_dir
    from fedscale_ext.data.layout.split import check_fraction
    from fedscale_ext.data.registry import known

    # whatever can be wrong is found before anything comes over the network
    dataset = downloadable(name).at(network.mirror)
    spread = partition.build()
    if dataset.needs_partition and spread is None:
        raise UserError(
            f"{dataset.name} has no clients of its own: add --partition dirichlet --clients 100, or another"
        )
    if client_map is not None and not any(source.format == "speech" for source in dataset.sources):
        raise UserError(f"--client-map is for the wav files of Speech Commands, not for {dataset.name}")
    if (entry := known(dataset.name)) and entry.by_name:
        check_librosa()
    check_fraction(split.test_fraction)
    shifted = shift.build()
    if shifted is not None:
        shifted.check(entry)
    out_folder = output.out or folder_in_data(output.own_name or dataset.name)
    folder = network.downloads.expanduser() / dataset.folder
    check_out_dir(out_folder, output.force, [folder, *([client_map] if client_map else [])])
    common = {"name": output.own_name, "partition": spread, "force": output.force, "shift": shifted,
              **split.settings()}  # fmt: skip
    with get.sole_user(folder):
        get.check_disk(dataset, folder, out_folder)
        try:
            with progress_bar(dataset.name, of_bytes=True) as progress:
                downloaded = get.get(dataset, folder, _say, progress=progress)
        except get.NoHostError as error:
            typer.echo(f"fedscale: {error}", err=True)
            raise typer.Exit(1) from None
        kind = downloaded.source.format
        options = FormatOptions(client_map=client_map).build(kind, downloaded.paths[0], common)
        with _unpacked(downloaded, dataset) as source:
            import_and_report(kind, source, out_folder, dataset.name, options)
        if network.drop:
            for path in downloaded.paths:
                path.unlink()
        else:
            print(f"the download stays in {folder}: remove it, or import it anew with other options")


@contextlib.contextmanager
def _unpacked(downloaded: "Downloaded", dataset: "Downloadable") -> Iterator[Path]:
    """What the importer reads: the files as they are, or a folder of what is in the archive, gone afterwards."""
    from fedscale_ext.data.download.unpack import unpack
    from fedscale_ext.data.layout.data_folder import CSV_FOLDER
    from fedscale_ext.util.temporary_folders import new_folder

    source = downloaded.source
    (first, *others) = downloaded.paths
    if not source.files[0].is_archive:
        yield downloaded.folder if others else first
        return
    aside = new_folder(downloaded.folder, ".unpacked.")
    try:
        inside = aside / dataset.folder  # a steady name: it is a part of the import's fingerprint
        with progress_bar(f"unpacking {first.name}", of_bytes=True) as progress:
            unpacked = unpack(first, inside, take=source.take, most=2 * source.unpacked, progress=progress)
        if unpacked.pickles:
            _say(f"{unpacked.pickles} pickles were left in {first.name}: nothing here reads them")
        if source.format == "layout":
            csv_folder = next((path for path in sorted(inside.rglob(CSV_FOLDER)) if path.is_dir()), None)
            if csv_folder is None:
                raise UserError(f"{first} holds no folder {CSV_FOLDER}, so it is not in FedScale's layout")
            inside = csv_folder.parent
        yield inside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _list() -> None:
    from fedscale_ext.data.download.catalogue import catalogue
    from fedscale_ext.data.download.get import amount
    from fedscale_ext.driver.tables import console, print_table

    rows = []
    for entry in catalogue().values():
        for source in entry.sources:
            whole = all(file.sha256 for file in source.files)
            size = amount(source.size) if source.size else "not known"
            checksum = "published" if whole else "none"
            clients = "partition" if entry.needs_partition else "natural"
            rows.append([entry.name, size, clients, checksum, ", ".join(source.mirrors)])
    print_table(console(), ["data set", "size", "clients", "sha256", "mirrors"], rows)
    print("\nclients of a partition: --partition … --clients N makes them")
    print("sha256 none: none is published; later downloads are compared with the first")
    print("Example: fedscale dataset download femnist -o data/femnist")
