import numpy as np
import pytest

import fedscale_ext.runtime  # noqa: F401  makes FedScale importable
from fedscale_ext.errors import UserError
from fedscale_ext.models.spec import Cost
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.clock import completion_times
from fedscale_ext.population.population import Population
from fedscale_ext.population.selection import select
from fedscale_ext.streams import stream

BASE = Cost(forward_macs=2_500_000, training_macs=7_500_000, parameters=11_000, bytes=44_000)
JOB = {"local_steps": 20, "batch_size": 10, "reference_macs": 3e8}


def population(computation: list[float], communication: list[float]) -> Population:
    return Population(np.array(computation), np.array(communication), None, "test")


def test_the_clock_is_fedscales_for_the_reference_model() -> None:
    from fedscale.cloud.internal.client_metadata import ClientMetadata

    size = 50_000
    fedscale = ClientMetadata(1, 1, {"computation": 41.0, "communication": 6074.7}).get_completion_time(
        batch_size=10, local_steps=20, upload_size=size / 1024 * 8, download_size=size / 1024 * 8
    )
    computation, communication = completion_times(
        np.array([41.0]), np.array([6074.7]), macs=3e8, down_bytes=size, up_bytes=size, **JOB
    )
    assert computation[0] == pytest.approx(fedscale["computation"])
    assert communication[0] == pytest.approx(fedscale["communication"])


def test_a_models_own_macs_and_bytes_count_in_each_direction() -> None:
    computation, communication = completion_times(
        np.array([100.0, 100.0]), np.array([1000.0, 1000.0]), macs=np.array([3e8, 3e7]),
        down_bytes=np.array([128_000, 0]), up_bytes=np.array([0, 256_000]), **JOB,
    )  # fmt: skip
    assert computation.tolist() == pytest.approx([60.0, 6.0])
    assert communication.tolist() == pytest.approx([1.0, 2.0])


def test_the_deadline_is_the_slowest_devices_time_for_the_smallest_model() -> None:
    # specs: weakest 199 ms, 1017 kbit/s needs about 1.7 s, in which the strongest affords about 57 MMACs
    devices = population([199.0, 15.0, 41.0], [1016.9, 204_056.7, 6074.7])
    affords = capacities(devices, "deadline", BASE, **JOB)
    assert affords[0] == pytest.approx(BASE.forward_macs)
    assert 50e6 < affords[1] < 60e6
    computation, communication = completion_times(
        devices.computation_ms, devices.communication_kbps, macs=affords,
        down_bytes=BASE.bytes * affords / BASE.forward_macs, up_bytes=BASE.bytes * affords / BASE.forward_macs, **JOB,
    )  # fmt: skip
    assert np.allclose(computation + communication, 1.67, atol=0.02)


def test_computation_is_in_proportion_to_speed_and_clipped() -> None:
    devices = population([320.0, 160.0, 10.0, 1.0], [1e4] * 4)
    affords = capacities(devices, "computation", BASE, spread=32.0, **JOB)
    assert (affords / BASE.forward_macs).tolist() == pytest.approx([1.0, 2.0, 32.0, 32.0])


@pytest.mark.parametrize("rule", ["deadline", "computation"])
def test_the_smallest_model_fits_every_device(rule: str) -> None:
    rng = np.random.default_rng(0)
    devices = population(list(rng.uniform(15, 199, 500)), list(rng.uniform(1e3, 2e5, 500)))
    assert (capacities(devices, rule, BASE, **JOB) >= BASE.forward_macs).all()


def test_a_deadline_that_leaves_clients_out_is_refused() -> None:
    with pytest.raises(UserError, match="1 of 2 devices"):
        capacities(population([15.0, 199.0], [1e5, 1e5]), "deadline", BASE, deadline_s=0.5, **JOB)
    longer = capacities(population([15.0, 199.0], [1e5, 1e5]), "deadline", BASE, deadline_s=5.0, **JOB)
    assert (longer > 2 * BASE.forward_macs).all()


def test_selection_is_uniform_sorted_and_keyed() -> None:
    eligible = np.ones(20, dtype=bool)
    eligible[[3, 7]] = False
    counts = np.zeros(21)
    for round in range(3000):
        chosen = select(eligible, 5, stream(1, round))
        assert len(set(chosen.tolist())) == 5 and (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    assert counts[[0, 4, 8]].sum() == 0
    drawn = counts[np.flatnonzero(eligible) + 1]
    assert np.allclose(drawn, 3000 * 5 / 18, rtol=0.12)
    assert select(eligible, 5, stream(9)).tolist() == select(eligible, 5, stream(9)).tolist()


def test_all_take_part_where_there_are_few() -> None:
    eligible = np.array([True, False, True])
    assert select(eligible, 5, stream(1)).tolist() == [1, 3]
    assert select(~eligible & eligible, 5, stream(1)).tolist() == []
