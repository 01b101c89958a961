"""Data sets that the project knows by name: classes, shape and normalisation.

The constants are those of FedScale's ``dataloaders/utils_data.py`` without its random flips and crops:
a sample looks the same each time it is read. FedScale leaves CIFAR-10 unnormalised (``ToTensor`` only,
the constants stand there in a comment); here CIFAR is normalised with those constants, because models
without normalisation layers train badly on inputs that are all positive. SVHN and STL-10 are mapped to [-1, 1] as
in HypeMeFed's public code; that leaves UniMiB SHAR in m/s2, which here becomes multiples of the earth's gravity.
"""

import string
from dataclasses import dataclass

from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.core.shapes import Shape

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes of FEMNIST in LEAF's order of labels."""

_RGB_MEAN, _RGB_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_GREY_MEAN, _GREY_STD = (0.1307,), (0.3081,)


@dataclass(frozen=True)
class KnownDataSet:
    """What is fixed about a data set.

    ``shape`` is (channels, height, width); ``mean`` and ``std`` are per channel, of pixels in [0, 1].
    ``values``: samples are float16 values instead of pixels, ``mean`` and ``std`` are of these.
    ``by_name``: a csv's label is its column before the last, a name of ``label_names``, as FedScale reads it.
    ``rate`` of the clips of a data set of speech, per second: files of them are at 16 kHz.
    ``others``: the label of every other word of Speech Commands, where not each has its own.
    ``silence``: share of each client's clips that is added as seconds of background noise, all other words being kept;
    0: as many of both as a word has clips on average.
    ``text``: samples are numbers of symbols, each label the one that follows.
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
    values: bool = False
    by_name: bool = False
    others: str = ""
    rate: int = 16_000
    silence: float = 0.0
    text: bool = False

    def label(self, name: str) -> int | None:
        """Return the label of a name, None where there is none."""
        if self.others and name in SPEECH_WORDS and name not in self.label_names:
            name = self.others
        return self.label_names.index(name) if name in self.label_names else None


SPEECH_WORDS = (
    "up", "two", "sheila", "zero", "yes", "five", "one", "happy", "marvin", "no", "go", "seven", "eight", "tree",
    "stop", "down", "forward", "learn", "house", "three", "six", "backward", "dog", "cat", "wow", "left", "off", "on",
    "four", "visual", "nine", "bird", "right", "follow", "bed",
)  # fmt: skip
"""The 35 words of Speech Commands v0.02, by FedScale's labels (``dataloaders/speech.py``)."""

SILENCE, UNKNOWN = "_silence_", "_unknown_"
_TWELVE = (SILENCE, UNKNOWN, "yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
_LOG_MEL_MEAN, _LOG_MEL_STD = (-6.0,), (4.5,)  # of the clips of the official test set
_MFCC_MEAN, _MFCC_STD = (-12.4,), (71.8,)  # of clips of twelve of its speakers
_SQUARE_MEAN, _SQUARE_STD = (-11.5,), (79.2,)  # of the same clips

DIGITS = tuple(string.digits)
"""The classes of generated digits: the first ten of CHARACTERS."""

GENERATED_SETS = ("femnist", "digits")
"""Data sets that ``fedscale dataset synthesize`` generates."""

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_CIFAR10_LABELS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_STL10_LABELS = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
_FALLS = (
    "FallingForw", "FallingRight", "FallingBack", "HittingObstacle", "FallingWithPS", "FallingBackSC", "Syncope",
    "FallingLeft",
)  # fmt: skip

KNOWN: tuple[KnownDataSet, ...] = (
    KnownDataSet(
        "femnist", "handwritten characters by writer (LEAF)", 62, (1, 28, 28), _GREY_MEAN, _GREY_STD,
        label_names=tuple(CHARACTERS), natural_clients=True,
    ),
    KnownDataSet(
        "digits", "generated digits by made-up writers", 10, (1, 28, 28), _GREY_MEAN, _GREY_STD,
        label_names=DIGITS, natural_clients=True,
    ),
    KnownDataSet("mnist", "handwritten digits", 10, (1, 28, 28), _GREY_MEAN, _GREY_STD),
    KnownDataSet("emnist", "handwritten characters, balanced split", 47, (1, 28, 28), _GREY_MEAN, _GREY_STD),
    KnownDataSet("fashionmnist", "grey pictures of clothes", 10, (1, 28, 28), (0.2860,), (0.3530,)),
    KnownDataSet(
        "cifar10", "small photographs", 10, (3, 32, 32), _RGB_MEAN, _RGB_STD, label_names=_CIFAR10_LABELS
    ),
    KnownDataSet("cifar100", "small photographs", 100, (3, 32, 32), _RGB_MEAN, _RGB_STD),
    KnownDataSet("svhn", "house numbers, cropped digits", 10, (3, 32, 32), (0.5,) * 3, (0.5,) * 3),
    KnownDataSet(
        "stl10", "photographs, the labelled ones", 10, (3, 96, 96), (0.5,) * 3, (0.5,) * 3, label_names=_STL10_LABELS
    ),
    KnownDataSet(
        "openimage", "OpenImage photographs by author", 596, (3, 64, 64), _RGB_MEAN, _RGB_STD,
        natural_clients=True, split_folders=True,
    ),
    KnownDataSet(
        "speech", "spoken words by speaker, log-mel", 35, (1, 49, 40), _LOG_MEL_MEAN, _LOG_MEL_STD,
        label_names=SPEECH_WORDS, natural_clients=True, split_folders=True, values=True, by_name=True,
    ),
    KnownDataSet(
        "speech12", "the same: ten words, unknown, silence", 12, (1, 49, 40), _LOG_MEL_MEAN, _LOG_MEL_STD,
        label_names=_TWELVE, natural_clients=True, split_folders=True, values=True, by_name=True, others=UNKNOWN,
    ),
    KnownDataSet(
        "fsdd", "spoken digits by speaker, log-mel", 10, (1, 49, 40), _LOG_MEL_MEAN, _LOG_MEL_STD,
        label_names=_DIGITS, natural_clients=True, values=True, by_name=True, rate=8_000,
    ),
    KnownDataSet(
        "speech_mfcc", "spoken words by speaker, cepstra", 35, (1, 40, 51), _MFCC_MEAN, _MFCC_STD,
        label_names=SPEECH_WORDS, natural_clients=True, split_folders=True, values=True, by_name=True,
    ),
    KnownDataSet(
        "speech12_mfcc", "the same: ten words, unknown, silence", 12, (1, 40, 51), _MFCC_MEAN, _MFCC_STD,
        label_names=_TWELVE, natural_clients=True, split_folders=True, values=True, by_name=True, others=UNKNOWN,
        silence=0.1,
    ),
    KnownDataSet(
        "speech12_mfcc32", "speech12 with Moss's 32 x 32 cepstra", 12, (1, 32, 32), _SQUARE_MEAN, _SQUARE_STD,
        label_names=_TWELVE, natural_clients=True, split_folders=True, values=True, by_name=True, others=UNKNOWN,
    ),
    KnownDataSet(
        "fsdd_mfcc32", "fsdd with the same cepstra", 10, (1, 32, 32), _SQUARE_MEAN, _SQUARE_STD,
        label_names=_DIGITS, natural_clients=True, values=True, by_name=True, rate=8_000,
    ),
    KnownDataSet(
        "depth_har", "depth images of gestures by device, in three surroundings", 5, (1, 36, 36), (0.5,), (0.5,),
        label_names=("good", "ok", "victory", "stop", "fist"), natural_clients=True,
    ),
    KnownDataSet(
        "uci_har", "activities by person, 9 sensors x 128", 6, (1, 9, 128), (0.0,), (1.0,),
        natural_clients=True, values=True,
    ),
    KnownDataSet(
        "unimib_shar", "falls by person, 3 axes x 150 in m/s2", 8, (1, 18, 25), (0.0,), (9.81,),
        label_names=_FALLS, natural_clients=True, values=True,
    ),
    KnownDataSet(
        "shakespeare", "the symbol after 80, by speaking role", 90, (1, 1, 80), (0.0,), (1.0,),
        natural_clients=True, values=True, text=True,
    ),
)  # fmt: skip


def known(name: str) -> KnownDataSet | None:
    """Return the data set of a name, FedScale's spelling or upper case included, or None."""
    spelt = data_set_name(name).lower()
    return next((entry for entry in KNOWN if entry.name == spelt), None)


def is_text(name: str) -> bool:
    """Return whether samples of a data set are symbols of a text; only known data sets have texts."""
    entry = known(name)
    return entry is not None and entry.text


def canonical(name: str) -> str:
    """Return the registry's spelling of a data set's name; the name itself where the data set is not known."""
    entry = known(name)
    return entry.name if entry else name


def normalisation(name: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel for pixels in [0, 1] or for values.

    A data set that is not known, or is read with another number of channels, is mapped to [-1, 1]
    (FEMNIST read as three channels, as FedScale does, repeats its grey constants).
    """
    entry = known(name)
    if entry is not None and len(entry.mean) in (1, channels):
        repeat = channels // len(entry.mean)
        return entry.mean * repeat, entry.std * repeat
    return (0.5,) * channels, (0.5,) * channels
