"""Figures of the papers, to be set beside one's own.

FedTrans's Table 2 (arXiv text, whose columns are right): mean client accuracy and IQR in per cent, cost in PMACs,
storage and network in MB. What the paper counts as cost, storage and network it does not say, so ratios compare
and absolute values do not. HypeMeFed's Table 1: accuracy of the whole model on UniMiB SHAR by the number of
singular components.
FedScale's leaderboard: test accuracy with its standard deviation over five seeds, rounds, and hours on its clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.metrics.job_folder.header import JobHeader

_FEDTRANS, _HYPEMEFED = "FedTrans, Table 2", "HypeMeFed, Table 1"
# data set -> method -> accuracy %, IQR %, PMACs, storage MB, network MB
TABLE2: dict[str, dict[str, tuple[float, float, float, float, float]]] = {
    "cifar10": {
        "fedtrans": (78.29, 5.25, 0.86, 6.8, 1368.4), "fluid": (59.81, 3.00, 1.50, 71.7, 1433.4),
        "heterofl": (64.51, 7.00, 4.31, 45.7, 1828.4), "splitmix": (51.36, 6.23, 4.49, 35.4, 7089.3),
    },
    "femnist": {
        "fedtrans": (76.42, 13.23, 0.10, 0.04, 8.9), "fluid": (62.52, 13.63, 0.38, 0.3, 64.6),
        "heterofl": (61.54, 13.50, 0.78, 1.0, 209.0), "splitmix": (27.13, 10.60, 1.29, 1.3, 9392.5),
    },
    "speech": {
        "fedtrans": (91.75, 4.75, 0.10, 0.3, 56.4), "fluid": (76.50, 43.65, 0.26, 0.6, 121.5),
        "heterofl": (73.69, 40.00, 1.49, 1.0, 197.5), "splitmix": (19.60, 8.89, 0.60, 1.3, 5736.8),
    },
    "openimage": {
        "fedtrans": (61.86, 28.56, 47.39, 10.6, 2118.9), "fluid": (32.87, 51.61, 76.88, 35.5, 4926.92),
        "heterofl": (24.53, 36.00, 799.52, 92.0, 6187.7), "splitmix": (35.44, 21.15, 950.38, 38.7, 2468.0),
    },
}  # fmt: skip
# what the paper had, beside which a job may have stood-in samples of the same kind
_WHOLE = {"cifar10": "CIFAR-10", "femnist": "LEAF's FEMNIST", "speech": "Speech Commands", "openimage": "OpenImage"}
_COMPONENTS = {"25": 0.3855, "50": 0.3876, "100": 0.3886, "200": 0.3889}


def paper_row(header: JobHeader) -> tuple[str, Mapping[str, float]]:
    """Published figures of a job's method on its data: the source, and figures by their keys.

    Keys are those of :data:`fedscale_ext.report.compare.columns.FIGURES`. The figures are empty where none were
    published, or where the job's data are generated.
    """
    method, data_set = header["method"], data_set_name(header["config"]["data_set"])
    if header["data"]["generated"]:
        return "", {}
    if method == "hypemefed" and data_set == "unimib_shar":
        components = str(header["params"].get("k"))
        figures = {"global": _COMPONENTS[components]} if components in _COMPONENTS else {}
        return f"{_HYPEMEFED}, k = {components}", figures
    row = TABLE2.get(data_set, {}).get(method)
    if row is None:
        return "", {}
    accuracy, iqr, pmacs, storage, network = row
    figures = {
        "accuracy": accuracy / 100,
        "iqr": iqr / 100,
        "macs": pmacs * 1e15,
        "served": storage,
        "round_mb": network,
    }
    return f"{_FEDTRANS}, {_WHOLE[data_set]}", figures


@dataclass(frozen=True)
class Row:
    """A row of FedScale's leaderboard; ``rounds`` and ``hours`` are None where it does not give them."""

    data: str
    method: str
    model: str
    accuracy: float
    std: float
    rounds: int | None = None
    hours: int | None = None


LEADERBOARD = (
    Row("openimage", "FedYogi", "MobileNet-V2", 0.7525, 0.0007, 1930, 258),
    Row("openimage", "FedYogi", "ShuffleNet-V2", 0.7404, 0.001, 1872, 232),
    Row("openimage", "FedProx", "MobileNet-V2", 0.7034, 0.0013, 1680, 223),
    Row("openimage", "FedAvg", "ShuffleNet-V2", 0.7027, 0.0011, 2070, 273),
    Row("openimage", "FedAvg", "MobileNet-V2", 0.7009, 0.0008, 2190, 291),
    Row("openimage", "FedProx", "ShuffleNet-V2", 0.6954, 0.0015, 1665, 221),
    Row("femnist", "FedAvg", "ResNet-18", 0.7850, 0.0009),
    Row("femnist", "FedProx", "ResNet-18", 0.7840, 0.0012),
    Row("femnist", "FedYogi", "MobileNet-V2", 0.7630, 0.0015),
    Row("speech", "FedAvg", "ResNet-34", 0.6337, 0.0014, 480, 108),
    Row("speech", "FedProx", "ResNet-34", 0.6325, 0.0011, 555, 125),
    Row("speech", "FedYogi", "ResNet-34", 0.6267, 0.0023, 600, 133),
)
