"""Training that diverges: each client's reason, one sentence per job, and the job that no client survives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic_job import evaluation as synthetic_evaluation
from synthetic_job import record

import fedscale_ext
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.failures import diverged, is_divergence
from fedscale_ext.core.types import Evaluation
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.server.round.divergence import DivergenceNotices, end_notice, failure_sentence
from fedscale_ext.tasks.answers.update_checks import Rejected, check_training_report, fault_in_state
from fedscale_ext.tasks.reduction import UnitSum
from fedscale_ext.training.local_training import MultiModelClient


def evaluation(*losses: float) -> Evaluation:
    count = np.ones(len(losses), dtype=np.int64)
    return Evaluation(4, ["m"] * len(losses), count, count, np.array(losses), count, {})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e39])
@pytest.mark.parametrize("name", ["loss", "utility", "norm"])
def test_a_figure_that_is_not_finite_says_that_the_client_diverged(name: str, value: float) -> None:
    figures = {"samples": 5, "steps": 2, "trained": 10, "loss": 1.0, "utility": 1.0, "norm": 1.0, name: value}
    with pytest.raises(Rejected) as rejected:
        check_training_report(figures, 5, 2, 10, True)
    assert rejected.value.reason == f"diverged: its {name} is not finite" and is_divergence(rejected.value.reason)


def test_a_negative_utility_is_no_divergence() -> None:
    with pytest.raises(Rejected) as rejected:
        check_training_report({"samples": 5, "steps": 2, "trained": 10, "loss": 1.0, "utility": -1.0}, 5, 2, 10)
    assert not is_divergence(rejected.value.reason)


def test_weights_that_are_not_finite_are_a_divergence() -> None:
    bad, start = {"w": torch.tensor([1.0, torch.nan])}, {"w": torch.zeros(2)}
    fault = fault_in_state(bad, start)
    assert fault is not None and is_divergence(fault[0])
    (reason,) = UnitSum(start).add({"w": bad["w"][None]}, [1.0])
    assert reason == "diverged: tensor 'w' is not finite" and is_divergence(reason)


def test_each_sentence_is_told_once() -> None:
    sentences: list[str] = []
    notices = DivergenceNotices(make_config({}, {"learning_rate": 3.0, "clip_norm": 0.5}), sentences.append)
    notices.training(1, 0, 4)
    notices.test(evaluation(0.5, 2.0))
    assert sentences == []
    for round in (2, 3):
        notices.training(round, 1, 4)
        notices.test(evaluation(float("inf"), 2.0, float("nan")))
    advice = "lower learning_rate (3), or clip_norm (0.5)"
    assert sentences == [
        f"round 2: training diverged: the loss or weights of 1 of 4 clients are not finite; {advice}",
        f"round 4: training diverged: the test loss of 2 of 3 clients is not finite; {advice}",
    ]


FLOOR = {"majority": {"mean": 0.4}, "most_frequent": {"mean": 0.3}}


@pytest.mark.parametrize(
    ("losses", "accuracies", "sentence"),
    [
        ([2.0, 2e4], [0.5], "training diverged: its loss grew from 2 to 2e+04; lower learning_rate (0.05), or"),
        ([2.0, 20.0, float("nan")], [0.5], None),
        ([0.0, 0.5], [0.5], None),
        ([2.0, 1.0], [0.9, 0.2], "accuracy after round 2, 20.0%, is below what clients reach without a model, 30.0%: "
                                 "training has diverged or was too short"),
        ([2.0, 1.0], [0.1, 0.35], None),  # below one of the floors alone
        ([2.0, 1.0], [], None),
    ],
)  # fmt: skip
def test_a_divergence_that_stays_finite_is_told_at_the_end(
    losses: list[float], accuracies: list[float], sentence: str | None
) -> None:
    records = [replace(record(number), train_loss=loss) for number, loss in enumerate(losses, 1)]
    for number, value in enumerate(accuracies):
        records[number].evaluation = synthetic_evaluation(number + 1, [value, value])
    notice = end_notice(records, FLOOR, make_config({}, {}))
    assert notice is None if sentence is None else notice is not None and notice.startswith(sentence)
    assert end_notice(records[:1], None, make_config({}, {})) is None


def test_an_accuracy_that_is_below_its_floor_by_rounding_alone_is_not_told() -> None:
    one = record(1)
    one.evaluation = synthetic_evaluation(1, [0.25, 0.25])
    mean = accuracy(one.evaluation).mean
    above = {name: {"mean": float(np.nextafter(mean, 1))} for name in FLOOR}
    assert mean < above["majority"]["mean"]
    assert end_notice([one], above, make_config({}, {})) is None
    higher = {name: {"mean": mean + 1e-6} for name in FLOOR}
    assert end_notice([one], higher, make_config({}, {})) is not None


@pytest.mark.parametrize(
    ("unmasked", "sentence"), [(0.35, None), (0.25, "accuracy after round 1 without mask_test, 25.")]
)
def test_a_mask_of_tests_is_no_divergence(unmasked: float, sentence: str | None) -> None:
    one = record(1)
    masked = synthetic_evaluation(1, [0.1, 0.1])
    one.evaluation = replace(masked, unmasked=unmasked * masked.count)
    notice = end_notice([one], FLOOR, make_config({}, {}))
    assert notice is None if sentence is None else notice is not None and notice.startswith(sentence)


def test_the_notice_at_the_end_is_in_the_summary(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.server.aggregator.end_notice", lambda *_: "it has diverged")
    assert "it has diverged" in fedscale_ext.run(job_file, model="cnn_small", rounds=1)["notices"]


@pytest.mark.parametrize("cohort_size", [1, 7])
def test_a_job_that_no_client_survives_says_that_training_diverged(job_file: Path, cohort_size: int) -> None:
    sentence = (
        r"^round \d: every client failed, training diverged: the loss or weights of 7 of 7 clients are not finite; "
        r"lower learning_rate \(1e\+20\), or set clip_norm$"
    )
    with pytest.raises(UserError, match=sentence):
        fedscale_ext.run(
            job_file, model="cnn_small", num_participants=7, learning_rate=1e20, cohort_size=cohort_size, rounds=3
        )


def test_reasons_are_counted_by_client_and_the_job_tells_once(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calls = MultiModelClient.train, []

    def train(self: Any, client_data: Any, model: Any, conf: Any) -> dict[str, Any]:
        if conf.client_id == 2:
            raise FloatingPointError("the loss is not finite from step 1")
        return plain(self, client_data, model, conf)

    monkeypatch.setattr(MultiModelClient, "train", train)
    monkeypatch.setattr(DivergenceNotices, "training", spy(calls))
    summary = fedscale_ext.run(job_file, model="cnn_small", num_participants=7, rounds=2)
    assert summary["clients"]["failed"] == {"diverged: the loss is not finite from step 1": 2}
    assert calls == [(1, 1, 7), (2, 1, 7)]


def spy(calls: list[Any]) -> Any:
    return lambda self, *arguments: calls.append(arguments)


def test_the_advice_names_the_keys_as_they_are() -> None:
    assert failure_sentence(2, 3, make_config({}, {"learning_rate": 1e9})).endswith(
        "2 of 3 clients are not finite; lower learning_rate (1e+09), or set clip_norm"
    )
    assert not is_divergence(f"ValueError: {diverged('x')}")
