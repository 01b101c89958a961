"""Look at a whole data folder and count what is in it and what is wrong with it."""

import os
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.sample_files import decode_sample
from fedscale_ext.data.importing.conversions import Conversions
from fedscale_ext.data.importing.notes import client_notes, shared_note
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import describe, gaps_note, names_in, notes_in, read_layout
from fedscale_ext.data.layout.label_names import contradictions, skipped_notes
from fedscale_ext.data.layout.labels import untrained_note
from fedscale_ext.data.layout.sample_csv import SampleTable
from fedscale_ext.data.progress import Progress, report_progress
from fedscale_ext.data.registry import Shape
from fedscale_ext.data.wording import counted

QUANTILES = (0, 5, 25, 50, 75, 95, 100)
_SHOWN = 20


@dataclass(frozen=True)
class Verification:
    """Content and problems of a data folder.

    ``train_quantiles`` are training samples per client at ``QUANTILES`` per cent. ``bad_rows`` counts rows that are
    incomplete or lead out of the folder, ``contradictory_names`` label_names that have several label_ids.
    ``problems`` are the first 20 in words. ``notes`` say what is no fault but worth knowing: what the import of the
    folder reported, then what reading it shows.
    """

    name: str
    data_set: str
    generated: bool
    shape: Shape
    classes: int
    classes_present: int
    clients: int
    train_samples: int
    test_samples: int | None
    test_only_clients: int
    train_quantiles: tuple[int, ...]
    missing_files: int
    broken_files: int
    labels_out_of_range: int
    bad_rows: int
    contradictory_names: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether a job can run on the data."""
        return not self.problems


def _quantiles(client: np.ndarray, clients: int) -> tuple[int, ...]:
    sizes = np.bincount(client, minlength=clients)
    quantiles = np.percentile(sizes, QUANTILES, method="nearest") if clients else np.zeros(len(QUANTILES))
    return tuple(int(value) for value in quantiles)


def _repeated_files(train: SampleTable, test: SampleTable | None) -> list[str]:
    """Sentences about files that several rows of a csv name, and files that are training and test samples."""
    parts = [train] if test is None else [train, test]
    again = sum(len(part) - len(np.unique(part.file_keys)) for part in parts)
    shared = [] if test is None else shared_note(train.file_keys, test.file_keys, test.paths.__getitem__)
    return ([f"{counted(again, 'row names', 'rows name')} a file that an earlier row names"] if again else []) + shared


def _client_notes(train: SampleTable, test: SampleTable | None) -> list[str]:
    names = train.clients if test is None else test.clients
    trained = np.bincount(train.client, minlength=len(names))
    tested = np.zeros_like(trained) if test is None else np.bincount(test.client, minlength=len(names))
    return client_notes(names, trained, tested, bad_tests=test is not None and not len(test))


def verify(
    data_dir: str | os.PathLike[str],
    data_set: str,
    *,
    data_map_file: str | os.PathLike[str] | None = None,
    input_shape: tuple[int, int, int] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Read every row and decode every image, counting problems where a job would stop at the first.

    UserError only where there is no data set: no folder, no csv, or no header.
    """
    about = describe(data_folder(data_dir, data_set), data_set, input_shape)
    counts = {"missing": 0, "broken": 0, "label": 0, "path": 0, "row": 0, "name": 0}
    problems: list[str] = []

    def note(kind: str, sentence: str) -> None:
        counts[kind] += 1
        if len(problems) < _SHOWN:
            problems.append(sentence)

    train, test = read_layout(data_dir, data_set, about.classes, data_map_file, note)
    parts = [train] if test is None else [train, test]
    label_names = [part.label_names for part in parts]
    for sentence in contradictions(label_names, names_in(about.written)):
        note("name", sentence)
    total = sum(map(len, parts))
    done = 0
    conversions = Conversions()
    imported = "notes" in about.written  # then they say what was changed and noticed, about the samples as they came
    for part in parts:
        for row in range(len(part)):
            try:
                decode_sample(part.file(row), about.stored, about.values, conversions)
            except UserError as error:
                note("broken", str(error))
            done += 1
            report_progress(progress, done, total)
    labels = np.concatenate([part.labels for part in parts])
    clients = len(train.clients)
    notes = [
        *notes_in(about.written),
        *_repeated_files(train, test),
        *skipped_notes(label_names),
        *([] if imported else [*conversions.sentences(about.stored, ""), *gaps_note(about, labels)]),
        *([] if test is None else untrained_note(train.labels, test.labels, names_in(about.written))),
        *([] if imported else _client_notes(train, test)),
    ]
    return Verification(
        name=about.name,
        data_set=data_set,
        generated=about.generated,
        shape=about.shape,
        classes=about.classes or (int(labels.max()) + 1 if len(labels) else 0),
        classes_present=len(np.unique(labels)),
        clients=clients,
        train_samples=len(train),
        test_samples=None if test is None else len(test),
        test_only_clients=0 if test is None else len(test.clients) - clients,
        train_quantiles=_quantiles(train.client, clients),
        missing_files=counts["missing"],
        broken_files=counts["broken"],
        labels_out_of_range=counts["label"],
        bad_rows=counts["path"] + counts["row"],
        contradictory_names=counts["name"],
        problems=tuple(problems),
        notes=tuple(dict.fromkeys(notes)),  # an import has written some of them before
    )
