"""Jobs with the key auc rank the test samples of their last test; others send and keep nothing of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedscale.cloud import commons

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.auc import auc_sums, log_odds
from fedscale_ext.core.confusion import of_samples
from fedscale_ext.core.types import EvaluationPlan, Task
from fedscale_ext.data.store import open_data_set
from fedscale_ext.metrics.auc import client_auc
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.tasks import evaluation_figures as measures
from fedscale_ext.tasks.answers.auc import AUC, auc_section
from fedscale_ext.tasks.answers.confusion import CLASSES, SECTION, confusion_section
from fedscale_ext.tasks.evaluate import Gathered
from fedscale_ext.tasks.evaluation_figures import figures_section
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError


@pytest.mark.parametrize("mask", [False, True])
def test_scores_are_those_of_the_clients_that_count(tiny_femnist: Path, mask: bool) -> None:
    data = open_data_set(tiny_femnist, "femnist")
    spec = models.named_spec("cnn_small", (1, 28, 28), data.num_classes)
    net = models.build(spec)
    net.load_state_dict(models.initial_state(spec, 1))
    how = 16, torch.device("cpu"), mask, data.num_classes
    tested = measures.test_clients([net], data, [1, 4, 5], *how, scored=[5, 1, 9])
    without = measures.test_clients([net], data, [1, 4, 5], *how)
    assert without.auc is None and np.array_equal(tested.figures, without.figures)
    parts, labels, owner = [], [], []
    for row, client in enumerate([1, 5]):
        x, y = data.tensors(data.test_rows(client))
        with torch.no_grad():
            logits = net.eval()(x)
        if mask:
            there = torch.zeros(data.num_classes, dtype=torch.bool)
            there[data.labels(data.train_rows(client))] = True
            logits[:, ~there] = 0.0
        parts.append(log_odds(logits))
        labels.append(y.numpy())
        owner.append(np.full(len(y), row))
    expected = auc_sums(np.concatenate(owner), np.concatenate(labels), np.concatenate(parts), 2)
    assert tested.auc is not None
    assert tested.auc.areas == pytest.approx(expected.areas, nan_ok=True)
    assert tested.auc.counts.sum() == expected.counts.sum()


def test_each_client_is_ranked_by_its_served_model() -> None:
    sizes = np.array([2, 0, 3])
    task = Task((1, 8, 8), 2, sizes, sizes, 1, 1)
    gathered = Gathered(EvaluationPlan(["a", "a", "b"], {"global": "a"}), task, by_class=True, auc=True)
    zeros = np.zeros(3, dtype=np.int64)
    labels = np.array([0, 1, 1])
    of_b = of_samples(zeros, labels, labels, 1, 2)
    sums_b = auc_sums(zeros, labels, np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 2.0]]), 1)
    of_a = of_samples(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1]), np.array([0, 1, 0, 1, 1]), 2, 2)
    sums_a = auc_sums(zeros[:2], labels[:2], np.array([[1.0, 0.0], [0.0, 1.0]]), 1)
    gathered.add("b", [3], np.array([[3.0, 3.0, 1.0]]), of_b, sums_b)
    gathered.add("a", [1, 3], np.array([[2.0, 2.0, 1.0], [3.0, 3.0, 1.0]]), of_a, sums_a)
    evaluation = gathered.evaluation(1)
    assert evaluation.auc is not None and evaluation.confusion is not None
    assert evaluation.auc.areas.tolist() == [1.0, 1.0, 0.5, 0.5]
    values = client_auc(evaluation.confusion, evaluation.auc)
    assert values.tolist() == pytest.approx([1.0, np.nan, 0.5], nan_ok=True)
    # class 1, all together: of 3 x 2 pairs (1, 0, 2 against 0, 1) three are won and two are equal
    assert evaluation.auc.pooled[1] == pytest.approx(4 / 6) and evaluation.auc.error[1] == pytest.approx(1 / 6)


@pytest.mark.parametrize("more", [{"method": "local"}, {"mask_test": True}, {"method": "splitmix"}])
def test_a_job_has_it_in_its_last_test_alone(job_file: Path, more: dict[str, Any]) -> None:
    done = fedscale_ext.run(job_file, model="cnn_small", rounds=2, eval_interval=1, auc=True, **more)
    first, last = read_records(done.path / "metrics.jsonl")
    assert first.evaluation is not None and first.evaluation.auc is None
    assert last.evaluation is not None and last.evaluation.auc is not None and last.evaluation.confusion is not None
    values = client_auc(last.evaluation.confusion, last.evaluation.auc)
    figures = done["by_class"]["auc"]
    assert figures["per_client"] == pytest.approx([None if np.isnan(each) else each for each in values])
    assert figures["clients"] == np.isfinite(values).sum() > 0
    assert 0 < figures["mean"] < 1 and 0 <= figures["pooled_error"] < 0.1
    samples, areas = (done["by_class"]["classes"][name] for name in ("samples", "auc"))
    assert [area is not None for area in areas] == [count > 0 for count in samples]


def test_a_job_without_the_key_is_the_same_without_it(job_file: Path) -> None:
    ranked = fedscale_ext.run(job_file, model="cnn_small", rounds=1, auc=True, job_name="ranked")
    plain = fedscale_ext.run(job_file, model="cnn_small", rounds=1, job_name="plain")
    figures = dict(ranked["by_class"])
    assert "auc" in figures and "auc" not in plain["by_class"]
    del figures["auc"]
    figures["classes"] = {name: each for name, each in figures["classes"].items() if name != "auc"}
    assert figures == plain["by_class"] and ranked["accuracy"] == plain["accuracy"]
    assert "auc" in ranked.clients and "auc" not in plain.clients
    assert "auc" in ranked.classes() and "auc" not in plain.classes()


def test_sums_that_cannot_be_are_refused() -> None:
    unit = Unit(1, commons.MODEL_TEST, {"clients": [1, 2, 3], CLASSES: 3, AUC: [1, 3]}, ("m",))
    figures = figures_section(np.array([[2.0, 2.0, 8.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
    true = np.array([0, 1, 2, 2])
    matrices = confusion_section(of_samples(np.array([0, 0, 1, 2]), true, np.array([0, 1, 0, 2]), 3, 3))
    scores = np.arange(12.0).reshape(4, 3)

    def check(*rows: int, owner: tuple[int, ...] = (0, 0, 1)) -> None:
        sums = auc_sums(np.array(owner), true[list(rows)], scores[list(rows)], 2)
        sections = {"figures": figures, SECTION: matrices, AUC: auc_section(sums)}
        check_answer(kinds_by_event(), unit, {}, sections, np.array([2, 1, 1]))

    check(0, 1, 3)
    with pytest.raises(WireError, match="3 classes"):
        check(0, 1, owner=(0, 0))
    with pytest.raises(WireError, match="with one class"):
        check(0, 1, 3, owner=(0, 1, 1))
    with pytest.raises(WireError, match="counts of AUC that do not add up"):
        check(0, 2, 3)
    with pytest.raises(WireError, match="figures and confusion and auc"):
        check_answer(kinds_by_event(), unit, {}, {"figures": figures, SECTION: matrices}, np.array([2, 1, 1]))
