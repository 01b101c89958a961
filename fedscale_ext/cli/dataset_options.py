"""Options that the ``fedscale dataset`` commands share, in groups by what they are about."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    from fedscale_ext.data.importing.options import ImportOptions
    from fedscale_ext.data.importing.partition import Partition
    from fedscale_ext.data.importing.shift import Shift


Format = Literal[
    "npz", "leaf", "text", "parquet", "folder", "cifar", "speech", "svhn", "stl10", "unimib", "idx", "layout",
    "datasets",
]  # fmt: skip


PartitionKind = Literal["dirichlet", "classes", "shard", "iid", "linear", "square", "exponential", "grouped"]


ShiftKind = Literal["rotation", "noise", "domains"]


TestSource = Literal["source", "local"]


Out = Annotated[Path | None, typer.Option("-o", "--out", help="Folder to write.", show_default="data/NAME")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is in the folder.")]
TestFraction = Annotated[float, typer.Option(help="Share of each client's samples held out for tests.")]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.")]
ClientMap = Annotated[
    Path | None, typer.Option(help="Speech Commands: FedScale's JSON {wav name: client}.", show_default="speakers")
]


@dataclass(frozen=True)
class OutputOptions:
    """Output."""

    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write.", show_default="data/DATA_SET; with --name, data/NAME"),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the imported data in results.",
            show_default="that of an npz file, Hugging Face's data or a layout, else DATA_SET",
        ),
    ] = None
    generated: Annotated[bool, typer.Option("--generated", help="The data are generated: every result says so.")] = (
        False
    )
    force: Force = False


def folder_in_data(name: str) -> Path:
    """The folder of a data set that is called ``name``; UserError where it would lie elsewhere."""
    if Path(name).name != name or name == "..":
        raise UserError(f"{name!r} cannot name a folder in data: leave out the slashes, or name the folder with -o")
    return Path("data") / name


@dataclass(frozen=True)
class PartitionOptions:
    """Partition over clients, for data without clients or to replace their clients."""

    partition: Annotated[
        PartitionKind | None,
        typer.Option(
            "--partition",
            metavar="KIND",
            help="dirichlet, classes, shard, iid, linear, square, exponential, or grouped (SOURCE's own clients).",
        ),
    ] = None
    clients: Annotated[int | None, typer.Option(help="Clients of the partition.")] = None
    alpha: Annotated[float, typer.Option(help="Concentration of a Dirichlet partition.")] = 0.5
    min_samples: Annotated[int, typer.Option(help="Fewest samples of a client of a Dirichlet partition.")] = 1
    samples_per_client: Annotated[
        int,
        typer.Option(help="Training samples of every client of a Dirichlet partition.", show_default="any"),
    ] = 0
    shards: Annotated[int, typer.Option(help="Shards per client of a shard partition.")] = 2
    classes_per_client: Annotated[int, typer.Option(help="Classes of each client of a classes partition.")] = 2

    def build(self) -> "Partition | None":
        """Return the partition, None where none is asked for; UserError where the options do not go together."""
        from fedscale_ext.data.importing.partition import Partition

        if (self.partition is None) != (self.clients is None):
            raise UserError("--partition and --clients belong together: give both, or neither for data with clients")
        if self.partition is None or self.clients is None:
            if self.min_samples != 1:
                raise UserError("--min-samples is for --partition dirichlet")
            if self.samples_per_client:
                raise UserError("--samples-per-client is for --partition dirichlet")
            return None
        return Partition(
            self.partition,
            self.clients,
            alpha=self.alpha,
            shards_per_client=self.shards,
            classes_per_client=self.classes_per_client,
            min_samples=self.min_samples,
            samples_per_client=self.samples_per_client,
        )


@dataclass(frozen=True)
class ShiftOptions:
    """Feature shift between clients."""

    shift: Annotated[
        ShiftKind | None,
        typer.Option("--shift", metavar="KIND", help="rotation, noise, or domains: how clients' samples differ."),
    ] = None
    angles: Annotated[
        str | None, typer.Option(help="Rotation: degrees, dealt to clients in turn.", show_default="0,90,180,270")
    ] = None
    noise_level: Annotated[
        float | None, typer.Option(help="Noise: variance of the last client's noise.", show_default="0.1")
    ] = None

    def build(self) -> "Shift | None":
        """Return the shift, None where none is asked for; UserError where the options do not go together."""
        from fedscale_ext.data.importing.shift import Shift

        if self.angles is not None and self.shift != "rotation":
            raise UserError("--angles is for --shift rotation")
        if self.noise_level is not None and self.shift != "noise":
            raise UserError("--noise-level is for --shift noise")
        if self.shift is None:
            return None
        given: dict[str, Any] = {} if self.noise_level is None else {"level": self.noise_level}
        if self.angles is not None:
            try:
                given["angles"] = tuple(float(angle) for angle in self.angles.split(","))
            except ValueError:
                raise UserError(f"--angles {self.angles}: write numbers of degrees, as in 0,90,180,270") from None
        return Shift(self.shift, **given)


@dataclass(frozen=True)
class SplitOptions:
    """Training and test samples."""

    test: Annotated[
        TestSource,
        typer.Option(help="Test samples: those of SOURCE, or drawn from each client's samples."),
    ] = "source"
    test_fraction: TestFraction = 0.2
    seed: Seed = 1

    def settings(self) -> dict[str, Any]:
        """Return the fields of :class:`ImportOptions` that these options decide."""
        return {"local_test": self.test == "local", "test_fraction": self.test_fraction, "seed": self.seed}


@dataclass(frozen=True)
class FormatOptions:
    """Options of one format."""

    x: Annotated[str, typer.Option("--x", help="Array or column of samples.")] = "x"
    y: Annotated[str, typer.Option("--y", help="Array or column of labels.")] = "y"
    client: Annotated[str, typer.Option(help="Array or column of clients.")] = "client"
    split: Annotated[
        str | None,
        typer.Option(
            help="npz: array of train and test, or of 0 (training) and 1 (test). Hugging Face: names of splits, such "
            "as train,test."
        ),
    ] = None
    names: Annotated[str, typer.Option(help="npz: array of the labels' names.")] = "classes"
    transposed: Annotated[
        bool,
        typer.Option("--transposed", help="npz of values: samples are W x H, and DATA_SET has H x W."),
    ] = False
    stride: Annotated[
        int | None, typer.Option(help="Text: characters from one window to the next.", show_default="80; LEAF's own")
    ] = None
    client_map: ClientMap = None
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="SHAPE",
            help="Resize pictures to height x width (128x128) or channels x height x width (3x128x128).",
            show_default="that of DATA_SET, else of the first picture",
        ),
    ] = None

    @property
    def arrays(self) -> dict[str, Any]:
        """Names of the arrays of an npz file."""
        return {"x": self.x, "y": self.y, "client": self.client, "split": self.split, "names": self.names}

    def build(self, kind: str, source: Path, common: dict[str, Any]) -> "ImportOptions":
        """Return the options of the format, with the fields in ``common`` that all formats have.

        Raises:
            UserError: an option is for another format than ``source`` has.

        """
        from fedscale_ext.core.shapes import parse_picture_shape
        from fedscale_ext.data.importing.options import (
            DatasetsOptions,
            ImportOptions,
            NpzOptions,
            SpeechOptions,
            TextOptions,
        )

        shape = None if self.shape is None else parse_picture_shape(self.shape, "--shape")
        arrays = self.arrays
        other = f"but {source} is {kind} data"
        if kind == "datasets" and self.names != FormatOptions().names:
            raise UserError(f"--names names an array of an npz file, {other}")
        if kind not in ("npz", "datasets") and arrays != FormatOptions().arrays:
            raise UserError(f"--x, --y, --client, --split and --names name arrays of an npz file or columns, {other}")
        if kind != "speech" and self.client_map is not None:
            raise UserError(f"--client-map is for the wav files of Speech Commands, {other}")
        if kind != "text" and self.stride is not None:
            raise UserError(f"--stride is for text, {other}")
        if kind != "npz" and self.transposed:
            raise UserError(f"--transposed is for the arrays of an npz file, {other}")
        if kind == "npz":
            return NpzOptions(**common, **arrays, transposed=self.transposed, shape=shape)
        if kind == "datasets":
            columns: dict[str, Any] = {"x": self.x, "y": self.y, "client": self.client, "split": self.split}
            return DatasetsOptions(**common, **columns, shape=shape)
        if kind == "speech":
            return SpeechOptions(**common, client_map=self.client_map, shape=shape)
        if kind == "text":
            return TextOptions(**common, stride=self.stride, shape=shape)
        return ImportOptions(**common, shape=shape)
