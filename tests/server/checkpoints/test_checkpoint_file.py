import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.server.checkpoints import checkpoint_file

TENSORS = {"pool/m0/w": torch.arange(4.0) / 3, "checkpoint.json": torch.tensor(7), "e": torch.zeros(0, 2)}
DATA = {"history": [0.1, 1 / 3, 5e-324], "cells": {"c0": None, "c1": True}, "name": "größer", "n": 2**70}
CONFIG = {"method": "fedavg", "seed": 1, "model": "cnn_leaf", "clip_norm": None, "filter_more": 1e15}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def files(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_the_newest_comes_back(tmp_path: Path):
    assert checkpoint_file.load(tmp_path / "absent", CONFIG) is None
    for round in (10, 20):
        checkpoint_file.save(tmp_path, round, TENSORS, {**DATA, "round": round}, CONFIG, keep=2)
    loaded = checkpoint_file.load(tmp_path, CONFIG)
    assert loaded is not None and loaded.round == 20
    assert loaded.data == {**DATA, "round": 20}
    assert loaded.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(loaded.tensors[name], tensor) and loaded.tensors[name].dtype == tensor.dtype


@settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(json_values)
def test_json_comes_back_exactly(tmp_path: Path, data):
    checkpoint_file.save(tmp_path, 1, {}, data, CONFIG, keep=2)
    loaded = checkpoint_file.load(tmp_path, CONFIG)
    assert loaded is not None and loaded.data == data and repr(loaded.data) == repr(data)


def test_floats_of_every_kind_come_back_bit_for_bit(tmp_path: Path):
    values = [float("inf"), -0.0, 0.1 + 0.2, float(np.float32(0.1)), float("nan"), 1.7976931348623157e308]
    checkpoint_file.save(tmp_path, 1, {}, values, CONFIG, keep=2)
    loaded = checkpoint_file.load(tmp_path, CONFIG)
    assert loaded is not None
    assert [struct.pack("d", value) for value in loaded.data] == [struct.pack("d", value) for value in values]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"u": {1: 0.5}}, r"data\['u'\] has the key 1"),
        ([{"x": np.int64(1)}], r"data\[0\]\['x'\] is a int64"),
        ({"t": torch.zeros(1)}, r"data\['t'\] is a Tensor"),
        ({"s": {1, 2}}, r"data\['s'\] is a set"),
    ],
)
def test_what_json_would_change_is_refused_before_anything_is_written(tmp_path: Path, data, where: str):
    with pytest.raises(TypeError, match=where):
        checkpoint_file.save(tmp_path, 1, {}, data, CONFIG, keep=2)
    assert files(tmp_path) == []


def test_only_the_newest_are_kept_and_nothing_else_is_touched(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    for round in (1, 2, 9, 10, 1_000_000):
        checkpoint_file.save(tmp_path, round, TENSORS, DATA, CONFIG, keep=3)
    expected = [f"checkpoint-{name}.safetensors" for name in ("000009", "000010", "1000000")]
    assert files(tmp_path) == [*expected, "notes.txt"]
    checkpoint_file.drop_after(tmp_path, 9)
    assert files(tmp_path) == ["checkpoint-000009.safetensors", "notes.txt"]
    checkpoint_file.drop_after(tmp_path, 0)
    assert files(tmp_path) == ["notes.txt"]


def test_a_job_resumed_earlier_leaves_the_later_course(tmp_path: Path):
    for round in (10, 20):
        checkpoint_file.save(tmp_path, round, TENSORS, DATA, CONFIG, keep=2)
    checkpoint_file.save(tmp_path, 15, TENSORS, DATA, CONFIG, keep=2)
    assert files(tmp_path) == ["checkpoint-000010.safetensors", "checkpoint-000015.safetensors"]


def test_equal_states_give_equal_files(tmp_path: Path):
    contents = {
        checkpoint_file.save(tmp_path / str(n), 3, TENSORS, DATA, CONFIG, keep=2).read_bytes() for n in range(5)
    }
    assert len(contents) == 1


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        ({**CONFIG, "seed": 2}, "seed was 1 and is 2;"),
        (
            {**CONFIG, "model": "vgg", "clip_norm": 1.0},
            'clip_norm was null and is 1.0, model was "cnn_leaf" and is "vgg";',
        ),
        ({**CONFIG, "fedavg.beta": 0.1}, "fedavg.beta was not set and is 0.1;"),
        ({key: CONFIG[key] for key in CONFIG if key != "clip_norm"}, "clip_norm was null and is not set;"),
        ({**CONFIG, **{f"x{n}": n for n in range(7)}}, "x4 was not set and is 4, and 2 more;"),
    ],
)
def test_another_configuration_is_refused_by_the_settings_that_differ(tmp_path: Path, now: dict, difference: str):
    checkpoint_file.save(tmp_path, 10, TENSORS, DATA, CONFIG, keep=2)
    with pytest.raises(UserError) as refusal:
        checkpoint_file.load(tmp_path, now)
    assert "000010.safetensors was written by a job with another configuration: " in str(refusal.value)
    assert difference in str(refusal.value)


def test_keys_of_methods_that_the_job_does_not_use_bind_nothing(tmp_path: Path):
    checkpoint_file.save(tmp_path, 10, TENSORS, DATA, {**CONFIG, "fedmd.groups": [2, 5]}, keep=2)
    for now in (CONFIG, {**CONFIG, "fedmd.groups": [3, 4]}, {**CONFIG, "moss.lr": 0.1}):
        loaded = checkpoint_file.load(tmp_path, now)
        assert loaded is not None and loaded.round == 10


def test_a_setting_that_an_older_release_had_not_is_its_default(tmp_path: Path):
    checkpoint_file.save(tmp_path, 10, TENSORS, DATA, CONFIG, keep=2)

    def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"test_on_all": False, **settings}

    loaded = checkpoint_file.load(tmp_path, {**CONFIG, "test_on_all": False}, complete=complete)
    assert loaded is not None and loaded.round == 10
    with pytest.raises(UserError, match="configuration: test_on_all was false and is true;"):
        checkpoint_file.load(tmp_path, {**CONFIG, "test_on_all": True}, complete=complete)


def test_a_damaged_file_is_refused_and_the_one_before_offered(tmp_path: Path):
    for round in (10, 20):
        checkpoint_file.save(tmp_path, round, TENSORS, DATA, CONFIG, keep=2)
    damage(tmp_path / "checkpoint-000020.safetensors")
    with pytest.raises(UserError, match=r"20.safetensors is damaged.*--resume-from 10 continues .*000010.safetensors"):
        checkpoint_file.load(tmp_path, CONFIG)
    loaded = checkpoint_file.load(tmp_path, CONFIG, 10)
    assert loaded is not None and loaded.round == 10
    with pytest.raises(UserError, match=r"no checkpoint of round 15; --resume-from 20 continues"):
        checkpoint_file.load(tmp_path, CONFIG, 15)
    damage(tmp_path / "checkpoint-000010.safetensors")
    with pytest.raises(UserError, match="no checkpoint is before it, from which the job could continue; start it anew"):
        checkpoint_file.load(tmp_path, CONFIG, 10)


def test_one_flipped_byte_anywhere_is_refused(tmp_path: Path):
    path = checkpoint_file.save(tmp_path, 10, {"w": torch.arange(3.0)}, {"n": 1}, {}, keep=1)
    content = path.read_bytes()
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        with pytest.raises(UserError, match="is damaged or no file of this program"):
            checkpoint_file.load(tmp_path, {})


def test_checkpoints_without_number_leave_no_memory_behind(tmp_path: Path):
    sizes = set()
    for digits in range(1, 200):  # each JSON is longer by one
        sizes.add(checkpoint_file.save(tmp_path, 1, {}, {"clock": "1" * digits}, CONFIG, keep=1).stat().st_size)
    assert len(sizes) == 1


def test_a_renamed_file_is_refused(tmp_path: Path):
    checkpoint_file.save(tmp_path, 10, TENSORS, DATA, CONFIG, keep=2).rename(tmp_path / "checkpoint-000030.safetensors")
    with pytest.raises(UserError, match="no checkpoint of round 30"):
        checkpoint_file.load(tmp_path, CONFIG)


def test_a_killed_write_leaves_the_old_checkpoint(tmp_path: Path):
    checkpoint_file.save(tmp_path, 10, TENSORS, DATA, CONFIG, keep=2)
    (tmp_path / ".checkpoint-000020.safetensors.1.tmp").write_bytes(b"half")
    loaded = checkpoint_file.load(tmp_path, CONFIG)
    assert loaded is not None and loaded.round == 10
    checkpoint_file.save(tmp_path, 20, TENSORS, DATA, CONFIG, keep=2)
    assert files(tmp_path) == ["checkpoint-000010.safetensors", "checkpoint-000020.safetensors"]
