"""Jobs count the test samples of their last test by true and predicted class; answers that cannot be are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedscale.cloud import commons

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.confusion import of_samples
from fedscale_ext.core.types import EvaluationPlan, Task
from fedscale_ext.data.store import open_data_set
from fedscale_ext.metrics.by_class import by_class
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.tasks import evaluation_figures as measures
from fedscale_ext.tasks.answers.confusion import CLASSES, SECTION, confusion_section
from fedscale_ext.tasks.evaluate import Gathered
from fedscale_ext.tasks.evaluation_figures import figures_section
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError


@pytest.mark.parametrize("mask", [False, True])
def test_counts_are_those_of_each_sample(tiny_femnist: Path, mask: bool) -> None:
    data = open_data_set(tiny_femnist, "femnist")
    spec = models.named_spec("cnn_small", (1, 28, 28), data.num_classes)
    net = models.build(spec)
    net.load_state_dict(models.initial_state(spec, 1))
    clients, device = [1, 4, 6], torch.device("cpu")
    tested = measures.test_clients([net], data, clients, 16, device, mask, data.num_classes)
    assert np.array_equal(tested.figures, measures.test_clients([net], data, clients, 16, device, mask).figures)
    assert tested.confusion is not None
    assert tested.confusion.correct.tolist() == tested.figures[:, 3 * mask].tolist()
    for row, client in enumerate(clients):
        x, y = data.tensors(data.test_rows(client))
        with torch.no_grad():
            logits = net.eval()(x)
        if mask:
            there = torch.zeros(data.num_classes, dtype=torch.bool)
            there[data.labels(data.train_rows(client))] = True
            logits[:, ~there] = 0.0
        expected = torch.zeros(data.num_classes, data.num_classes, dtype=torch.int64)
        for true, predicted in zip(y.tolist(), logits.argmax(1).tolist(), strict=True):
            expected[true, predicted] += 1
        mine = tested.confusion.of([row])
        cells = expected.flatten().nonzero().flatten()
        assert mine.cells.tolist() == cells.tolist() and mine.counts.tolist() == expected.flatten()[cells].tolist()


def test_each_client_counts_by_its_served_model() -> None:
    sizes = np.array([2, 0, 3])
    task = Task((1, 8, 8), 4, sizes, sizes, 1, 1)
    gathered = Gathered(EvaluationPlan(["a", "a", "b"], {"global": "a"}), task, by_class=True)
    of_a = of_samples(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 2, 3]), np.array([0, 0, 0, 0, 0]), 2, 4)
    of_b = of_samples(np.zeros(3, dtype=np.int64), np.array([2, 2, 3]), np.array([2, 1, 3]), 1, 4)
    gathered.add("b", [3], np.array([[2.0, 3.0, 1.0]]), of_b)
    gathered.add("a", [1, 3], np.array([[1.0, 2.0, 1.0], [0.0, 1.0, 1.0]]), of_a)
    confusion = gathered.evaluation(1).confusion
    assert confusion is not None
    assert np.diff(confusion.offsets).tolist() == [2, 0, 3]
    assert confusion.cells.tolist() == [0, 4, 9, 10, 15]
    assert confusion.correct.tolist() == [1, 0, 2]


@pytest.mark.parametrize("more", [{"method": "local"}, {"mask_test": True}, {"method": "splitmix"}])
def test_a_job_has_them_in_its_last_test_alone(job_file: Path, more: dict[str, Any]) -> None:
    fedscale_ext.run(job_file, model="cnn_small", rounds=2, eval_interval=1, **more)
    folder = job_file.parent / "logs"
    (path,) = folder.rglob("metrics.jsonl")
    first, last = read_records(path)
    assert first.evaluation is not None and first.evaluation.confusion is None
    assert last.evaluation is not None
    confusion = last.evaluation.confusion
    assert confusion is not None
    assert confusion.samples.tolist() == last.evaluation.count.tolist()
    assert confusion.correct.tolist() == last.evaluation.correct.tolist()
    summary = dict(fedscale_ext.load(path.parent))["by_class"]
    assert summary["round"] == 2
    assert summary["classes"]["samples"] == by_class(confusion).samples.tolist()
    assert 0 <= summary["balanced_accuracy"]["mean"] <= 1


def test_a_job_that_stops_early_has_them(job_file: Path) -> None:
    done = fedscale_ext.run(job_file, model="cnn_small", rounds=9, eval_interval=1, stop_gain=2.0, stop_patience=1)
    assert done["rounds"] < 9 and done["by_class"]["round"] == done["rounds"]


def test_matrices_that_cannot_be_are_refused() -> None:
    unit = Unit(1, commons.MODEL_TEST, {"clients": [1, 2], CLASSES: 3}, ("m",))
    figures = figures_section(np.array([[1.0, 2.0, 8.0], [0.0, 1.0, 1.0]]))
    owner, true = np.array([0, 0, 1]), np.array([0, 1, 2])
    good = of_samples(owner, true, np.array([0, 2, 1]), 2, 3)
    counts = np.array([2, 1])

    def check(*sections: Any) -> None:
        names = ("figures", SECTION)
        check_answer(kinds_by_event(), unit, {}, dict(zip(names, sections, strict=False)), counts)

    check(figures, confusion_section(good))
    bad = {
        "asked for": of_samples(owner, true, np.array([0, 2, 1]), 3, 3),
        "impossible": of_samples(owner, true, np.array([0, 2, 1]), 2, 4),
        "add up": of_samples(owner, true, np.array([0, 1, 1]), 2, 3),
    }
    for why, confusion in bad.items():
        with pytest.raises(WireError, match=why):
            check(figures, confusion_section(confusion))
    with pytest.raises(WireError, match="figures and confusion"):
        check(figures)
    with pytest.raises(WireError):
        check(figures, b"nothing")
