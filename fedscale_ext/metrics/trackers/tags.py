"""A round's figures by the tags under which TensorBoard and Weights & Biases show them."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.types import Evaluation, RoundRecord
from fedscale_ext.metrics.accuracy import accuracy, client_accuracy, without_mask
from fedscale_ext.metrics.capacity_groups import device_groups, group_means
from fedscale_ext.metrics.cost import Spent
from fedscale_ext.metrics.job_folder.evaluations import StoredEvaluation

DURATIONS = "Train/client_duration (min)"  # FedScale's, of a histogram
_MODELS = 40  # at most so many models have tags of their own: those that serve most
_REST = "others"


def round_figures(record: RoundRecord, spent: Spent, capacity: np.ndarray | None) -> dict[str, float]:
    """Tag -> value of one round. FedScale's tags (aggregator.py, ``log_train_result`` and ``log_test_result``) keep
    their names and units: accuracy in [0, 1], over samples. Beside them stand figures over clients, of each model's
    clients (those that it is served to) and of each group of devices.

    ``spent`` holds the sums up to and with this round, ``capacity`` [clients] the MACs per sample that devices afford.
    """
    figures: dict[str, float] = {}
    if not math.isnan(record.train_loss):  # NaN where nobody trained
        figures["Train/round_to_loss"] = record.train_loss
    figures["Train/round_duration (min)"] = record.round_duration_s / 60.0
    figures["Train/models"] = record.models
    figures |= {f"Train/participants/{key}": count for key, count in record.assignments.items()}
    figures["Cost/forward_macs"] = spent.forward_macs
    figures["Cost/training_macs"] = spent.training_macs
    figures["Cost/network_mb"] = spent.network_mb
    if record.privacy is not None:
        for name in ("epsilon", "clip_norm"):
            if (value := record.privacy[name]) is not None:
                figures[f"Privacy/{name}"] = value
    if record.evaluation is not None:
        figures |= _tested(record.evaluation, capacity)
    return figures


def time_figures(record: RoundRecord, figures: dict[str, float]) -> dict[str, float]:
    """FedScale's tags whose x is the virtual clock in minutes -> value, of a round with these ``figures``."""
    tags = {
        "Train/time_to_train_loss (min)": "Train/round_to_loss",
        "Test/time_to_test_loss (min)": "Test/round_to_loss",
        "Test/time_to_test_accuracy (min)": "Test/round_to_accuracy",
    }
    return {tag: figures[of] for tag, of in tags.items() if of in figures}


def _tested(evaluation: Evaluation, capacity: np.ndarray | None) -> dict[str, float]:
    reached = accuracy(evaluation)
    figures = {
        "Test/round_to_loss": reached.loss,
        "Test/round_to_accuracy": reached.sample_weighted,
        "Test/client_accuracy_mean": reached.mean,
        "Test/client_accuracy_iqr": reached.iqr,
        "Test/client_accuracy_worst": reached.worst,
    }
    figures |= {f"Test/named/{title}": top1 for title, (top1, _loss) in evaluation.named.items()}
    whole = evaluation.whole() if isinstance(evaluation, StoredEvaluation) else evaluation
    unmasked = without_mask(whole)
    if unmasked is not None:
        figures["Test/client_accuracy_mean_unmasked"] = accuracy(unmasked).mean
    of_client = client_accuracy(whole)
    groups = _by_model(whole.serve, of_client)
    if capacity is not None:
        group, names = device_groups(capacity)
        means = group_means(of_client, group, len(names)).tolist()
        groups |= {
            f"Capacity/{number}_{name.replace(' ', '_')}/accuracy": mean
            for number, (name, mean) in enumerate(zip(names, means, strict=True), 1)
        }
    return figures | {tag: value for tag, value in groups.items() if not math.isnan(value)}


def _by_model(serve: Sequence[str], of_client: np.ndarray) -> dict[str, float]:
    counts = Counter(serve)
    keys = [key for key, _ in counts.most_common(_MODELS)]
    index_of_key = {key: index for index, key in enumerate(keys)}
    if len(counts) > len(keys):
        keys.append(_REST)
    group = np.fromiter((index_of_key.get(key, len(keys) - 1) for key in serve), np.int64, len(serve))
    means, clients = group_means(of_client, group, len(keys)), np.bincount(group, minlength=len(keys))
    figures = {f"Model/{key}/accuracy": mean for key, mean in zip(keys, means.tolist(), strict=True)}
    return figures | {f"Model/{key}/clients": served for key, served in zip(keys, clients.tolist(), strict=True)}
