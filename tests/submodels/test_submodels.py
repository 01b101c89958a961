"""The shared mean and the moving of submodels, over all families."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.submodels import CountMean, count_mean, coverage, extract, insert, prefix

SHAPE, CLASSES = (1, 12, 12), 5
NAMES = ("nasbench201_base", "cnn_small")
quick = settings(deadline=None, derandomize=True, max_examples=20)


def spec_of(name):
    return models.named_spec(name, SHAPE, CLASSES)


def group_sizes(spec):
    state = models.initial_state(spec, 0)
    return {
        axis.group: length // axis.repeat
        for name, axes in models.layout(spec).items()
        for axis, length in zip(axes, state[name].shape, strict=True)
        if axis is not None
    }


def random_index_map(spec, generator):
    return {
        group: torch.randperm(size, generator=generator)[: 1 + int(torch.randint(size, (), generator=generator))]
        for group, size in group_sizes(spec).items()
        if group not in ("input", "classes")
    }


def states(spec, n, seed=0):
    return [models.initial_state(spec, seed + i) for i in range(n)]


@pytest.mark.parametrize("name", NAMES)
def test_full_coverage_is_fedavg(name):
    spec = spec_of(name)
    reference, *updates = states(spec, 4)
    weights = [1.0, 2.5, 7.0]
    mean = count_mean(reference, [(u, None, w) for u, w in zip(updates, weights, strict=True)])
    for key, tensor in mean.items():
        expected = sum(w * u[key].double() for u, w in zip(updates, weights, strict=True)) / sum(weights)
        assert tensor.dtype == reference[key].dtype
        torch.testing.assert_close(tensor.double(), expected, atol=1e-7, rtol=1e-6)


def test_whole_updates_count_beside_partial_ones() -> None:
    reference = {"w": torch.zeros(3)}
    whole, part = (
        ({"w": torch.full((3,), 6.0)}, None, 2.0),
        ({"w": torch.zeros(2)}, {"w": (torch.tensor([0, 2]),)}, 1.0),
    )
    for updates in ([whole, part], [part, whole]):
        assert count_mean(reference, updates)["w"].tolist() == [4.0, 6.0, 4.0]


def test_a_mean_of_nothing_is_a_copy() -> None:
    reference = {"w": torch.zeros(3)}
    count_mean(reference, [])["w"].add_(1)
    assert reference["w"].tolist() == [0.0, 0.0, 0.0]


@given(seed=st.integers(0, 10_000), name=st.sampled_from(NAMES))
@quick
def test_partial_means_agree_with_a_loop_over_masks_in_any_order(seed, name):
    spec, generator = spec_of(name), torch.Generator().manual_seed(seed)
    layout = models.layout(spec)
    reference, *full = [{k: v.double() for k, v in s.items()} for s in states(spec, 4, seed)]
    updates, masks = [], []
    for number, state in enumerate(full):
        index_map = random_index_map(spec, generator)
        covered = coverage(layout, index_map)
        updates.append((extract(state, layout, index_map), covered, number + 0.5))
        zeros = {k: torch.zeros_like(v) for k, v in reference.items()}
        ones = extract({k: torch.ones_like(v) for k, v in reference.items()}, layout, index_map)
        masks.append(insert(zeros, ones, covered))
    mean, backwards = count_mean(reference, updates), count_mean(reference, updates[::-1])
    for key, tensor in mean.items():
        weight = sum(m[key] * w for m, (_, _, w) in zip(masks, updates, strict=True))
        total = sum(m[key] * w * s[key] for s, m, (_, _, w) in zip(full, masks, updates, strict=True))
        expected = torch.where(weight > 0, total / weight.clamp(min=1e-9), reference[key])
        torch.testing.assert_close(tensor, expected, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(tensor, backwards[key], atol=1e-12, rtol=1e-12)
        assert torch.equal(tensor[weight == 0], reference[key][weight == 0])


@given(seed=st.integers(0, 10_000), name=st.sampled_from(NAMES))
@quick
def test_extract_then_insert_is_the_identity(seed, name):
    spec, generator = spec_of(name), torch.Generator().manual_seed(seed)
    layout, (state, other) = models.layout(spec), states(spec, 2, seed)
    index_map = random_index_map(spec, generator)
    covered, small = coverage(layout, index_map), extract(state, layout, index_map)
    back = insert(state, small, covered)
    assert all(torch.equal(back[key], state[key]) for key in state)
    again = extract(insert(other, small, covered), layout, index_map)
    assert all(torch.equal(again[key], small[key]) for key in small)


def test_flattened_channels_stay_together():
    spec = spec_of("cnn_small")  # 12x12 -> 3x3 positions per channel of conv2
    small = extract(models.initial_state(spec, 3), models.layout(spec), {"conv2": torch.tensor([4, 1])})
    full = models.initial_state(spec, 3)["linear1.weight"]
    assert torch.equal(small["linear1.weight"], torch.cat([full[:, 36:45], full[:, 9:18]], dim=1))


def test_masks_and_missing_names_and_zero_weights_keep_the_reference():
    reference = {"a": torch.zeros(3), "b": torch.full((2,), 0.1), "n": torch.tensor(2**60 + 1)}
    garbage = torch.tensor([1.0, float("nan"), 3.0])
    mask = torch.tensor([True, False, True])
    mean = count_mean(reference, [({"a": garbage}, {"a": mask}, 2.0), ({"a": torch.ones(3)}, {"a": None}, 0.0)])
    assert mean["a"].tolist() == [1.0, 0.0, 3.0]
    assert torch.equal(mean["b"], reference["b"])
    assert torch.equal(mean["n"], reference["n"])


def test_counts_stay_exact_integers():
    reference = {"n": torch.tensor(0)}
    mean = count_mean(reference, [({"n": torch.tensor(7)}, None, 0.1), ({"n": torch.tensor(7)}, None, 0.2)])
    assert mean["n"].dtype == torch.int64
    assert mean["n"] == 7
    assert count_mean(reference, [({"n": torch.tensor(n)}, None, 1.0) for n in (7, 8, 8)])["n"] == 8


def test_sums_are_float64():
    reference = {"w": torch.zeros(1)}
    updates = [({"w": torch.tensor([1e8])}, None, 1.0), ({"w": torch.ones(1)}, None, 1.0)]
    cancel = [({"w": torch.tensor([-1e8])}, None, 1.0)]
    assert count_mean(reference, [*updates, *cancel])["w"].item() == pytest.approx(1 / 3)


def test_prefix_covers_the_overlap_only():
    reference = {"w": torch.zeros(3, 2), "new": torch.zeros(1)}
    small = {"w": torch.tensor([[1.0], [2.0]])}
    mean = count_mean(reference, [(small, prefix(reference, small), 3.0)])
    assert mean["w"].tolist() == [[1, 0], [2, 0], [0, 0]]
    with pytest.raises(ValueError, match="no prefix"):
        prefix(small, reference)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        CountMean({"w": torch.zeros(1)}).add({"w": torch.zeros(1)}, None, weight)


def test_shapes_that_would_broadcast_are_refused():
    mean = CountMean({"w": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="shape"):
        mean.add({"w": torch.zeros(2)}, None, 1.0)
    with pytest.raises(ValueError, match="coverage"):
        mean.add({"w": torch.zeros(1)}, {"w": (torch.tensor([0, 1]), None)}, 1.0)


def test_bad_index_maps_are_refused():
    layout = models.layout(spec_of("cnn_small"))
    with pytest.raises(ValueError, match="no group"):
        coverage(layout, {"conv9": torch.tensor([0])})
    with pytest.raises(ValueError, match="twice"):
        coverage(layout, {"conv1": torch.tensor([0, 0])})


def test_a_nan_that_is_covered_is_not_hidden():
    reference = {"w": torch.zeros(2)}
    mean = count_mean(reference, [({"w": torch.tensor([float("nan"), 1.0])}, None, 1.0)])
    assert mean["w"].isnan().tolist() == [True, False]
