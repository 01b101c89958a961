import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.privacy.mechanism import clip_factor
from fedscale_ext.tasks.reduction import UnitSum
from fedscale_ext.training import update_norms as norms

SHAPES = {"w": (3, 2, 5, 5), "b": (3,), "scale": (), "running_var": (3,)}
FAST = settings(deadline=None, derandomize=True, max_examples=40)


def start() -> dict[str, torch.Tensor]:
    state = {name: torch.randn(shape, generator=torch_stream("start", name)) for name, shape in SHAPES.items()}
    return {**state, "num_batches_tracked": torch.tensor(7)}


def trained(clients: int, *key: int | str, scale: float = 1.0) -> dict[str, torch.Tensor]:
    """States [clients, *shape] after a training."""
    states = {}
    for name, base in start().items():
        if base.is_floating_point():
            noise = torch.randn((clients, *base.shape), generator=torch_stream(*key, name))
            states[name] = base + scale * noise
        else:
            states[name] = base.expand(clients) + 3
    return states


def floating(change: dict[str, torch.Tensor]) -> torch.Tensor:
    """All floating entries as one vector, float64."""
    return torch.cat([change[name].double().flatten() for name in SHAPES])


def rows(states: dict[str, torch.Tensor]) -> torch.Tensor:
    """Every client's change, [clients, entries]."""
    initial = start()
    return torch.cat(
        [(states[name] - initial[name]).double().reshape(len(states["b"]), -1) for name in SHAPES], dim=1
    )  # fmt: skip


@FAST
@given(st.integers(1, 5), st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_norms_are_over_all_that_floats_and_nothing_else(clients: int, key: int, scale: float) -> None:
    states = trained(clients, key, scale=scale)
    assert norms.change_norms(states, start()).tolist() == pytest.approx(rows(states).norm(dim=1).tolist(), rel=1e-6)


def test_large_tensors_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    states = trained(5, "parts")
    whole = norms.change_norms(states, start()).tolist()
    monkeypatch.setattr(norms, "_AT_ONCE", 60)  # less than what five clients have of `w`
    assert norms.change_norms(states, start()).tolist() == pytest.approx(whole, rel=1e-12)


@FAST
@given(st.floats(0, 1e12), st.floats(1e-9, 1e9))
def test_a_factor_shortens_to_the_limit_and_never_lengthens(norm: float, limit: float) -> None:
    factor = clip_factor(norm, limit)
    assert 0 < factor <= 1
    assert norm * factor <= limit * (1 + 1e-12)
    assert factor == 1 or norm > limit


@FAST
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_a_clipped_change_keeps_its_direction_and_has_at_most_the_norm(key: int, limit: float) -> None:
    states = trained(1, key)
    total = UnitSum(start(), clip_norm=limit)
    assert total.add(states, [1.0]) == [None]
    clipped, change = floating(total.change()), rows(states)[0]
    assert float(clipped.norm()) <= limit * (1 + 1e-5)
    assert float(clipped.norm()) == pytest.approx(min(limit, float(change.norm())), rel=1e-4)
    cosine = float(clipped @ change / clipped.norm() / change.norm())
    assert cosine == pytest.approx(1.0, abs=1e-6)


@FAST
@given(st.integers(0, 1000), st.integers(0, 3), st.sampled_from([0.1, 3.0, 1e3]), st.sampled_from([0.0, 1.0, 50.0]))
def test_one_client_moves_a_sum_by_one_norm_or_two(key: int, client: int, limit: float, other: float) -> None:
    def sums(states: dict[str, torch.Tensor]) -> torch.Tensor:
        total = UnitSum(start(), clip_norm=limit)
        total.add(states, [1.0] * 4)
        assert total.weight == 4
        return floating(total.change())

    states = trained(4, key)
    here, replaced = trained(4, key, "other", scale=other), {}
    for name, tensor in states.items():
        replaced[name] = tensor.clone()
        replaced[name][client] = here[name][client]  # with scale 0: as if the client had no data
    moved = float((sums(states) - sums(replaced)).norm())
    assert moved <= (1 if other == 0 else 2) * limit * (1 + 1e-5) + 1e-5
    assert moved > 0


def test_cohorts_are_clipped_row_by_row_and_counted() -> None:
    states = trained(6, "cohort")
    for row in range(6):
        for name in SHAPES:
            base = start()[name]
            states[name][row] = base + (row + 1) * (states[name][row] - base)
    lengths = norms.change_norms(states, start()).tolist()
    limit = sorted(lengths)[2]
    together, alone = UnitSum(start(), clip_norm=limit), UnitSum(start(), clip_norm=limit)
    together.add(states, [1.0] * 6)
    for row in range(6):
        alone.add({name: tensor[row : row + 1] for name, tensor in states.items()}, [1.0])
    assert together.num_unclipped == alone.num_unclipped == 3
    by_hand = sum(change * min(1.0, limit / float(change.norm())) for change in rows(states))
    for total in (together.change(), alone.change()):
        torch.testing.assert_close(floating(total), by_hand, rtol=1e-5, atol=1e-5)


def test_a_client_that_failed_or_is_not_finite_is_neither_summed_nor_counted() -> None:
    states = trained(3, "bad")
    states["b"][1, 0] = math.nan
    total, only = UnitSum(start(), clip_norm=1e9), UnitSum(start(), clip_norm=1e9)
    assert total.add(states, [1.0, 1.0, None])[1] == "diverged: tensor 'b' is not finite"
    only.add({name: tensor[:1] for name, tensor in states.items()}, [1.0])
    assert (total.weight, total.num_unclipped) == (1, 1)
    assert all(
        torch.equal(one, other) for one, other in zip(total.change().values(), only.change().values(), strict=True)
    )
