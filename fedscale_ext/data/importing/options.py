"""The settings of an import: those of every format, and those that one format adds."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import with_channels
from fedscale_ext.data.formats.npz_file import CLASS_NAMES
from fedscale_ext.data.importing.allocation import Allocation
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.importing.shift import Shift
from fedscale_ext.data.layout.split import check_fraction
from fedscale_ext.data.progress import Progress
from fedscale_ext.data.registry import KnownDataSet

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class ImportOptions:
    """Settings that every import takes.

    Args:
        name: name of the data in results; by default its kind.
        partition: how to spread the samples over clients, in place of the source's own clients.
        test_fraction: share of each client's samples for tests, where the source has no split.
        local_test: set the source's split aside and draw each client's test samples from its own, class by class.
        seed: seed of all draws.
        shift: how each client's samples differ from those of others; None: not at all.
        generated: the data are made up; every result says so.
        shape: size of pictures, (height, width) or (channels, height, width). By default that of the data set, else
            that of the first picture.
        force: replace what is in the output folder.
        progress: called with (samples done, samples in all).

    """

    name: str | None = None
    partition: Partition | None = None
    test_fraction: float = 0.2
    local_test: bool = False
    seed: int = 1
    shift: Shift | None = None
    generated: bool = False
    shape: Sequence[int] | None = None
    force: bool = False
    progress: Progress | None = None

    @property
    def by_domain(self) -> bool:
        """Whether the source's own clients are domains, which the partition spreads over clients one by one."""
        return self.shift is not None and self.shift.by_domain

    @property
    def own_clients(self) -> bool:
        """Whether it matters whose each sample is in the source."""
        return self.partition is None or self.by_domain or self.partition.grouped

    @property
    def allocation(self) -> Allocation:
        """Who gets each sample, and for what."""
        return Allocation(self.seed, self.test_fraction, self.partition, self.local_test)

    def check(self, entry: KnownDataSet | None) -> None:
        """Raise UserError for settings that no source of the data set ``entry`` can meet."""
        check_fraction(self.test_fraction)
        if self.shift is not None:
            self.shift.check(entry)
        if self.by_domain and self.partition is None:
            raise UserError("--shift domains spreads each domain over clients: add --partition iid --clients N, or "
                            "leave --shift out, so that each domain is a client")  # fmt: skip
        if self.by_domain and self.partition is not None and self.partition.grouped:
            raise UserError("--shift domains spreads the source's own clients, and --partition grouped keeps them: "
                            "leave one of them out")  # fmt: skip
        if self.shape is not None:
            with_channels(self.shape, 1)  # refuses sides that are out of bounds
            if entry is not None and entry.values:
                raise UserError(f"a shape is for pictures, but samples of {entry.name} are values: leave --shape out")


@dataclass(frozen=True)
class NpzOptions(ImportOptions):
    """Settings for an npz file: the names of its arrays.

    Args:
        x: samples, [N, H, W], [N, H, W, C] or [N, C, H, W] (uint8, or floats in 0..1).
        y: labels, int [N].
        client: clients, [N] (integers or names).
        split: array [N] of "train" / "test", or of 0 / 1 (1: test); None: the file has none.
        names: names of the labels, [classes]; a data set that knows them gives them its own numbers.
        transposed: the values of a sample lie in the order [W, H] where the data set has [H, W].

    """

    x: str = "x"
    y: str = "y"
    client: str = "client"
    split: str | None = None
    names: str = CLASS_NAMES
    transposed: bool = False

    def check(self, entry: KnownDataSet | None) -> None:  # noqa: D102
        super().check(entry)
        if self.transposed and (entry is None or not entry.values or entry.text):
            raise UserError("--transposed is for data sets of measured values, such as uci_har: leave it out")

    @property
    def arrays(self) -> dict[str, str | None]:
        """Names of the arrays by their meaning."""
        return {"x": self.x, "y": self.y, "client": self.client, "split": self.split, "names": self.names}


@dataclass(frozen=True)
class DatasetsOptions(ImportOptions):
    """Settings for data of the Hugging Face library ``datasets``: the names of columns and splits.

    Args:
        x: column of pictures, arrays or lists of numbers; or several columns of numbers, separated by commas. Without
            a column of that name, the one with pictures.
        y: column of labels; without one of that name, the one with class labels, else ``label``.
        client: column of clients.
        split: the split for training, and after a comma the one for tests. By default train, and test or validation.

    """

    x: str = "x"
    y: str = "y"
    client: str = "client"
    split: str | None = None

    @property
    def columns(self) -> dict[str, str | None]:
        """Names of columns by their meaning."""
        return {"x": self.x, "y": self.y, "client": self.client, "split": self.split}


@dataclass(frozen=True)
class TextOptions(ImportOptions):
    """Settings for text.

    Args:
        stride: characters from one window to the next. LEAF's windows are one apart, and one in ``stride`` of them is
            taken (default: all). Whole texts are cut every ``stride`` characters (default: 80).

    """

    stride: int | None = None


@dataclass(frozen=True)
class SpeechOptions(ImportOptions):
    """Settings for Speech Commands.

    Args:
        client_map: FedScale's JSON ``{wav name: client}``; by default each speaker is a client.

    """

    client_map: StrPath | None = None
