from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_job import evaluation, record

from fedscale_ext.metrics.cost import Spent
from fedscale_ext.metrics.job_folder.evaluations import write_evaluation
from fedscale_ext.metrics.trackers.tags import round_figures, time_figures


def test_a_models_accuracy_is_that_of_the_clients_that_it_serves():
    tested = evaluation(1, [0.1, 0.6, 0.3, 0.8], untested=1)  # m0, m1, m0, m1, m0
    figures = round_figures(replace(record(1), evaluation=tested), Spent(), None)
    assert figures["Model/m0/accuracy"] == pytest.approx(0.2)
    assert figures["Model/m1/accuracy"] == pytest.approx(0.7)
    assert (figures["Model/m0/clients"], figures["Model/m1/clients"]) == (3, 2)
    assert not any(tag.startswith("Capacity") for tag in figures)


def test_groups_are_quarters_by_capacity():
    tested = evaluation(1, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    capacity = np.array([8, 7, 6, 5, 4, 3, 2, 1])
    figures = round_figures(replace(record(1), evaluation=tested), Spent(), capacity)
    of_capacity = {tag: value for tag, value in figures.items() if tag.startswith("Capacity")}
    assert of_capacity == pytest.approx(
        {"Capacity/1_weakest/accuracy": 0.75, "Capacity/2_second/accuracy": 0.55,
         "Capacity/3_third/accuracy": 0.35, "Capacity/4_strongest/accuracy": 0.15}
    )  # fmt: skip


def test_equal_devices_have_one_tag_that_says_what_they_afford():
    tested = evaluation(1, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    capacity = np.array([2e6, 1e6, 2e6, 1e6, 2e6, 1e6])
    figures = round_figures(replace(record(1), evaluation=tested), Spent(), capacity)
    of_capacity = {tag: value for tag, value in figures.items() if tag.startswith("Capacity")}
    assert of_capacity == pytest.approx({"Capacity/1_1_MMACs/accuracy": 0.4, "Capacity/2_2_MMACs/accuracy": 0.3})


def test_a_group_that_nobody_was_tested_of_has_no_figure():
    tested = evaluation(1, [0.5], untested=7)
    figures = round_figures(replace(record(1), evaluation=tested), Spent(), np.arange(8.0))
    assert [tag for tag in figures if tag.startswith("Capacity")] == ["Capacity/1_weakest/accuracy"]


def test_of_a_thousand_models_the_rest_share_a_tag():
    tested = evaluation(1, [0.5] * 100)
    serve = tuple(f"m{min(client, 60)}" for client in range(100))
    figures = round_figures(replace(record(1), evaluation=replace(tested, serve=serve)), Spent(), None)
    assert figures["Model/m60/clients"] == 40
    assert figures["Model/others/clients"] == 21
    assert sum(tag.endswith("/clients") for tag in figures) == 41


def test_an_evaluation_on_the_disk_gives_the_same_figures(tmp_path: Path):
    item = record(1, evaluated=True)
    _, stored = write_evaluation(tmp_path, item.evaluation)
    capacity = np.arange(62.0)
    again = round_figures(replace(item, evaluation=stored), Spent(), capacity)
    assert again == round_figures(item, Spent(), capacity)


def test_time_tags_repeat_their_rounds_figures():
    item = record(3, evaluated=True)
    figures = round_figures(item, Spent(), None)
    assert time_figures(item, figures) == {
        "Train/time_to_train_loss (min)": item.train_loss,
        "Test/time_to_test_loss (min)": figures["Test/round_to_loss"],
        "Test/time_to_test_accuracy (min)": figures["Test/round_to_accuracy"],
    }
    quiet = replace(item, train_loss=float("nan"), evaluation=None)
    assert time_figures(quiet, round_figures(quiet, Spent(), None)) == {}
