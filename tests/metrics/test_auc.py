"""AUC of clients and classes in summaries and on disk."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.auc import Auc
from fedscale_ext.core.confusion import of_samples
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.auc import auc_summary, class_auc, client_auc
from fedscale_ext.metrics.by_class import class_summary
from fedscale_ext.metrics.job_folder.evaluations import write_evaluation
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

NAN = math.nan
# client 1 has classes 0 and 1, client 2 no sample, client 3 class 2 alone; of four classes the last is never there
CONFUSION = of_samples(np.array([0, 0, 0, 2]), np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), 3, 4)
AUC = Auc(np.array([0.5, 1.0, NAN]), np.array([0.5, 0.75, 1.0, NAN]), np.array([0.0, 0.25, 0.125, NAN]))


def evaluation() -> Evaluation:
    columns = dict.fromkeys(("correct", "top5"), CONFUSION.correct.astype(float))
    return Evaluation(
        7, ("m",) * 3, **columns, loss=np.zeros(3), count=CONFUSION.samples, named={}, confusion=CONFUSION, auc=AUC
    )


def test_a_client_has_the_mean_over_its_classes() -> None:
    assert client_auc(CONFUSION, AUC).tolist() == pytest.approx([0.75, NAN, NAN], nan_ok=True)
    assert class_auc(CONFUSION, AUC, 1).tolist() == pytest.approx([0.5, 1.0, NAN, NAN], nan_ok=True)
    assert class_auc(CONFUSION, AUC, 2).tolist() == pytest.approx([NAN] * 4, nan_ok=True)


def test_a_summary_says_how_many_clients_it_is_of_and_how_far_off() -> None:
    figures = auc_summary(CONFUSION, AUC)
    assert (figures["mean"], figures["clients"], figures["pooled"]) == (0.75, 1, 0.75)
    assert figures["pooled_error"] == pytest.approx(0.125)
    one_class = of_samples(np.array([0, 1]), np.array([2, 2]), np.array([2, 2]), 2, 4)
    nobody = auc_summary(one_class, Auc(np.full(2, NAN), np.full(4, NAN), np.full(4, NAN)))
    assert nobody["clients"] == 0 and math.isnan(nobody["mean"]) and math.isnan(nobody["pooled"])
    classes = class_summary(evaluation(), {"data_set": "femnist"})["classes"]
    assert classes["auc"].tolist() == pytest.approx(AUC.pooled.tolist(), nan_ok=True)


def test_an_evaluation_on_disk_has_it(tmp_path: Path) -> None:
    _, stored = write_evaluation(tmp_path, evaluation())
    assert stored.auc is not None
    for name, expected in vars(AUC).items():
        assert np.array_equal(getattr(stored.auc, name), expected, equal_nan=True)
    tensors, metadata = read_tensors(stored.path)
    write_tensors(stored.path, {**tensors, "auc/areas": tensors["auc/areas"][1:]}, metadata)
    with pytest.raises(UserError, match="is not an evaluation of this version"):
        _ = stored.auc
