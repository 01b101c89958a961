"""Rounds until accuracies settle, modelled energy, and what a job reached by type of device."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_job import evaluation, record

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.convergence import settled
from fedscale_ext.metrics.device_types import device_type_figures
from fedscale_ext.metrics.energy import device_classes, joules
from fedscale_ext.metrics.job_folder import evaluations
from fedscale_ext.metrics.job_folder.evaluations import write_evaluation

Cost = tuple[int, int, float, float]  # of a participation: bytes down and up, seconds of computation and communication


def test_accuracy_has_settled_where_it_rises_by_half_a_point_at_most() -> None:
    assert settled([]) is None
    assert settled([0.5]) == 0
    assert settled([0.1, 0.2, 0.3, 0.4]) == 3  # still rising: the last one
    assert settled([0.7] * 9) == 0
    assert settled([0.1] * 3 + [0.7] * 9) == 5  # the mean of three is there two later
    assert settled([0.7, 0.7, 0.7, 0.2, 0.2, 0.2]) == 0  # what falls does not rise


def test_a_slow_rise_below_the_bound_does_not_count_and_one_above_does() -> None:
    below, above = np.linspace(0.6, 0.605, 20), np.linspace(0.6, 0.7, 20)
    assert settled(below.tolist()) == 0
    assert settled(above.tolist()) == 19  # steps of half a point and a bit


def test_an_evaluation_that_tested_nobody_is_passed_over() -> None:
    nan = float("nan")
    assert settled([0.1, nan, 0.2, 0.3, nan]) == 3
    assert settled([nan, 0.7, 0.7]) == 1
    assert settled([nan, nan]) is None


def test_energy_is_power_by_time_and_joules_by_bit() -> None:
    latency = np.array([15.0, 41.0, 190.0])
    assert device_classes(latency).tolist() == [0, 1, 2]
    nothing, ten, mega = np.zeros(3), np.full(3, 10.0), np.full(3, 1e6)
    assert joules(latency, ten, nothing, nothing, nothing) == pytest.approx([50.0, 35.0, 25.0])
    assert joules(latency, nothing, ten, nothing, nothing) == pytest.approx([1.3286] * 3)
    assert joules(latency, nothing, nothing, mega, nothing) == pytest.approx([8e6 * 137.01e-9] * 3)
    assert joules(latency, nothing, nothing, nothing, mega) == pytest.approx([8e6 * 283.17e-9] * 3)


LATENCY = np.array([15.0, 41.0, 190.0, 41.0])  # ms per sample: devices of 5, 3.5, 2.5 and 3.5 W


def round_of(number: int, accuracies: list[float], costs: Mapping[int, Cost], *, untested: int = 0) -> RoundRecord:
    """A round in which clients' participations had such costs."""
    columns = [list(column) for column in zip(*costs.values(), strict=True)] or [[], [], [], []]
    names = ("client_download_bytes", "client_upload_bytes", "client_computation_s", "client_communication_s")
    return replace(
        record(number),
        evaluation=evaluation(number, accuracies, untested=untested),
        participants=list(costs),
        **dict(zip(names, columns, strict=True)),
    )


def test_figures_by_type() -> None:
    type_of_client = np.array([0, 1, 0, 1])
    costs: dict[int, Cost] = {client: (mb * 1_000_000, mb * 1_000_000, float(client), 10.0)
                              for client, mb in ((1, 4), (2, 1), (3, 4), (4, 1))}  # fmt: skip
    records = []
    for number, (large, small) in enumerate([(0.3, 0.2), (0.9, 0.2), (0.9, 0.2), (0.9, 0.2)], 1):
        taken = costs if number == 1 else {client: costs[client] for client in (1, 2)}
        records.append(round_of(number, [large, small, large, small], taken))
    figures = device_type_figures(records, type_of_client, ["large", "small"], LATENCY)
    large, small, mean = figures["types"]
    assert [one["type"] for one in figures["types"]] == ["large", "small", "all"]
    assert large["clients"] == 2 and large["accuracy"] == pytest.approx(0.9)
    assert (large["settled_round"], small["settled_round"]) == (4, 1)
    assert large["one_way_mb"] == 16.0 and small["one_way_mb"] == 1.0  # Table 4's: size times rounds
    assert large["traffic_mb"] == 2 * 4 * 5 and small["traffic_mb"] == 2 * 1 * 2
    assert large["time_s"] == (4 * 11.0 + 1 * 13.0) / 2 and small["time_s"] == (12.0 + 14.0) / 2
    radio = 10 * 0.13286 + 8 * 1e6 * (283.17e-9 + 137.01e-9)  # J for ten seconds and a MB in each direction
    assert small["modelled_energy_j"] == pytest.approx((3.5 * 2 + 3.5 * 4) / 2 + radio)
    assert mean["accuracy"] == pytest.approx(0.55) and mean["settled_round"] == 4
    assert mean["one_way_mb"] == 4 * (4.0 + 1.0) and mean["traffic_mb"] == large["traffic_mb"] + small["traffic_mb"]
    assert "modelled" in figures["energy"]
    nothing = device_type_figures([], type_of_client, ["large", "small"], LATENCY)["types"]
    assert nothing[-1]["accuracy"] is None and nothing[0]["traffic_mb"] == nothing[0]["one_way_mb"] == 0.0
    three_small = device_type_figures(records, np.array([0, 1, 1, 1]), ["large", "small", "none"], LATENCY)["types"]
    one, others, nobody, every = three_small
    assert every["accuracy"] == pytest.approx((0.9 + 0.2 + 0.9 + 0.2) / 4)  # over devices, not over types
    assert (one["clients"], others["clients"], nobody["clients"]) == (1, 3, 0) and np.isnan(nobody["accuracy"])
    assert every["time_s"] == pytest.approx((one["time_s"] + 3 * others["time_s"]) / 4)
    assert every["modelled_energy_j"] == pytest.approx((one["modelled_energy_j"] + 3 * others["modelled_energy_j"]) / 4)


def test_a_round_that_costs_more_counts_as_what_it_cost() -> None:
    """As first rounds do, or warm-up and rounds that set a skeleton."""
    cheap, dear = (1_000_000, 2_000_000, 1.0, 1.0), (7_000_000, 5_000_000, 20.0, 3.0)
    records = [
        round_of(number, [0.2 * number] * 4, {1: dear if number == 1 else cheap, 2: cheap}) for number in (1, 2, 3)
    ]
    (one, _) = device_type_figures(records, np.zeros(4, dtype=np.int64), ["t"], LATENCY)["types"]
    assert one["settled_round"] == 3
    assert one["traffic_mb"] == 12 + 5 * 3 and one["time_s"] == (23 + 5 * 2) / 4
    assert one["one_way_mb"] == pytest.approx((5 + 5 * 2) / 6 * 3)  # the mean upload of a participation


def test_what_the_paper_counts_one_way_can_be_another_figure_than_the_upload() -> None:
    records = [round_of(number, [0.2 * number] * 4, {1: (3, 3, 1.0, 1.0)}) for number in (1, 2)]
    sizes = np.array([1e6, 1e6, 3e6, 3e6])
    first, second, every = device_type_figures(
        records, np.array([0, 0, 1, 1]), ["a", "b"], LATENCY, one_way_bytes=sizes
    )["types"]
    assert (first["one_way_mb"], second["one_way_mb"], every["one_way_mb"]) == (2.0, 6.0, 8.0)
    assert first["traffic_mb"] == pytest.approx(12e-6) and second["traffic_mb"] == 0.0


def test_a_type_that_is_never_tested_counts_until_the_job_settled() -> None:
    """It has trained and sent all the same."""
    costs: dict[int, Cost] = {1: (1_000_000, 1_000_000, 1.0, 0.0), 2: (1_000_000, 1_000_000, 5.0, 0.0)}
    records = [round_of(number, [0.3 * number], costs, untested=1) for number in (1, 2, 3)]
    tested, untested, every = device_type_figures(records, np.array([0, 1]), ["tested", "untested"], LATENCY)["types"]
    assert (tested["settled_round"], untested["settled_round"], every["settled_round"]) == (3, None, 3)
    assert (untested["traffic_mb"], untested["time_s"]) == (6.0, 15.0)
    assert untested["modelled_energy_j"] == pytest.approx(3 * (3.5 * 5 + 8 * 1e6 * (283.17e-9 + 137.01e-9)))
    assert untested["one_way_mb"] == 3.0 and every["traffic_mb"] == tested["traffic_mb"] + 6.0


def test_costs_count_where_the_tests_of_a_round_were_lost() -> None:
    def figures(*lost: int) -> list[tuple[int | None, float, float]]:
        cost = {1: (1_000_000, 0, 1.0, 0.0), 2: (1_000_000, 0, 1.0, 0.0)}
        records = [
            round_of(number, [], cost, untested=2) if number in lost else round_of(number, [0.2 * number] * 2, cost)
            for number in (1, 2, 3, 4)
        ]
        types = device_type_figures(records, np.zeros(2, dtype=np.int64), ["t"], LATENCY)["types"]
        return [(each["settled_round"], each["traffic_mb"], each["time_s"]) for each in types]

    assert figures() == figures(2) == [(4, 8.0, 4.0)] * 2
    assert figures(4) == [(3, 6.0, 3.0)] * 2
    assert figures(1, 2, 3, 4) == [(None, 8.0, 4.0)] * 2


@settings(deadline=None, derandomize=True, max_examples=100)
@given(data=st.data())
def test_figures_are_sums_over_participations_until_the_type_settled(data: st.DataObject) -> None:
    seconds, count = st.floats(0, 1e4), st.integers(0, 10**9)
    cost = st.tuples(count, count, seconds, seconds)
    rounds = data.draw(st.lists(st.dictionaries(st.integers(1, 4), cost), min_size=1, max_size=5))
    types = np.array(data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)))
    records = [
        round_of(number, data.draw(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=4, max_size=4)), costs)
        for number, costs in enumerate(rounds, 1)
    ]
    *rows, every = device_type_figures(records, types, ["a", "b", "c"], LATENCY)["types"]
    sums = np.zeros((3, 3))  # of bytes, seconds and joules, by type
    for number, costs in enumerate(rounds, 1):
        for client, (down, up, computation, communication) in costs.items():
            index = types[client - 1]
            if number <= (rows[index]["settled_round"] or 0):
                watts = (5.0, 3.5, 2.5, 3.5)[client - 1]
                radio = 0.13286 * communication + 8e-9 * (283.17 * up + 137.01 * down)
                sums[index] += down + up, computation + communication, watts * computation + radio
    clients = np.bincount(types, minlength=3)
    for row, (traffic, time, energy), number in zip(rows, sums, clients.tolist(), strict=True):
        if not number:
            continue  # nobody is tested
        assert row["traffic_mb"] == pytest.approx(traffic / 1e6)
        assert row["time_s"] == pytest.approx(time / number)
        assert row["modelled_energy_j"] == pytest.approx(energy / number)
    totals = [every["traffic_mb"] * 1e6, every["time_s"] * 4, every["modelled_energy_j"] * 4]
    assert totals == pytest.approx(sums.sum(0).tolist())


def test_the_file_of_an_evaluation_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [round_of(number, [0.5] * 4, {1: (1.0, 1.0, 1.0, 1.0)}) for number in (1, 2)]
    stored = [replace(one, evaluation=write_evaluation(tmp_path, one.evaluation)[1]) for one in rounds]
    reads, read = [], evaluations.read_tensors
    monkeypatch.setattr(evaluations, "read_tensors", lambda path: reads.append(path.name) or read(path))
    types = np.array([0, 1, 0, 1])
    assert device_type_figures(stored, types, ["a", "b"], LATENCY) == device_type_figures(
        rounds, types, ["a", "b"], LATENCY
    )
    assert sorted(reads) == ["round-000001.safetensors", "round-000002.safetensors"]
