"""What is worth knowing about the samples and clients of a data set, in sentences."""

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedscale_ext.core.errors import one_line
from fedscale_ext.data.wording import composed, counted, quoted

_DARK = 32  # brightest pixel of 255 below which samples are probably in other units, as 0..1 or 0..16
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation"}


class SampleNotes:
    """Looks at samples as they are written, and keeps a few numbers of each: equal ones, constant ones, dark ones."""

    def __init__(self) -> None:
        self._digests = array("Q")
        self._constant = 0
        self._first_constant = ""
        self._brightest = 0

    def see(self, x: np.ndarray, where: str) -> None:
        """Look at a sample; ``where`` names it to the user."""
        digest = hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=8)
        self._digests.append(int.from_bytes(digest.digest(), "little"))
        smallest, largest = x.min(), x.max()
        if smallest == largest:
            self._first_constant = self._first_constant or where
            self._constant += 1
        if x.dtype != np.uint8:
            self._brightest = 255
        elif largest > self._brightest:
            self._brightest = int(largest)

    def sentences(
        self, labels: np.ndarray, train: np.ndarray, test: np.ndarray, file: Callable[[int], str]
    ) -> list[str]:
        """What is to be reported, for ``labels`` int [n], ``train`` / ``test`` bool [n]: who has which split, and the
        ``file`` that a sample was written to."""
        return self._equal(labels, train, test, file) + self.values()

    def values(self) -> list[str]:
        """What is to be reported of the samples' values: constant ones, dark ones."""
        notes = []
        if self._constant:
            what = "sample has" if self._constant == 1 else "samples have"
            notes.append(f"{self._constant:,} {what} the same value everywhere, the first is {self._first_constant}")
        if self._digests and self._brightest < _DARK:
            notes.append(
                f"no pixel is above {self._brightest} of 255: give pixels of 0 to 255 as bytes, or of 0 to 1 as floats"
            )
        return notes

    def _equal(self, labels: np.ndarray, train: np.ndarray, test: np.ndarray, file: Callable[[int], str]) -> list[str]:
        used = np.flatnonzero(train | test)
        digests = np.array(self._digests)[used]
        _, first, content = np.unique(digests, return_index=True, return_inverse=True)
        content = content.reshape(-1)
        again = np.flatnonzero(first[content] != np.arange(len(content)))
        if not len(again):
            return []
        rows = [int(used[index]) for index in (first[content[again[0]]], again[0])]
        what = counted(len(again), "sample equals", "samples equal")
        notes = [f"{what} an earlier one, as {file(rows[1])} does {file(rows[0])}"]
        of_label = np.unique(np.stack([content, labels[used]]), axis=1)[0]
        if several := int((np.bincount(of_label) > 1).sum()):
            notes.append(f"{several:,} of these came with more than one label")
        trained = np.zeros(len(first), dtype=bool)
        trained[content[train[used]]] = True
        if leaked := int(trained[content[test[used]]].sum()):
            notes.append(f"{counted(leaked, 'test sample equals', 'test samples equal')} a training sample")
        return notes


def client_notes(
    names: Sequence[str], train_sizes: np.ndarray, test_sizes: np.ndarray, *, bad_tests: bool = False
) -> list[str]:
    """Sentences about clients by ``names``, for samples of each, int [clients]: alike names, only one split.

    With ``bad_tests``, there are rows of test samples, none of which can be used.
    """
    trains, tests = train_sizes > 0, test_sizes > 0
    notes = alike_note(names, "clients")
    if len(names) > 1 and {name.strip().casefold() for name in names} <= _SPLITS:
        notes.append(f"the clients are called {quoted(names)}: if these are splits, import one of them by --partition")
    only_tests = [names[index] for index in np.flatnonzero(tests & ~trains).tolist()]
    if only_tests:
        notes.append(f"{counted(len(only_tests), 'client has', 'clients have')} only test samples, which no job uses: "
                     f"{quoted(only_tests)}")  # fmt: skip
    if (most := int(test_sizes.sum())) > (fewer := int(train_sizes.sum())):
        notes.append(f"there are more test samples ({most:,}) than training samples ({fewer:,}): in a split by "
                     "numbers, 0 is training and 1 is test")  # fmt: skip
    if not tests.any() and not bad_tests:
        notes.append("there are no test samples: jobs hold out a share of each client's (test_split)")
    elif tests.any() and (trains & ~tests).any():
        untested = [names[index] for index in np.flatnonzero(trains & ~tests).tolist()]
        notes.append(untested_note(len(untested), int(trains.sum())) + f" ({quoted(untested)})")
    return notes


def shared_note(train: np.ndarray, test: np.ndarray, path: Callable[[int], str]) -> list[str]:
    """A sentence about test samples whose file is a training sample's too; [] where there are none.

    ``train`` and ``test`` are the samples' file_keys, int64; ``path`` gives the path of a test sample by its index.
    """
    if not len(train):
        return []
    ordered = np.sort(train)  # np.isin takes ten times as long for a million random numbers
    rows = np.flatnonzero(ordered[np.minimum(np.searchsorted(ordered, test), len(ordered) - 1)] == test)
    if not len(rows):
        return []
    first = one_line(path(int(rows[0])), 200)
    what = "test sample is a training sample" if len(rows) == 1 else "test samples are training samples"
    which = first if len(rows) == 1 else f"the first is {first}"
    return [f"{len(rows):,} {what} too ({which}): name each file in one row"]


def untested_note(untested: int, clients: int) -> str:
    """Describe the clients that train and are not tested."""
    are = "it is" if untested == 1 else "they are"
    has = "has" if untested == 1 else "have"
    return f"{untested:,} of {counted(clients, 'client')} {has} no test samples: {are} not in the accuracies"


def alike_note(names: Iterable[str], what: str) -> list[str]:
    """A sentence about names of ``what`` that differ only by case, spaces and the form of accented letters; [] where
    none do.

    Single characters are left aside: 'A' and 'a' are two letters.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        groups["".join(composed(composed(name).casefold()).split())].append(name)
    alike = [group for group in groups.values() if len(group) > 1 and any(len(name) > 1 for name in group)]
    if not alike:
        return []
    # Unicode writes an accented letter as one character or as two; both look the same
    looks = len({composed(name) for name in alike[0]}) < len(alike[0])
    how = "case, spaces or how their accented letters are coded" if looks else "case or spaces"
    more = f" ({len(alike):,} such groups)" if len(alike) > 1 else ""
    return [f"{what} {quoted(alike[0])} differ only by {how}, and stay apart{more}"]
