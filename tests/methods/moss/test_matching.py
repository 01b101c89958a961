"""Eqs. 4-7 on any maps: all pairs at once are each pair for itself."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedscale_ext.methods.moss import matching
from fedscale_ext.methods.moss.matching import MapTargets
from tests.methods.moss.toy import generator

shapes = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=3)
seeds, layers = st.integers(0, 99), st.sampled_from([1, 2])


def draw(shape, seed):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(1, 3), layers, seeds)
def test_degrees_lie_in_the_simplex_and_locations_between_0_and_6(teacher, students, layers, seed):
    meta = matching.meta_networks(teacher, students, layers, generator(seed))
    for m, (channels, _, _) in enumerate(teacher):
        means = draw((5, channels), seed).float() * 10
        fresh = matching.degree(meta, m, means)
        assert torch.allclose(fresh, torch.full_like(fresh, 1 / channels))  # uniform at the start
        meta[f"degree.{m}.{layers - 1}.weight"] = torch.randn(students, channels, channels, generator=generator(seed))
        degree, location = matching.degree(meta, m, means), matching.location(meta, m, means)
        assert degree.shape == (students, 5, channels) and (degree >= 0).all()
        assert torch.allclose(degree.sum(2), torch.ones(students, 5))
        assert location.shape == (students, 5) and (location >= 0).all() and (location <= 6).all()


@settings(max_examples=10, deadline=None)
@given(shapes, st.integers(1, 3), seeds)
def test_two_layers_are_a_hidden_one_with_relu_and_a_linear_one(teacher, students, seed):
    meta = {k: draw(v.shape, seed + n) for n, (k, v) in enumerate(
        matching.meta_networks(teacher, students, 2, generator(seed)).items())}  # fmt: skip
    for m, (channels, _, _) in enumerate(teacher):
        means = draw((5, channels), seed)
        for n in range(students):
            outputs = []
            for kind in ("location", "degree"):
                first, last = ({k: meta[f"{kind}.{m}.{layer}.{k}"][n] for k in ("weight", "bias")} for layer in (0, 1))
                outputs.append(functional.linear(functional.linear(means, **first).relu(), **last))
            torch.testing.assert_close(matching.location(meta, m, means)[n], outputs[0][:, 0].clamp(0, 6))
            torch.testing.assert_close(matching.degree(meta, m, means)[n], outputs[1].softmax(1))


@settings(max_examples=60, deadline=None)
@given(shapes, shapes, seeds)
def test_errors_of_all_pairs_are_those_of_each(teacher, student, seed):
    sources = [draw((3, *shape), seed + m) for m, shape in enumerate(teacher)]
    maps = [draw((3, *shape), seed + 50 + n) for n, shape in enumerate(student)]
    project = {k: v.double() for k, v in matching.projections(teacher, student, generator(seed)).items()}
    targets = MapTargets.of([source.repeat(2, 1, 1, 1) for source in sources], student)
    all_pairs = matching.errors(project, maps, targets[torch.arange(3, 6)])
    for n, target in enumerate(maps):
        begin = 0
        for source in sources:
            r = project[f"project.{n}"][begin : begin + source.shape[1]]
            resized = source
            if source.shape[2:] != target.shape[2:]:
                resized = functional.interpolate(source, target.shape[2:], mode="bilinear")
            each = (functional.conv2d(target, r[:, :-1, None, None], r[:, -1]) - resized).square().mean((2, 3))
            torch.testing.assert_close(all_pairs[n, :, begin : begin + source.shape[1]], each, rtol=1e-9, atol=1e-9)
            begin += source.shape[1]
