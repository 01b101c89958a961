"""AUC of clients and of classes: the area under the ROC curve of a class against all others.

- A client's AUC is the mean over the classes among its test samples. A client with samples of only one class has none.
- The *pooled* one takes the test samples of all clients together, each with the score of its client's served model. It
  is the mean over the classes that are there. ``pooled_error`` is the most that it is off, since bins count scores.
"""

from typing import Any

import numpy as np

from fedscale_ext.core.auc import Auc
from fedscale_ext.core.confusion import Confusion
from fedscale_ext.core.missing_values import mean_of_known


def client_auc(confusion: Confusion, auc: Auc) -> np.ndarray:
    """Return the AUC of each client, float64 [clients]; NaN for one with test samples of fewer than two classes."""
    client, _ = confusion.tested_classes
    sums, classes = (np.bincount(client, of, confusion.num_clients) for of in (np.nan_to_num(auc.areas), None))
    return np.where(classes > 1, sums / np.maximum(classes, 1), np.nan)


def class_auc(confusion: Confusion, auc: Auc, client: int | None = None) -> np.ndarray:
    """Return the AUC of each class, float64 [classes], over all clients or of one (from 1 on); NaN where none."""
    if client is None:
        return auc.pooled
    owner, true = confusion.tested_classes
    areas = np.full(confusion.classes, np.nan)
    areas[true[owner == client - 1]] = auc.areas[owner == client - 1]
    return areas


def auc_summary(confusion: Confusion, auc: Auc) -> dict[str, Any]:
    """Return the figures for summary.json; what nobody has is NaN."""
    values = client_auc(confusion, auc)
    return {
        "mean": mean_of_known(values),
        "clients": int(np.isfinite(values).sum()),
        "pooled": mean_of_known(auc.pooled),
        "pooled_error": mean_of_known(auc.error),
        "per_client": values,
    }
