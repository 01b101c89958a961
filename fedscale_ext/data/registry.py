"""Data sets that the project knows by name: classes, shape and normalisation.

The constants are those of FedScale's ``dataloaders/utils_data.py`` without its random flips and crops:
a sample looks the same each time it is read. FedScale leaves CIFAR-10 unnormalised (``ToTensor`` only,
the constants stand there in a comment); here CIFAR is normalised with those constants, because models
without normalisation layers train badly on inputs that are all positive.
"""

import string
from dataclasses import dataclass

Shape = tuple[int, int, int]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes of FEMNIST in LEAF's order of labels."""

_RGB_MEAN, _RGB_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_GREY_MEAN, _GREY_STD = (0.1307,), (0.3081,)


@dataclass(frozen=True)
class KnownDataSet:
    """What is fixed about a data set.

    ``shape`` is (channels, height, width); ``mean`` and ``std`` are per channel, of pixels in [0, 1].
    ``split_folders``: FedScale's loader looks for a sample of ``train.csv`` below ``data_dir/train``
    and for one of ``test.csv`` below ``data_dir/test`` instead of below ``data_dir``.
    """

    name: str
    title: str
    classes: int
    shape: Shape
    mean: tuple[float, ...]
    std: tuple[float, ...]
    label_names: tuple[str, ...] = ()
    natural_clients: bool = False
    split_folders: bool = False


_CIFAR10_LABELS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

KNOWN: tuple[KnownDataSet, ...] = (
    KnownDataSet(
        "femnist", "handwritten characters by writer (LEAF)", 62, (1, 28, 28), _GREY_MEAN, _GREY_STD,
        label_names=tuple(CHARACTERS), natural_clients=True,
    ),
    KnownDataSet("Mnist", "handwritten digits", 10, (1, 28, 28), _GREY_MEAN, _GREY_STD),
    KnownDataSet("emnist", "handwritten characters, balanced split", 47, (1, 28, 28), _GREY_MEAN, _GREY_STD),
    KnownDataSet("FashionMnist", "grey pictures of clothes", 10, (1, 28, 28), (0.2860,), (0.3530,)),
    KnownDataSet(
        "cifar10", "small photographs", 10, (3, 32, 32), _RGB_MEAN, _RGB_STD, label_names=_CIFAR10_LABELS
    ),
    KnownDataSet("cifar100", "small photographs", 100, (3, 32, 32), _RGB_MEAN, _RGB_STD),
    KnownDataSet(
        "openImg", "OpenImage photographs by author", 596, (3, 64, 64), _RGB_MEAN, _RGB_STD,
        natural_clients=True, split_folders=True,
    ),
)  # fmt: skip


def known(name: str) -> KnownDataSet | None:
    """The data set of that name (upper and lower case are the same), or None."""
    return next((entry for entry in KNOWN if entry.name.lower() == name.lower()), None)


def normalisation(name: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel for pixels in [0, 1].

    A data set that is not known, or is read with another number of channels, is mapped to [-1, 1]
    (FEMNIST read as three channels, as FedScale does, repeats its grey constants).
    """
    entry = known(name)
    if entry is not None and len(entry.mean) in (1, channels):
        repeat = channels // len(entry.mean)
        return entry.mean * repeat, entry.std * repeat
    return (0.5,) * channels, (0.5,) * channels
