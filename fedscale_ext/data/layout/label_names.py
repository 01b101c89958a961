"""Compares the label_name of samples with their label_id: within a csv file, between files, and with dataset.json."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fedscale_ext.core.errors import enumerated
from fedscale_ext.data.wording import counted, listed, quoted

MAX_PAIRS = 100_000  # of a name and a label, in a csv; each is a Python object
_MAX_NAME = 1000  # characters
_SHOWN = 3  # names in the notes of a job, and labels of a name in a sentence


class LabelNames:
    """The pairs of label_name and label_id in the rows of a csv called ``csv``, with their number and first line."""

    def __init__(self, csv: str) -> None:
        self.csv = csv
        self.pairs: dict[tuple[str, int], tuple[int, int]] = {}
        self.skipped = 0

    def add(self, name: str, label: int, line: int) -> None:
        """Count a row; names beyond the bounds are only counted as skipped."""
        pair = (name, label)
        seen = self.pairs.get(pair)
        if seen is not None:
            self.pairs[pair] = (seen[0] + 1, seen[1])
        elif len(self.pairs) < MAX_PAIRS and len(name) <= _MAX_NAME:
            self.pairs[pair] = (1, line)
        else:
            self.skipped += 1

    def by_name(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Each name's labels with number of rows and first line; {} where all names are one placeholder."""
        labels: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for (name, label), seen in self.pairs.items():
            if name.strip():
                labels[name][label] = seen
        return dict(labels) if len(labels) > 1 else {}


def contradictions(parts: Sequence[LabelNames], described: Sequence[str] = ()) -> list[str]:
    """A sentence per label_name that has several label_ids in the csv files ``parts``, or another one than in
    ``described``, the names of labels 0.. in dataset.json.

    Several names of one label are no contradiction, nor are several labels that ``described`` gives one name.
    """
    expected: dict[str, list[int]] = defaultdict(list)
    for label, name in enumerate(described):
        expected[name].append(label)
    files = [(part.csv, part.by_name()) for part in parts]
    sentences = []
    for name in dict.fromkeys(name for _, names in files for name in names):
        of_files = [(csv, names[name]) for csv, names in files if name in names]
        labels = {label for _, seen in of_files for label in seen}
        if labels <= set(expected[name]) if name in expected else len(labels) == 1:
            continue
        sentences.append(_sentence(name, of_files, expected.get(name, ())))
    return sentences


def names_by_label(parts: Sequence[LabelNames]) -> list[str]:
    """The name of each label 0.. up to the largest in the csv files ``parts``: its most frequent one, or its number
    where it has none; [] where the files name no labels apart."""
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    if not any(part.by_name() for part in parts):
        return []
    for part in parts:
        for (name, label), (rows, _) in part.pairs.items():
            if name.strip():
                counts[label][name] += rows
    return [
        max(counts[label], key=counts[label].__getitem__) if label in counts else str(label)
        for label in range(max(counts) + 1)
    ]


def contradiction_notes(parts: Sequence[LabelNames], described: Sequence[str] = ()) -> list[str]:
    """The first few of :func:`contradictions`, and how many more there are."""
    sentences = contradictions(parts, described)
    more = len(sentences) - _SHOWN
    rest = f"{counted(more, 'more label name has', 'more label names have')} several label_ids"
    return sentences[:_SHOWN] + ([f"{rest}: `fedscale dataset verify` shows more of them"] if more > 0 else [])


def skipped_notes(parts: Sequence[LabelNames]) -> list[str]:
    """A sentence per csv with names that were not compared, as there are too many or they are too long."""
    return [
        f"{counted(part.skipped, 'row')} of {part.csv} {'has' if part.skipped == 1 else 'have'} a label_name that was "
        f"not compared with label_id: more than {MAX_PAIRS:,} names, or more than {_MAX_NAME:,} characters"
        for part in parts
        if part.skipped
    ]


def _sentence(name: str, of_files: Sequence[tuple[str, dict[int, tuple[int, int]]]], expected: Sequence[int]) -> str:
    values = [text for csv, seen in of_files for text in _values(csv, seen)]
    if expected:
        values.append(f"{listed(expected, _SHOWN)} in dataset.json")
    mixed = [csv for csv, seen in of_files if len(seen) > 1]
    check = f"check {mixed[0]}" if len(mixed) == 1 else "check both files" if len(values) == 2 else "check these files"
    return f"label_name {quoted([name])} has label_id {enumerated(values)}: {check}"


def _values(csv: str, seen: dict[int, tuple[int, int]]) -> Iterator[str]:
    """The labels of a name in a csv, the most frequent first; the others with their first line."""
    if len(seen) == 1:
        yield f"{next(iter(seen))} in {csv}"
        return
    (label, (rows, _)), *others = sorted(seen.items(), key=lambda entry: -entry[1][0])
    yield f"{label} in {counted(rows, 'row')} of {csv}"
    for label, (rows, line) in others[:_SHOWN]:
        yield f"{label} in {counted(rows, 'row')} ({'line' if rows == 1 else 'first in line'} {line})"
    if len(others) > _SHOWN:
        yield f"{counted(len(others) - _SHOWN, 'other label')}"
