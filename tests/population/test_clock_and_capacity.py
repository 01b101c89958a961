"""The virtual clock's formula and the two capacity rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.clock import completion_times, whole_model_seconds
from fedscale_ext.population.population import Population, load_population

BASE = Cost(forward_macs=2_500_000, training_macs=7_500_000, parameters=11_264, bytes=44 * 1024)
FEDTRANS = {"local_steps": 20, "batch_size": 10, "reference_macs": 3e8}
# the weakest traced device and the strongest one
EXTREMES = Population(np.array([199.0, 15.0]), np.array([1017.0, 204056.7]), None, "two devices")


def needed(population: Population, macs: object, size: object) -> np.ndarray:
    parts = completion_times(
        population.computation_ms, population.communication_kbps, macs=macs, down_bytes=size, up_bytes=size,
        samples=200, reference_macs=3e8,
    )  # fmt: skip
    return parts[0] + parts[1]


def test_the_clock_is_fedscales_formula_scaled_by_macs() -> None:
    computation, communication = completion_times(
        np.array([100.0, 40.0]),
        np.array([1000.0, 4000.0]),
        macs=np.array([3e8, 1.5e8]),
        down_bytes=128_000,
        up_bytes=np.array([0, 128_000]),
        samples=np.array([200, 80]),
        reference_macs=3e8,
    )
    # 3 x samples x ms / 1000 x MACs / reference, and kbit (of 1,024 bits, as FedScale has it) / bandwidth
    assert computation == pytest.approx([3 * 10 * 20 * 0.1, 3 * 4 * 20 * 0.04 / 2])
    assert communication == pytest.approx([1000 / 1000, 2000 / 4000])


def test_a_whole_model_travels_in_both_directions() -> None:
    costs = [Cost(300_000_000, 0, 0, 128_000), Cost(150_000_000, 0, 0, 64_000)]
    macs, size = ([getattr(cost, name) for cost in costs] for name in ("forward_macs", "bytes"))
    seconds = whole_model_seconds(EXTREMES.computation_ms, EXTREMES.communication_kbps, costs, 200, 3e8)
    assert (seconds == needed(EXTREMES, macs, np.array(size))).all()


def test_the_reference_model_takes_what_fedscale_says() -> None:
    metadata = pytest.importorskip("fedscale.cloud.internal.client_metadata")
    theirs = metadata.ClientMetadata(1, 1, {"computation": 41.0, "communication": 6074.7}).get_completion_time(
        batch_size=16, local_steps=5, upload_size=800.0, download_size=400.0
    )
    ours = completion_times(
        np.array([41.0]), np.array([6074.7]), macs=3e8, down_bytes=400 * 128, up_bytes=800 * 128,
        samples=80, reference_macs=3e8,
    )  # fmt: skip
    assert [part[0] for part in ours] == pytest.approx([theirs["computation"], theirs["communication"]])


def test_deadline_rule_on_the_extremes_of_the_trace() -> None:
    """FedTrans's base: the weakest needs 1.7 s; computation alone would let the strongest have 56 MMACs.

    A larger model also has more to send, which leaves it 54, 22 times the base.
    """
    times = needed(EXTREMES, BASE.forward_macs, BASE.bytes)
    assert times[0] == pytest.approx(1.7, abs=0.05)
    assert times[0] / needed(EXTREMES, 1.0, 0.0)[1] == pytest.approx(57e6, rel=0.02)
    capacity = capacities(EXTREMES, "deadline", BASE, **FEDTRANS)
    assert capacity[0] == BASE.forward_macs
    assert capacity[1] == pytest.approx(54e6, rel=0.01)
    assert capacity[1] / capacity[0] == pytest.approx(21.5, abs=0.1)


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_a_model_of_a_clients_capacity_takes_exactly_the_deadline(deadline: float | None) -> None:
    population = load_population(list(map(str, range(500))), "resampled", None, 1)
    capacity = capacities(population, "deadline", BASE, **FEDTRANS, deadline_s=deadline)
    times = needed(population, capacity, BASE.bytes * capacity / BASE.forward_macs)
    assert times == pytest.approx(np.full(500, deadline or needed(population, BASE.forward_macs, BASE.bytes).max()))


def test_a_deadline_that_somebody_misses_with_the_smallest_model_is_refused() -> None:
    with pytest.raises(UserError, match="1 of 2 devices cannot train even the smallest"):
        capacities(EXTREMES, "deadline", BASE, **FEDTRANS, deadline_s=1.0)


def test_a_deadline_that_the_rule_would_ignore_is_refused() -> None:
    with pytest.raises(UserError, match="capacity_rule computation has no deadline; leave deadline_s out"):
        capacities(EXTREMES, "computation", BASE, **FEDTRANS, deadline_s=60.0)


def test_computation_rule_is_proportional_to_speed_within_the_spread() -> None:
    population = Population(np.array([200.0, 100.0, 20.0, 1.0]), np.full(4, 1e3), None, "four")
    capacity = capacities(population, "computation", BASE, **FEDTRANS, spread=32.0)
    assert (capacity / BASE.forward_macs).tolist() == [1, 2, 10, 32]
    # 199 / 15: by computation alone the trace spreads 13-fold
    capacity = capacities(EXTREMES, "computation", BASE, **FEDTRANS)
    assert capacity[1] / capacity[0] == pytest.approx(13.27, abs=0.01)


@given(
    devices=st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.1, 1e7)), min_size=1, max_size=20),
    macs=st.integers(1, 10**10),
    rule=st.sampled_from(["deadline", "computation"]),
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_the_smallest_model_fits_everybody(devices: list[tuple[float, float]], macs: int, rule: str) -> None:
    columns = np.array(devices)
    population = Population(columns[:, 0], columns[:, 1], None, "drawn")
    cost = Cost(macs, 3 * macs, 10, 40)
    assert (capacities(population, rule, cost, **FEDTRANS) >= macs).all()
