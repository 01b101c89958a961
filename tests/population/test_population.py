"""The columns of a population, resampling, and selection."""

import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.population import load_population
from fedscale_ext.population.selection.participants import select
from fedscale_ext.population.traces.reading import read_capacity
from fedscale_ext.population.traces.resampling import marginals, resample_capacity


def clients(number: int) -> list[str]:
    """Names as `fedscale dataset import` gives them."""
    return [f"c{client}" for client in range(1, number + 1)]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "client_device_capacity"
    devices = {key: {"computation": 10.0 * key, "communication": 100.0 * key} for key in (1, 2, 3)}
    path.write_bytes(pickle.dumps(devices))
    return str(path)


def test_every_client_has_a_device_of_the_trace(trace: str) -> None:
    """FedScale's (n + 1) % len gives the last client id 0, which no trace has: 1 ms, 1 kbit/s (defect 6)."""
    population = load_population(clients(7), trace, None, 1)
    assert population.computation_ms.tolist() == [10, 20, 30, 10, 20, 30, 10]
    assert population.communication_kbps.tolist() == [100, 200, 300, 100, 200, 300, 100]
    assert population.availability is None
    assert population.source == f"traced: {trace} by order (3 devices, repeated)"
    assert load_population(clients(2), trace, None, 1).source == f"traced: {trace} by order"


def test_resampled_devices_and_availability_say_so(trace: str) -> None:
    population = load_population(clients(4), "resampled", "resampled", 1)
    assert population.source.startswith("resampled from")
    assert "resampling" in population.source
    assert population.availability is not None
    assert population.availability.size == population.size == 4
    assert load_population(clients(3), trace, "resampled", 1).source.startswith("traced: ")


@pytest.mark.parametrize("key", ["device_conf_file", "device_avail_file"])
def test_a_missing_file_is_named_with_its_key(key: str) -> None:
    files = {"device_conf_file": None, "device_avail_file": None, key: "/nowhere/trace"}
    with pytest.raises(UserError, match=f"{key} /nowhere/trace is missing"):
        load_population(clients(4), seed=1, **files)


def test_marginals_are_the_published_ones() -> None:
    figures = marginals()
    table = figures["computation_ms_per_sample"]
    assert (len(table), sum(table.values()), sum(count == 1 for count in table.values())) == (72, 139, 45)
    quantiles = figures["communication_kbps_quantiles"]
    assert sorted(quantiles.values()) == list(quantiles.values())
    assert len(figures["online_fraction_by_hour"]) == 24


def test_resampled_devices_have_the_published_figures() -> None:
    devices = resample_capacity(200_000, 1)
    levels = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100]
    assert np.percentile(devices.computation_ms, levels[1:]).tolist() == pytest.approx(
        [15, 19, 21, 24, 41, 148, 174, 189, 193, 199], abs=1
    )
    published = list(marginals()["communication_kbps_quantiles"].values())
    assert np.percentile(devices.communication_kbps, levels).tolist() == pytest.approx(published, rel=0.03)
    assert devices.computation_ms.mean() == pytest.approx(77.9, abs=0.5)
    assert devices.communication_kbps.mean() == pytest.approx(13_708, rel=0.02)
    assert abs(np.corrcoef(devices.computation_ms, devices.communication_kbps)[0, 1]) < 0.01


def test_resampling_is_seeded() -> None:
    once, again, other = resample_capacity(50, 1), resample_capacity(50, 1), resample_capacity(50, 2)
    assert (once.communication_kbps == again.communication_kbps).all()
    assert (once.communication_kbps != other.communication_kbps).any()


def test_resampled_devices_against_the_real_trace(shared_data: Path) -> None:
    real = read_capacity(shared_data / "fedscale_device_capacity_51496.npz")
    drawn = resample_capacity(len(real), 1)
    for name, allowed in (("computation_ms", 0.01), ("communication_kbps", 0.05)):
        ours, theirs = np.sort(getattr(drawn, name)), np.sort(getattr(real, name))
        points = np.unique(theirs)
        below = [np.searchsorted(values, points, side="right") / len(real) for values in (ours, theirs)]
        assert np.abs(below[0] - below[1]).max() < allowed  # Kolmogorov-Smirnov distance


def test_selection_is_sorted_unique_eligible_and_seeded() -> None:
    eligible = np.arange(1000) % 3 == 0
    chosen = select(eligible, 50, np.random.default_rng(1))
    assert chosen.dtype == np.int64
    assert len(set(chosen.tolist())) == 50
    assert chosen.tolist() == sorted(chosen.tolist())
    assert eligible[chosen - 1].all()
    assert (select(eligible, 50, np.random.default_rng(1)) == chosen).all()
    assert (select(eligible, 50, np.random.default_rng(2)) != chosen).any()


def test_selection_takes_all_where_there_are_too_few() -> None:
    assert select(np.array([True, False, True]), 5, np.random.default_rng(1)).tolist() == [1, 3]
    assert select(np.zeros(3, dtype=bool), 5, np.random.default_rng(1)).tolist() == []


def test_selection_is_uniform() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros(20)
    for _ in range(4000):
        counts[select(np.ones(20, dtype=bool), 5, rng) - 1] += 1
    assert counts == pytest.approx(np.full(20, 1000), abs=110)  # four standard deviations


def test_half_a_million_devices_are_quick(tmp_path: Path) -> None:
    """Bounds many times wider than evals/speed/population.py measures, so that they hold on a busy machine."""
    devices = resample_capacity(500_000, 1)
    path = tmp_path / "capacity.npz"
    np.savez(
        path,
        client_id=devices.client_id,
        computation_ms_per_sample=devices.computation_ms,
        communication_kbps=devices.communication_kbps,
    )
    names = clients(500_000)
    begin = time.process_time()
    population = load_population(names, str(path), None, 1)
    assert time.process_time() - begin < 8
    begin = time.process_time()
    assert len(select(population.computation_ms < 100, 100, np.random.default_rng(1))) == 100
    assert time.process_time() - begin < 0.2


def test_a_long_pickle_is_walked_without_building_each_opcode(tmp_path: Path) -> None:
    path = tmp_path / "capacity"
    path.write_bytes(pickle.dumps({key: {"computation": 5.0, "communication": key + 0.5} for key in range(1, 100_001)}))
    begin = time.process_time()
    assert len(read_capacity(path)) == 100_000
    assert time.process_time() - begin < 1.5  # about 0.1; the whole trace is five times as long
