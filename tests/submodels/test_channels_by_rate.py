"""Narrower versions of every family by a rate."""

import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.architectures import FAMILIES

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.submodels import extract, leading, narrowed, widths_at, window

calm = settings(deadline=None, derandomize=True, max_examples=25)
CNN = models.named_spec("cnn_small", (1, 8, 8), 5)


@given(tenths=st.integers(1, 20), width=st.integers(1, 200))
@calm
def test_widths_are_the_exact_ceiling_of_decimal_rates(tenths: int, width: int) -> None:
    spec = CNN.replace(hidden=width)
    assert widths_at(spec, tenths / 20)["linear1"] == math.ceil(Fraction(tenths, 20) * width)


def test_what_data_and_task_fix_keeps_its_length() -> None:
    assert widths_at(CNN, 0.01) == {"conv1": 1, "conv2": 1, "linear1": 1}
    assert narrowed(CNN, 1.0) is CNN


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_is_a_network_of_the_narrowed_spec(family: str) -> None:
    @given(spec=FAMILIES[family], rate=st.floats(0.01, 1), start=st.integers(0, 100))
    @calm
    def check(spec: models.ModelSpec, rate: float, start: int) -> None:
        state = models.initial_state(spec, 1)
        part = extract(state, models.layout(spec), window(spec, rate, start))
        models.build(narrowed(spec, rate)).load_state_dict(part, strict=True)

    check()


def test_a_family_without_narrower_versions_is_not_passed_off_as_one() -> None:
    spec = models.named_spec("torchvision_resnet18", (1, 16, 16), 5)
    assert narrowed(spec, 1.0) is spec
    with pytest.raises(UserError, match="family 'torchvision' cannot be made narrower"):
        narrowed(spec, 0.5)


def test_windows_wrap_and_visit_every_channel_alike() -> None:
    spec = CNN.replace(hidden=5)
    assert window(spec, 0.6, 3)["linear1"].tolist() == [3, 4, 0]
    seen = Counter(channel for start in range(5) for channel in window(spec, 0.6, start)["linear1"].tolist())
    assert set(seen.values()) == {3} and len(seen) == 5
    assert all(torch.equal(index, torch.arange(len(index))) for index in window(spec, 0.6).values())


@pytest.mark.parametrize("family", FAMILIES)
def test_leading_slices_are_what_extraction_copies(family: str) -> None:
    @given(spec=FAMILIES[family], rate=st.floats(0.01, 1))
    @calm
    def check(spec: models.ModelSpec, rate: float) -> None:
        state, layout = models.initial_state(spec, 1), models.layout(spec)
        slices = leading(layout, widths_at(spec, rate))
        copied = extract(state, layout, window(spec, rate))
        for name, tensor in state.items():
            assert torch.equal(tensor[slices[name]], copied[name])
            assert tensor.numel() == 0 or tensor[slices[name]].data_ptr() == tensor.data_ptr()

    check()
