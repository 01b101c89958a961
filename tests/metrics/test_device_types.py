"""Rounds until accuracies settle, modelled energy, and what a job reached by type of device."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_job import evaluation, record

from fedscale_ext.metrics.convergence import settled
from fedscale_ext.metrics.device_types import Participation, device_type_figures
from fedscale_ext.metrics.energy import device_classes, joules


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


def test_energy_is_power_by_time_and_joules_by_bit() -> None:
    latency = np.array([15.0, 41.0, 190.0])
    assert device_classes(latency).tolist() == [0, 1, 2]
    nothing, ten, mega = np.zeros(3), np.full(3, 10.0), np.full(3, 1e6)
    assert joules(latency, ten, nothing, nothing, nothing) == pytest.approx([50.0, 35.0, 25.0])
    assert joules(latency, nothing, ten, nothing, nothing) == pytest.approx([1.3286] * 3)
    assert joules(latency, nothing, nothing, mega, nothing) == pytest.approx([8e6 * 137.01e-9] * 3)
    assert joules(latency, nothing, nothing, nothing, mega) == pytest.approx([8e6 * 283.17e-9] * 3)


def test_figures_by_type() -> None:
    type_of_client = np.array([0, 1, 0, 1])
    records = []
    for number, (large, small) in enumerate([(0.3, 0.2), (0.9, 0.2), (0.9, 0.2), (0.9, 0.2)], 1):
        tested = evaluation(number, [large, small, large, small])
        participants = [1, 2, 3, 4] if number == 1 else [1, 2]
        records.append(replace(record(number), evaluation=tested, participants=participants))
    size = np.where(type_of_client == 0, 4e6, 1e6)
    usual = Participation(size, 2 * size, np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 20.0, 30.0, 40.0]))
    figures = device_type_figures(records, type_of_client, ["large", "small"], usual)
    large, small, mean = figures["types"]
    assert [one["type"] for one in figures["types"]] == ["large", "small", "all"]
    assert large["clients"] == 2 and large["accuracy"] == pytest.approx(0.9)
    assert (large["settled_round"], small["settled_round"]) == (4, 1)
    assert large["one_way_mb"] == 16.0 and small["one_way_mb"] == 1.0  # Table 4's: size times rounds
    assert large["traffic_mb"] == 2 * 4 * 5 and small["traffic_mb"] == 2 * 1 * 2
    assert large["time_s"] == (4 * 1.0 + 1 * 3.0) / 2 and small["modelled_energy_j"] == (20 + 40) / 2
    assert mean["accuracy"] == pytest.approx(0.55) and mean["settled_round"] == 4
    assert "modelled" in figures["energy"]
    assert device_type_figures([], type_of_client, ["large", "small"], usual)["types"][-1]["accuracy"] is None
    three_small = device_type_figures(records, np.array([0, 1, 1, 1]), ["large", "small", "none"], usual)["types"]
    one, others, nobody, every = three_small
    assert every["accuracy"] == pytest.approx((0.9 + 0.2 + 0.9 + 0.2) / 4)  # over devices, not over types
    assert (one["clients"], others["clients"], nobody["clients"]) == (1, 3, 0) and np.isnan(nobody["accuracy"])
    assert every["time_s"] == pytest.approx((one["time_s"] + 3 * others["time_s"]) / 4)
    assert every["modelled_energy_j"] == pytest.approx((one["modelled_energy_j"] + 3 * others["modelled_energy_j"]) / 4)
    first = Participation(size, 2 * size + 3e6, usual.seconds + 10, usual.energy_j + 100)
    large, small, _ = device_type_figures(records, type_of_client, ["large", "small"], usual, first)["types"]
    assert large["traffic_mb"] == 2 * 4 * 5 + 2 * 3 and small["traffic_mb"] == 2 * 1 * 2 + 2 * 3
    assert large["one_way_mb"] == 16.0 and large["time_s"] == (4 * 1.0 + 1 * 3.0) / 2 + 10
    assert small["modelled_energy_j"] == (20 + 40) / 2 + 100


def test_a_type_that_is_never_tested_counts_until_the_job_settled() -> None:
    """It has trained and sent all the same."""
    records = [
        replace(record(number), evaluation=evaluation(number, [0.3 * number], untested=1), participants=[1, 2])
        for number in (1, 2, 3)
    ]
    each = np.full(2, 1e6)
    usual = Participation(each, 2 * each, np.array([1.0, 5.0]), np.array([10.0, 50.0]))
    tested, untested, every = device_type_figures(records, np.array([0, 1]), ["tested", "untested"], usual)["types"]
    assert (tested["settled_round"], untested["settled_round"], every["settled_round"]) == (3, None, 3)
    assert (untested["traffic_mb"], untested["time_s"], untested["modelled_energy_j"]) == (6.0, 15.0, 150.0)
    assert untested["one_way_mb"] == 3.0 and every["traffic_mb"] == tested["traffic_mb"] + 6.0


def test_the_jobs_first_round_has_a_cost_of_its_own() -> None:
    participants = [[1, 2], [1, 3], [1, 2, 3]]
    records = [
        replace(record(number), evaluation=evaluation(number, [0.2 * number] * 3), participants=who)
        for number, who in enumerate(participants, 1)
    ]
    each = np.full(3, 1e6)
    usual, first, opening = (Participation(each, factor * each, factor * each, each) for factor in (2, 5, 4))
    one, _ = device_type_figures(records, np.zeros(3, dtype=np.int64), ["t"], usual, first, opening)["types"]
    assert one["settled_round"] == 3
    assert one["traffic_mb"] == 2 * 4 + 1 * 5 + 4 * 2  # two in round 1, one first later, four further times
    never, _ = device_type_figures(records, np.zeros(3, dtype=np.int64), ["t"], usual, first)["types"]
    assert never["traffic_mb"] == 3 * 5 + 4 * 2
