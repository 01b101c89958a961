"""A trace whose values look as if they were in another unit is reported once, with the unit that is expected."""

from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.population.population import load_population
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.notes import availability_note, capacity_note
from fedscale_ext.population.traces.resampling import resample_availability, resample_capacity
from fedscale_ext.population.traces.statistics import reached
from fedscale_ext.population.traces.writing import write_trace

MS, KBPS = np.array([15.0, 41.0, 199.0]), np.array([1017.0, 6075.0, 204057.0])
HOUR, DAY = 3600.0, 86400.0


def devices(computation: np.ndarray, communication: np.ndarray) -> CapacityTrace:
    return CapacityTrace(np.arange(1, len(computation) + 1), computation, communication)


def online(period: float) -> AvailabilityTrace:
    return AvailabilityTrace(
        np.array([1]), np.array([0, 1]), np.array([0.0]), np.array([period / 2]), np.array([period])
    )


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (devices(KBPS, MS), ("computation", "communication", "swapped", "ms per sample", "kbit/s")),
        (devices(MS / 1000, KBPS), ("median computation is 0.041 (0.015 to 0.199)", "15 to 199 ms per sample")),
        (devices(MS, KBPS * 1000), ("median communication is 6,075,000", "1,016 to 204,000 kbit/s")),
        (devices(MS, KBPS / 1000), ("median communication is 6.08 (1.02 to 204)", "1,016 to 204,000 kbit/s")),
    ],
)
def test_devices_in_another_unit_are_reported(trace: CapacityTrace, words: tuple[str, ...]) -> None:
    note = capacity_note(trace, "device_conf_file a.csv") or ""
    assert note.startswith("device_conf_file a.csv: ")
    assert all(word in note for word in words), note
    assert ("communication" in note) == ("communication" in " ".join(words))


def test_devices_of_fedscale_and_ones_up_to_ten_times_as_slow_or_fast_need_no_words() -> None:
    for factor in (0.25, 1, 4):
        assert capacity_note(devices(MS * factor, KBPS / factor), "a") is None
    assert capacity_note(resample_capacity(200, 1), "a") is None
    few = devices(np.array([41.0, 41.0, 60000.0]), np.array([6000.0, 6000.0, 1.0]))  # the median counts
    assert capacity_note(few, "a") is None


@pytest.mark.parametrize(
    ("period", "reported"), [(24.0, True), (86400.0 * 1000, True), (HOUR, False), (60 * DAY, False)]
)
def test_a_period_in_another_unit_than_seconds_is_reported(period: float, reported: bool) -> None:
    note = availability_note(online(period), "device_avail_file b.csv") or ""
    assert bool(note) == reported
    assert not reported or (
        note.startswith("device_avail_file b.csv: ") and "finish_time" in note and "seconds" in note
    )


def test_intervals_beyond_the_period_are_reported() -> None:
    two_days = AvailabilityTrace(
        np.array([1]), np.array([0, 2]), np.array([0.0, DAY]), np.array([HOUR, DAY + HOUR]), np.array([DAY])
    )
    note = availability_note(two_days, "a.csv")
    assert note is not None and note.startswith("a.csv: 1 of 2 intervals end after their client's finish_time")
    assert int(reached(two_days).sum()) == 1


def test_intervals_that_end_before_they_begin_are_reported() -> None:
    begin, end = np.array([0.0, 2 * HOUR]), np.array([HOUR, 3 * HOUR])
    right = AvailabilityTrace(np.array([1]), np.array([0, 2]), begin, end, np.array([DAY]))
    swapped = AvailabilityTrace(np.array([1]), np.array([0, 2]), end, begin, np.array([DAY]))
    assert availability_note(right, "a.csv") is None
    note = availability_note(swapped, "a.csv")
    assert note is not None and "2 of 2 intervals end before they begin" in note and "swapped" in note
    assert not reached(swapped).any()


def test_drawn_availability_needs_no_words() -> None:
    assert availability_note(resample_availability(50, 1), "a") is None


def test_a_population_has_the_notes_of_its_files(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("capacity.csv", "online.csv")]
    write_trace(tmp_path / "capacity.csv", devices(KBPS, MS))
    write_trace(tmp_path / "online.csv", online(24.0))
    notes = load_population(["a", "b"], files[0], files[1], 1, "order").notes
    assert [note.partition(":")[0] for note in notes] == [
        f"device_conf_file {files[0]}",
        f"device_avail_file {files[1]}",
    ]
    assert load_population(["a", "b"], "resampled", "resampled", 1).notes == ()
