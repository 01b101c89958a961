"""What an evaluation of a paper consists of beside its tables and figures: data sets, sizes, and its folder."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.paper.job_keys import Keys, TextWith
from fedscale_ext.cli.app import app
from fedscale_ext.core.errors import UserError

_INTERRUPTED = 130  # the exit code of a command
SCALES = ("smoke", "small", "paper")
# by folder below evals, whose settings.py has the `PAPER`
TITLES = {"fedtrans": "FedTrans", "hypemefed": "HypeMeFed", "fedoras": "FedorAS", "moss": "Moss"}
PAPERS = tuple(TITLES)
# options of a partition as dataset.json has them, and what it leaves out where they are not given
_FIELDS = {"--partition": "kind", "--clients": "clients", "--alpha": "alpha",
           "--classes-per-client": "classes_per_client", "--min-samples": "min_samples",
           "--samples-per-client": "samples_per_client"}  # fmt: skip
_UNASKED: Mapping[str, Any] = {"min_samples": 1, "samples_per_client": 0}


@dataclass(frozen=True)
class DataSet:
    """A data set by its import: ``source`` is a file below the folder of sources (None: the folder must be there
    already), ``kind`` FedScale's name of it, ``options`` of `fedscale dataset import`; ``clients`` for partitions,
    and ``dirichlet``, options of a partition by Dirichlet alone. ``rewritten``: writes an npz file from the source,
    which is imported instead."""

    kind: str
    source: str | None = None
    options: tuple[str, ...] = ()
    clients: int = 0
    keys: Keys = field(default_factory=dict)
    small: Keys = field(default_factory=dict)
    paper: Keys = field(default_factory=dict)
    dirichlet: tuple[str, ...] = ()
    rewritten: Callable[[Path, Path], None] | None = None


@dataclass(frozen=True)
class Paper:
    """A folder below evals: ``name``, its scripts' jobs (``folder``/job.yml) and results.

    ``data`` by name, keys of all jobs at each scale (``sizes``), ``stands_for`` which data a script takes at a
    scale where it is not told: the data sets of the paper, and what stands for them. ``base_model`` is what devices
    afford whose jobs name no model. ``fedavg_model``: the network that FedAvg trains, where the key ``model`` names
    none: HypeMeFed's has exits, FedorAS's is a space of networks.
    """

    name: str
    folder: Path
    data: Mapping[str, DataSet]
    sizes: Mapping[str, Keys]
    stands_for: Mapping[str, Mapping[str, str]]
    base_model: str
    fedavg_model: TextWith | str | None = None

    def data_at(self, name: str, scale: str) -> str:
        """What stands for a data set at a scale; ``svhn-h0.1`` is the stand-in of ``svhn``, dealt so."""
        stand = self.stands_for.get(name, {}).get(scale)
        if stand is not None:
            return stand
        base, dash, how = name.partition("-")
        return self.stands_for.get(base, {}).get(scale, base).partition("-")[0] + dash + how

    def split_name(self, name: str) -> tuple[str, list[str]]:
        """A data set and the options of its partition from ``cifar10-h0.5`` (Dirichlet), ``cifar10-c2`` (two classes
        a client) or ``cifar10-iid``; without a partition, its own clients."""
        base, _, how = name.partition("-")
        if base not in self.data:
            names = ", ".join(self.data)
            sys.exit(f"there is no data set {base!r}; there are {names}, with -h0.5, -c2 or -iid for a partition")
        clients = ["--clients", str(self.data[base].clients)]
        if not how:
            return base, []
        if how == "iid":
            return base, ["--partition", "iid", *clients]
        with suppress(ValueError):  # no number
            if how[0] == "h":
                options = self.data[base].dirichlet
                return base, ["--partition", "dirichlet", "--alpha", str(float(how[1:])), *clients, *options]
            if how[0] == "c":
                return base, ["--partition", "classes", "--classes-per-client", str(int(how[1:])), *clients]
        sys.exit(f"{name}: the partition {how!r} is none of h<number>, c<number> and iid")

    def keys_of(self, name: str, scale: str) -> dict[Any, Any]:
        """job_conf keys and parameters of a data set at a scale."""
        base = self.data[self.split_name(name)[0]]
        at_scale = {"small": base.small, "paper": base.paper}.get(scale, {})
        return {"data_set": base.kind, **base.keys, **self.sizes[scale], **at_scale}

    def missing(self, name: str, folder: Path, sources: Path) -> Path | None:
        """What a data set cannot be had without: the file that it is imported from, or its own folder where that has to
        be there beforehand; None where nothing lacks."""
        source = self.data[self.split_name(name)[0]].source
        if _imported(folder / name):
            return None
        if source is None:
            return folder / name
        return None if (sources / source).is_file() else sources / source

    def missing_of(self, names: Sequence[str], folder: Path, sources: Path) -> str:
        """One sentence on what lacks of these data sets, and on what to do; empty where nothing does."""
        files: dict[str, list[str]] = {}
        folders = []
        for name in names:
            path = self.missing(name, folder, sources)
            if path is not None and self.data[self.split_name(name)[0]].source is not None:
                files.setdefault(path.name, []).append(name)
            elif path is not None:
                folders.append(str(path))
        sentences = []
        if files:
            named = _words([f"{file} (for {_words(data_sets)})" for file, data_sets in files.items()])
            sentences.append(f"{named} {_are(files)} not in {sources}: name the folder of such files with --sources or "
                        "FEDSCALE_EXT_SHARED_DATA (evals/data.md says what they are)")  # fmt: skip
        if folders:
            sentences.append(f"{_words(folders)} {_are(folders)} not there: import such data first (`fedscale dataset "
                        "import --help`)")  # fmt: skip
        if others := [str(folder / name) for name in names if self._dealt_otherwise(name, folder)]:
            dealt = "was" if len(others) == 1 else "were"
            sentences.append(f"{_words(others)} {dealt} dealt to clients in another way: name another --folder")
        return "; ".join(sentences)

    def _dealt_otherwise(self, name: str, folder: Path) -> bool:
        """Whether a folder of this name, of which papers share one for all data, says that it was imported with another
        partition; never of one that had to be imported beforehand."""
        base, partition = self.split_name(name)
        path = folder / name / "dataset.json"
        if self.data[base].source is None or not partition or not path.is_file():
            return False
        imported = json.loads(path.read_text(encoding="utf-8")).get("settings", {}).get("partition")
        needed: dict[str, Any] = {
            **_UNASKED,
            **{_FIELDS[option]: value for option, value in zip(partition[::2], partition[1::2], strict=True)},
        }
        in_folder = {**_UNASKED, **(imported or {})}
        return bool(imported) and any(str(in_folder.get(field)) != str(value) for field, value in needed.items())

    def prepared(self, name: str, folder: Path, sources: Path) -> Path:
        """Folder of a data set in FedScale's layout, imported now unless it is there; UserError if it cannot be."""
        base, partition = self.split_name(name)
        out, entry = folder / name, self.data[base]
        if (missing := self.missing(name, folder, sources)) is not None:
            sys.exit(f"{missing} is not there")
        if entry.source is None or _imported(out):
            return out
        options = ["--data-set", entry.kind, "--name", name, "-o", str(out), *entry.options, *partition]
        source, rewritten = sources / entry.source, folder / f"{name}.npz"
        try:  # in this process: an interrupt would reach another one while Python is still starting there
            if entry.rewritten is not None:
                entry.rewritten(source, rewritten)
                source = rewritten
            code = app(["dataset", "import", str(source), *options], standalone_mode=False)
        except UserError as error:
            raise UserError(f"{name} could not be imported: {error}") from None
        finally:
            rewritten.unlink(missing_ok=True)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        return out


def _imported(folder: Path) -> bool:
    return (folder / "client_data_mapping" / "train.csv").is_file()


def _words(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _are(things: Sized) -> str:
    return "is" if len(things) == 1 else "are"
