"""Tests with the logits of classes that a client lacks set to zero (`mask_test`)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fedscale.cloud import commons
from job_results import result
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.types import EvaluationPlan, Task
from fedscale_ext.data.store import open_data_set
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.tasks import evaluation_figures as measures
from fedscale_ext.tasks.evaluate import Gathered
from fedscale_ext.tasks.evaluation_figures import COLUMNS, MASKED_COLUMNS, figures_section, ranked
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError


def test_masked_figures_stand_beside_the_plain_ones(tiny_femnist: Path) -> None:
    data = open_data_set(tiny_femnist, "femnist")
    spec = models.named_spec("cnn_small", (1, 28, 28), data.num_classes)
    net = models.build(spec)
    net.load_state_dict(models.initial_state(spec, 1))
    clients, device = [1, 4, 6], torch.device("cpu")
    plain = measures.test_clients([net], data, clients, 16, device).figures
    both = measures.test_clients([net], data, clients, 16, device, mask=True).figures
    assert plain.shape == (3, 3) and both.shape == (3, 6)
    assert np.array_equal(both[:, :3], plain)
    differ = 0
    for client, figures in zip(clients, both, strict=True):
        x, y = data.tensors(data.test_rows(client))
        present = {int(label) for label in data.labels(data.train_rows(client))}
        with torch.no_grad():
            logits = net.eval()(x)
        for label in range(data.num_classes):
            if label not in present:
                logits[:, label] = 0.0  # zero, not minus infinity: the class may still be predicted
        order = np.lexsort((np.tile(np.arange(data.num_classes), (len(y), 1)), -logits.numpy()))  # ties: the lowest
        top5 = (torch.from_numpy(order[:, :5]) == y[:, None]).any(1).sum()
        expected = [(logits.argmax(1) == y).sum(), top5, functional.cross_entropy(logits, y, reduction="sum")]
        assert figures[3:] == pytest.approx([float(value) for value in expected], rel=1e-5)
        differ += int(figures[5] != figures[2])
    assert differ == len(clients)


def test_of_equal_logits_the_lowest_class_counts() -> None:
    logits = torch.tensor([[0.0, -0.08, 0, 0, 0, 0, -0.77, 0], [0, 1, 0, 1, 0, 0, 0, 2]])
    assert ranked(logits).tolist() == [[0, 2, 3, 4, 5], [7, 1, 3, 0, 2]]
    assert ranked(logits)[:, 0].tolist() == logits.argmax(1).tolist()
    for classes in (2, 5, 6, 62):
        draws = torch.Generator().manual_seed(classes)
        some = torch.randint(-2, 3, (300, classes), generator=draws).float()  # nearly all rows have ties
        few = some + torch.rand(300, classes, generator=draws)  # none has
        for logits in (some, few, torch.zeros(300, classes), torch.cat([few, some])):
            plain = logits.sort(dim=1, descending=True, stable=True).indices[:, :5]
            assert torch.equal(ranked(logits), plain)


def test_clients_count_masked_and_global_models_plainly() -> None:
    sizes = np.array([4, 0, 5])
    gathered = Gathered(EvaluationPlan(["a", "a", "b"], {"global": "a"}), Task((1, 8, 8), 4, sizes, sizes, 1, 1), True)
    gathered.add("a", [1, 3], np.array([[1.0, 2.0, 8.0, 3.0, 4.0, 6.0], [2.0, 3.0, 9.0, 5.0, 5.0, 1.0]]))
    gathered.add("b", [3], np.array([[1.0, 1.0, 7.0, 4.0, 5.0, 2.0]]))
    evaluation = gathered.evaluation(2)
    assert (
        evaluation.correct.tolist() == [3, 0, 4]
        and evaluation.top5.tolist() == [4, 0, 5]
        and evaluation.loss.tolist() == [6, 0, 2]
    )
    assert evaluation.unmasked is not None and evaluation.unmasked.tolist() == [1, 0, 1]
    assert evaluation.named["global"] == pytest.approx((3 / 9, 17 / 9))
    assert evaluation.named_correct["global"].tolist() == [1, 0, 2]


def test_a_job_reports_both_and_trains_alike(job_file: Path) -> None:
    results, files = {}, {}
    for mask in (False, True):
        name = f"mask{mask}"
        fedscale_ext.run(
            job_file, model="cnn_small", rounds=1, mask_test=mask, personalise_epochs=1, test_on_all=True, job_name=name
        )
        files[mask] = job_file.parent / "logs" / name / "logs"
        results[mask] = result(files[mask])
    for name, (_, state) in results[False]["models"].items():
        assert all(torch.equal(value, results[True]["models"][name][1][key]) for key, value in state.items())
    (plain,), (masked,) = (read_records(files[mask] / "metrics.jsonl") for mask in (False, True))
    assert plain.evaluation.unmasked is None and plain.personalised.unmasked is None
    assert masked.evaluation.unmasked.tolist() == plain.evaluation.correct.tolist()
    assert masked.personalised.unmasked.tolist() == plain.personalised.correct.tolist()
    assert masked.evaluation.loss.tolist() != plain.evaluation.loss.tolist()
    assert masked.personalised.loss.tolist() != plain.personalised.loss.tolist()
    assert masked.evaluation.named == plain.evaluation.named
    assert masked.on_all.unmasked is None and masked.on_all.correct.tolist() == plain.on_all.correct.tolist()
    summaries = {mask: dict(fedscale_ext.load(files[mask])) for mask in (False, True)}
    assert "unmasked" not in summaries[False]["accuracy"]
    unmasked = summaries[True]["accuracy"]["unmasked"]
    assert unmasked["mean"] == summaries[False]["accuracy"]["mean"]
    assert unmasked["per_client"] == summaries[False]["accuracy"]["per_client"]
    assert summaries[True]["personalised"]["unmasked"]["mean"] == summaries[False]["personalised"]["mean"]
    (line,) = results[True]["rounds"]
    assert line["evaluation"]["unmasked"] == unmasked["mean"]


def test_masked_figures_that_no_count_can_have_are_refused() -> None:
    unit = Unit(1, commons.MODEL_TEST, {"clients": [1], "mask_test": True}, ("m",))
    good = np.array([[1.0, 2.0, 8.0, 3.0, 4.0, 6.0]])
    check_answer(kinds_by_event(), unit, {}, {"figures": figures_section(good)}, np.array([4]))
    assert good.shape[1] == len(COLUMNS) + len(MASKED_COLUMNS)
    for wrong in (good[:, :3], np.array([[1.0, 2.0, 8.0, 3.0, 5.0, 6.0]])):
        with pytest.raises(WireError):
            check_answer(kinds_by_event(), unit, {}, {"figures": figures_section(wrong)}, np.array([4]))
