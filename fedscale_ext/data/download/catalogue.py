"""What can be downloaded, from where: sources.json as dataclasses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.data.registry import known

WITHOUT_CLIENTS = ("idx", "cifar", "svhn", "stl10")  # formats whose samples are nobody's


@dataclass(frozen=True)
class File:
    """A file by its name: its exact ``size`` in bytes or what it is ``about`` (None: not known), its ``sha256`` (None:
    none is published), and where both were read."""

    name: str
    size: int | None
    about: int | None
    sha256: str | None
    origin: str

    @property
    def expected(self) -> int:
        """Expected bytes of the file, 0 where nothing is known."""
        return self.size or self.about or 0

    @property
    def most(self) -> int:
        """Most bytes that the file may have."""
        return self.size or max(4 * self.expected, 1 << 32)

    @property
    def is_archive(self) -> bool:
        """Whether the file is unpacked before the import."""
        return self.name.endswith((".tar.gz", ".tgz", ".tar", ".zip"))


@dataclass(frozen=True)
class MirroredFiles:
    """Files that hold a data set in one ``format`` of the importers, and mirrors ``{name: address with {name}}`` that
    have all of them; ``take`` and ``unpacked``: patterns and rough bytes of what comes out of an archive."""

    format: str
    files: tuple[File, ...]
    mirrors: Mapping[str, str]
    take: tuple[str, ...]
    unpacked: int

    @property
    def size(self) -> int:
        """Bytes of all files, roughly where they are not known."""
        return sum(file.expected for file in self.files)


@dataclass(frozen=True)
class Downloadable:
    """A data set: ``folder`` names the place of its files, which others may share."""

    name: str
    folder: str
    samples: int
    sources: tuple[MirroredFiles, ...]

    @property
    def needs_partition(self) -> bool:
        """Whether the samples have no clients, so that an import needs a partition."""
        return all(source.format in WITHOUT_CLIENTS for source in self.sources)

    def import_bytes(self) -> int:
        """Estimate the bytes of the imported folder: a file per sample, in blocks of 4 KiB, and decoded samples."""
        entry = known(self.name)
        assert entry is not None
        channels, height, width = entry.shape
        stored = channels * height * width * (2 if entry.values else 1)
        written = 32044 if entry.by_name else stored  # speech: a second of wav
        return self.samples * (-(-written // 4096) * 4096 + stored)

    def at(self, mirror: str | None) -> "Downloadable":
        """Return a copy with one mirror only: a known one, or the address of a folder; UserError for anything else."""
        if mirror is None:
            return self
        if mirror.startswith(("http://", "https://")):
            mirrors = {mirror: mirror if "{name}" in mirror else f"{mirror.rstrip('/')}/{{name}}"}
            return replace(self, sources=tuple(replace(source, mirrors=mirrors) for source in self.sources))
        having = [source for source in self.sources if mirror in source.mirrors]
        if not having:
            names = [name for source in self.sources for name in source.mirrors]
            raise UserError(
                f"{self.name} has no mirror {mirror!r}{meant_or_known(mirror, names)}, or give the address "
                "of a folder that holds its files (https://…)"
            )
        only = (replace(source, mirrors={mirror: source.mirrors[mirror]}) for source in having)
        return replace(self, sources=tuple(only))


def catalogue() -> dict[str, Downloadable]:
    """Return the data sets that can be downloaded, by name."""
    text = files("fedscale_ext.data.download").joinpath("sources.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)["data_sets"]
    data_sets = {}
    for name, entry in entries.items():
        folder = entry.get("files_of", name)
        content = entries[folder]
        data_sets[name] = Downloadable(name, folder, content["samples"], tuple(map(_source, content["sources"])))
    return data_sets


def downloadable(name: str) -> Downloadable:
    """Return a data set by its name in upper or lower case; UserError, with alternatives, where there is none."""
    entries = catalogue()
    for entry in entries.values():
        if entry.name.lower() == name.lower():
            return entry
    hint = f": import files of your own (fedscale dataset import FILES --data-set {name})" if known(name) else ""
    raise UserError(f"{name!r} cannot be downloaded{hint or meant_or_known(name, entries)}")


def _source(content: Mapping[str, Any]) -> MirroredFiles:
    parts = tuple(
        File(part["name"], part.get("bytes"), part.get("about"), part.get("sha256"), part["from"])
        for part in content["files"]
    )
    return MirroredFiles(
        content["format"], parts, content["mirrors"], tuple(content.get("take", ())), content.get("unpacked", 0)
    )
