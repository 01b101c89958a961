import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.metrics.job_folder.jsonable import line, plain


@dataclass(frozen=True)
class _Params:
    beta: float
    widths: tuple[int, ...]


def test_everything_a_method_may_record_becomes_json():
    value = {
        "loss": np.float32(0.1),
        "n": np.int64(3),
        "flag": np.bool_(True),
        "array": np.array([[1.5, 2.0]]),
        "tensor": torch.tensor([1, 2], dtype=torch.int32),
        "half": torch.tensor([0.5], dtype=torch.bfloat16),
        "grad": torch.ones(1, requires_grad=True),
        "params": _Params(0.003, (1, 2)),
        "spec": ModelSpec.make("toy", widths=(3,)),
        "path": Path("a") / "b",
        "set": {3, 1},
        ("m0", "m1"): 1,
        7: None,
    }
    assert json.loads(line(value)) == {
        "loss": 0.10000000149011612,
        "n": 3,
        "flag": True,
        "array": [[1.5, 2.0]],
        "tensor": [1, 2],
        "half": [0.5],
        "grad": [1.0],
        "params": {"beta": 0.003, "widths": [1, 2]},
        "spec": {"family": "toy", "fields": {"widths": [3]}},
        "path": "a/b",
        "set": [1, 3],
        "m0,m1": 1,
        "7": None,
    }
    assert plain(np.bool_(True)) is True


def test_numbers_that_json_lacks():
    text = line([float("nan"), np.float64("inf"), torch.tensor(-float("inf")), np.array([np.nan])])
    assert text == '[null,"inf","-inf",[null]]'
    assert line([float("nan"), 1.5]) == "[null,1.5]" and line(np.array(np.nan)) == "null"


numbers = st.floats(width=32) | st.sampled_from([float("nan"), float("inf"), -float("inf")])


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(numbers, min_size=1, max_size=8), st.booleans())
def test_arrays_and_lists_are_written_number_by_number(values, wide):
    expected = [plain(value) for value in values]
    array = np.array(values, dtype=np.float64 if wide else np.float32)
    assert plain(values) == plain(array) == expected
    assert plain(np.stack([array, array])) == [expected, expected]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back_bit_for_bit(number):
    back = json.loads(line(np.float64(number)))
    assert struct.pack("d", back) == struct.pack("d", number)


@pytest.mark.parametrize("value", [object(), {"deep": [lambda: 0]}, b"bytes", 1j])
def test_what_cannot_be_written_is_refused(value):
    with pytest.raises(TypeError):
        line(value)


def test_keys_that_would_swallow_each_other_are_refused():
    with pytest.raises(ValueError, match="same text"):
        plain({1: "a", "1": "b"})
