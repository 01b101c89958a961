"""A data folder that is in FedScale's layout already, as a source: to give its samples other clients."""

import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import with_channels
from fedscale_ext.data.decoding.sample_files import decode_sample
from fedscale_ext.data.formats.source import Sample, Source
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import describe, read_layout
from fedscale_ext.data.layout.label_names import contradictions, names_by_label
from fedscale_ext.data.registry import Shape


@dataclass
class LayoutSource(Source):
    """A folder with ``client_data_mapping``; see ``importers.import_layout``."""

    path: Path
    data_set: str
    sides: Sequence[int] | None = None
    kind: str = "FedScale's layout"

    def __post_init__(self) -> None:
        self._shape: Shape | None = None
        self._conversions = Conversions()

    def notes(self) -> list[str]:
        """See :class:`formats.source.Source`."""
        return [] if self._shape is None else self._conversions.sentences(self._shape, "")

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`formats.source.Source`; the split into train.csv and test.csv is kept."""
        about = describe(data_folder(self.path), self.data_set)
        if self.sides is not None:
            about = describe(data_folder(self.path), self.data_set, with_channels(self.sides, about.shape[0]))
        self._shape, self.num_classes = about.stored, about.classes
        self.label_names = about.written.get("label_names", [])
        train, test = read_layout(self.path, self.data_set, about.classes)
        parts = [(train, None if test is None else False)] + ([] if test is None else [(test, True)])
        names = [part.label_names for part, _ in parts]
        if wrong := contradictions(names, self.label_names):
            more = f", and {len(wrong) - 1} more such names" if len(wrong) > 1 else ""
            command = f"fedscale dataset verify {shlex.quote(str(self.path))}"
            raise UserError(f"{wrong[0]}{more}; `{command}` shows them")
        self.label_names = self.label_names or names_by_label(names)
        self._outline((part.labels, is_test) for part, is_test in parts)
        for part, is_test in parts:
            for row in range(len(part)):
                file = part.file(row)
                x = decode_sample(file, about.stored, about.values, self._conversions)
                yield Sample(x, int(part.labels[row]), part.clients[part.client[row]], is_test, str(file))
