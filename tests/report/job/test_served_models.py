from dataclasses import replace
from pathlib import Path

import numpy as np
from synthetic_job import evaluation
from written_job import CLIENTS, write_job

from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.job.served_models import served_model_rows, untrained_note
from fedscale_ext.report.page.build import build


def test_accuracy_by_the_model_that_clients_are_served(tmp_path: Path):
    job = load_job(write_job(tmp_path / "job"))
    (_, clients, tested, mean, over, worst), second = served_model_rows(job)
    first = job.client_accuracy[0::2]  # m0 is served to every second client
    first = first[~np.isnan(first)]
    assert (clients, tested) == (str(CLIENTS // 2), "30") and mean == over == f"{100 * first.mean():.2f} %"
    assert worst == f"{100 * first.min():.2f} %" and second[0] == "m1"


def test_clients_without_test_samples_have_no_accuracy_and_one_model_has_no_table(tmp_path: Path):
    job = load_job(write_job(tmp_path / "job"))
    untested = evaluation(20, [0.5], untested=CLIENTS - 1)
    vars(job)["evaluation"] = untested  # as if it had been read
    assert served_model_rows(job) == [
        ["m0", "31", "1", "50.00 %", "50.00 %", "50.00 %"],
        ["m1", "31", "0", "–", "–", "–"],
    ]
    vars(job)["evaluation"] = replace(untested, serve=("m0",) * CLIENTS)
    assert served_model_rows(job) == []


def test_a_jobs_block_has_it(tmp_path: Path, undrawn: None):
    page = build([write_job(tmp_path / "job")], tmp_path / "out")[0].read_text(encoding="utf-8")
    assert "<th scope=col>served model</th>" in page


def test_a_model_that_was_served_before_anybody_trained_it_is_told(tmp_path: Path, undrawn: None):
    folder = write_job(tmp_path / "job")
    job = load_job(folder)  # m1: born after round 7, trained from then on, tested after 10
    assert untrained_note(job) == ""
    text = (folder / "summary.json").read_text()
    assert text.count('"birth": 7') == 1
    (folder / "summary.json").write_text(text.replace('"birth": 7', '"birth": 1'))  # tested after 1 and served to half
    note = untrained_note(load_job(folder))
    assert note == (
        "m1 was served before anybody had trained it, with what it inherited from m0, to 31 clients: in the test after "
        "round 1."
    )
    assert note in build([folder], tmp_path / "out")[0].read_text(encoding="utf-8")


def test_a_model_that_nobody_ever_trained_is_told_with_all_its_tests(tmp_path: Path):
    job = load_job(write_job(tmp_path / "job"))
    for record in job.records:
        record.assignments.pop("m1", None)
    assert untrained_note(job).endswith("to 31 clients at most: in the tests after rounds 10 and 20.")
