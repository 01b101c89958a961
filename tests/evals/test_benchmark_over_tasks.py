"""The benchmark's rows over all tasks that can judge methods: ranks, the baseline, the best of each family."""

import numpy as np
import pytest

from evals.benchmark import pages, table
from evals.benchmark.over_tasks import BASELINE, above_their_family, best_of_families, rows_over_tasks
from evals.benchmark.picture import picture_over_tasks
from evals.benchmark.tasks import JUDGING, TASKS
from evals.paper.measurement import Measurement


def jobs(row: str, task: str, accuracies: list[float], *, beyond: int = 0, megabytes: float = 1.0) -> list[Measurement]:
    figures = {"worst tenth %": 2.0, "up MB": megabytes, "down MB": megabytes, "beyond capacity": beyond}
    return [
        Measurement(task, "benchmark", seed, {"row": row, "learning_rate": 0.1}, {**figures, "own %": accuracy})
        for seed, accuracy in enumerate(accuracies, 1)
    ]


def runs() -> list[Measurement]:
    """HeteroFL and FjORD have both tasks; Hermes is the best of UCI HAR and has no other."""
    return [
        *jobs(BASELINE, "har", [50.0, 60.0, 70.0]),
        *jobs(BASELINE, "mnist", [40.0, 40.0, 40.0]),
        *jobs("HeteroFL", "har", [51.0, 62.0, 73.0]),
        *jobs("HeteroFL", "mnist", [30.0, 50.0, 30.0], megabytes=3.0),
        *jobs("FjORD", "har", [52.0, 61.0, 74.0]),
        *jobs("FjORD", "mnist", [41.0, 51.0, 42.0]),
        *jobs("Hermes", "har", [90.0, 90.0, 90.0]),
        *jobs("FD", "mnist", [10.0, 10.0]),
    ]


def test_ranks_are_among_the_methods_that_have_all_tasks() -> None:
    rows = rows_over_tasks(runs())
    assert [row.label for row in rows] == ["FjORD", "HeteroFL", "Hermes", BASELINE]  # FD has two seeds
    assert [row.rank for row in rows[:2]] == pytest.approx([7 / 6, 11 / 6])
    assert np.isnan(rows[2].rank)
    assert rows[3].rank == pytest.approx(8 / 3)  # the baseline's, were it a third method: 3, 3, 3 and 2, 3, 2


def test_rows_are_compared_with_the_baseline_of_the_same_seed() -> None:
    fjord, heterofl, *_ = rows_over_tasks(runs())
    assert fjord.above_baseline("har").tolist() == [2.0, 1.0, 4.0]
    assert heterofl.above_baseline("mnist").tolist() == [-10.0, 10.0, -10.0]
    assert heterofl.traffic == pytest.approx(2.0)  # as much on one task, three times as much on the other
    assert set(heterofl.by_task) == set(JUDGING)


def test_a_table_has_a_dash_where_a_row_lacks_a_task() -> None:
    heads, *shown = table.short_cells(rows_over_tasks(runs()))
    accuracies = ["UCI HAR %", "UCI HAR, worst tenth %", "MNIST %", "MNIST, worst tenth %"]
    assert heads == ["method", "family", "rank", *accuracies, "traffic"]
    assert shown[0] == ["FjORD", "width", "1.2", "62.3 ± 11.1", "2.0", "44.7 ± 5.5", "2.0", "1.00"]
    assert shown[2] == ["Hermes", "pruning", "–", "90.0 ± 0.0", "2.0", "–", "–", "1.00"]
    assert shown[3][:3] == [BASELINE, "floors and ceilings", "(2.7)"]


def test_differences_from_the_baseline_beyond_chance_are_bold_and_counted() -> None:
    rows = rows_over_tasks([*runs(), *jobs("FedSkel", "har", [90.0, 91.0, 92.0], beyond=15)])
    heads, *shown = table.difference_cells(rows)
    assert heads == ["method", "UCI HAR", "MNIST"]
    # t(0.975, 2) = 4.3027; of 2, 1, 4: 4.3027 * sqrt(7 / 3) / sqrt(3)
    assert shown[0] == ["FjORD", "2.3 ± 3.8", "4.7 ± 13.7"]
    assert ["HeteroFL", "2.0 ± 2.5", "-3.3 ± 28.7"] in shown
    assert ["Hermes", "**30.0 ± 24.8**", "–"] in shown
    assert BASELINE not in [row[0] for row in shown]
    sentences = table.chance_sentences(rows)  # FjORD and HeteroFL twice, Hermes; not FedSkel, beyond capacity
    assert sentences.startswith("Of the 5 differences of methods within devices' capacity, 1 above zero and 0 below ")
    assert "about 0.1 of each" in sentences


def test_a_row_beyond_what_devices_afford_stands_for_no_family_that_has_another_one() -> None:
    measured = [
        *jobs("FedSkel", "har", [90.0] * 3, beyond=15),
        *jobs("FML", "har", [70.0] * 3, beyond=3),
        *jobs("Hermes", "har", [60.0] * 3),
        *jobs("pooled, linear", "har", [50.0] * 3),
    ]
    rows = rows_over_tasks(measured)
    assert [row.label for row in best_of_families(rows)] == ["FML", "Hermes"]
    assert [row.title for row in above_their_family(rows)] == [
        f"FedSkel ({100 * 15 / TASKS['har'].clients:.0f} % beyond)"
    ]
    assert table.better_but_beyond(rows).endswith("(% beyond): FedSkel (50 % beyond).")
    assert table.better_but_beyond(rows[1:]) == ""
    assert np.isnan(rows[0].traffic)  # without the baseline there is nothing to compare with


def test_a_method_without_a_rank_is_compared_on_the_tasks_that_both_have() -> None:
    """A method whose jobs on one task are missing is neither worse nor better for that."""
    measured = [
        *runs(),
        *jobs("FedMD", "har", [40.0] * 3),
        *jobs("FedMD", "mnist", [20.0] * 3),
        *jobs("FedDF", "har", [45.0] * 3),
        *jobs("SPIDER", "har", [30.0] * 3, beyond=30),
        *jobs("SPIDER", "mnist", [90.0] * 3, beyond=100),
        *jobs("FedorAS", "har", [35.0] * 3),
    ]
    rows = rows_over_tasks(measured)
    best = {row.family: row.label for row in best_of_families(rows)}
    assert best["distillation"] == "FedDF" and best["search"] == "FedorAS"
    assert above_their_family(rows) == []


def test_a_picture_has_a_line_for_each_row_but_the_baseline() -> None:
    drawn = picture_over_tasks(rows_over_tasks([*runs(), *jobs("pooled, linear", "har", [50.0] * 3)]))
    assert all(f">{label}<" in drawn for label in ("FjORD", "HeteroFL", "Hermes", "UCI HAR", "MNIST"))
    assert f">{BASELINE}<" not in drawn and "pooled" not in drawn


def test_the_leaderboards_rows_are_the_best_of_families() -> None:
    (heads, *shown), _ = pages.best_methods(rows_over_tasks(runs()))
    assert heads[0] == "method" and [cells[0] for cells in shown] == ["FjORD", "Hermes", BASELINE]
