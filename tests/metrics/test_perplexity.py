"""Perplexity in both ways, and where a job tells it."""

import dataclasses
import math

import numpy as np
import pytest
from synthetic_job import evaluation, header, models, records

from fedscale_ext.metrics.perplexity import perplexity
from fedscale_ext.metrics.summary import JobResult, summarise
from fedscale_ext.report.job.tables import summary_table


def test_pooled_is_over_samples_and_the_other_over_clients() -> None:
    evaluated = dataclasses.replace(
        evaluation(1, [0.0, 0.0, 0.0]),
        loss=np.array([2.0, 12.0, 5.0]), count=np.array([2, 4, 0]), named={"global": (0.5, 1.25)},
    )  # fmt: skip
    figures = perplexity(evaluated)
    assert figures.pooled == pytest.approx(math.exp(14 / 6))
    assert figures.clients == pytest.approx((math.e + math.exp(3)) / 2)
    assert figures.named == pytest.approx({"global": math.exp(1.25)})


def test_equal_clients_agree_and_unequal_ones_only_add() -> None:
    equal = evaluation(1, [0.5, 0.5])
    assert perplexity(equal).pooled == pytest.approx(perplexity(equal).clients)
    unequal = perplexity(dataclasses.replace(equal, loss=equal.loss * np.array([0.5, 1.5])))
    assert unequal.pooled == pytest.approx(perplexity(equal).pooled) and unequal.clients > unequal.pooled


def test_nobody_tested_and_a_loss_beyond_numbers() -> None:
    nobody = perplexity(dataclasses.replace(evaluation(1, [0.5]), count=np.zeros(1, dtype=np.int64)))
    assert math.isnan(nobody.pooled) and math.isnan(nobody.clients)
    assert perplexity(dataclasses.replace(evaluation(1, [0.5]), loss=np.array([1e9]))).pooled == math.inf


def test_a_job_on_text_tells_it_and_others_do_not() -> None:
    text = header() | {"config": {"data_set": "shakespeare"}}
    summary = summarise(text, models(), JobResult(records(20)))
    evaluated = records(20)[-1].evaluation
    assert evaluated is not None
    assert summary["perplexity"]["pooled"] == pytest.approx(perplexity(evaluated).pooled)
    assert "perplexity" not in summarise(header(), models(), JobResult(records(20)))
    assert f"{summary['perplexity']['pooled']:.3f}, mean over clients" in str(summary_table(summary))
    assert summarise(text, models(), JobResult([]))["perplexity"] is None
