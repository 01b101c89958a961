import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscale_ext.errors import UserError
from fedscale_ext.population.plain_pickle import read_plain_pickle
from fedscale_ext.population.population import load_population
from fedscale_ext.population.traces import read_availability, read_capacity, resample_capacity

GOOD = {1: {"computation": 20.0, "communication": 1500.0}, 2: {"computation": 150, "communication": 9000}}


class Runs:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran",)


class Builds:
    pass


def write(tmp_path: Path, data: Any, protocol: int = 4) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(pickle.dumps(data, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscales_pickle_is_read_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    trace = read_capacity(write(tmp_path, GOOD, protocol))
    assert trace.client_id.tolist() == [1, 2]
    assert trace.computation_ms.tolist() == [20.0, 150.0]
    assert trace.communication_kbps.tolist() == [1500.0, 9000.0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("evil", [Runs(), Builds(), np.float64(3.0), {1}, os.getcwd])
def test_a_pickle_of_anything_but_plain_data_is_refused_by_name_and_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, evil: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, {1: {"computation": evil, "communication": 1.0}}, protocol)
    with pytest.raises(UserError, match=r"opcode [A-Z_]+.* is refused"):
        read_capacity(path)
    assert not (tmp_path / "ran").exists()


def test_the_refusal_names_the_global(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"posix\.?.?mkdir|nt\.?.?mkdir"):
        read_plain_pickle(write(tmp_path, Runs(), 4))


@pytest.mark.parametrize(
    "content",
    [b"cos\nsystem\n(S'x'\ntR.", b"(S'x'\nios\nsystem\n.", b"\x80\x02\x82\x01.", b"Pid\n.", b"\x80\x04\x95", b"", b"x"],
)
def test_hand_made_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(UserError):
        read_plain_pickle(path)


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read_capacity(path)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "holds no device"),
        ([1, 2], "not a list"),
        ({1: {"computation": 1.0}}, "device 1 has no 'communication'"),
        ({1: {"computation": "fast", "communication": 1.0}}, "no number as 'computation'"),
        ({1: 3.0}, "no number as 'computation'"),
        ({"a": {"computation": 1.0, "communication": 1.0}}, "device 'a'"),
        ({7: {"computation": float("nan"), "communication": 1.0}}, "computation of device 7 is nan"),
        ({7: {"computation": 1.0, "communication": float("inf")}}, "communication of device 7 is inf"),
        ({7: {"computation": 0.0, "communication": 1.0}}, "computation of device 7 is 0"),
        ({7: {"computation": 1.0, "communication": -3.0}}, "communication of device 7 is -3"),
    ],
)
def test_bad_devices_are_named(tmp_path: Path, data: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        read_capacity(write(tmp_path, data))


def test_csv_and_npz_are_read_and_their_faults_named(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    path.write_text("client_id,computation,communication\n1,20,1500\n2,150,9000\n")
    assert read_capacity(path).computation_ms.tolist() == [20.0, 150.0]
    path.write_text("client_id,computation\n1,20\n")
    with pytest.raises(UserError, match="no column 'communication'"):
        read_capacity(path)
    path.write_text("client_id,computation,communication\n1,20,1500\n2,slow,9000\n")
    with pytest.raises(UserError, match="line 3"):
        read_capacity(path)
    npz = tmp_path / "devices.npz"
    np.savez(npz, client_id=[1, 2], computation=[20.0, 150.0], communication=[1500.0, 9000.0])
    assert read_capacity(npz).communication_kbps.tolist() == [1500.0, 9000.0]
    np.savez(npz, client_id=[1, 2], computation=[20.0, 150.0])
    with pytest.raises(UserError, match="communication"):
        read_capacity(npz)
    np.savez(npz, client_id=[1, 2], computation=[20.0], communication=[1.0])
    with pytest.raises(UserError, match="one length"):
        read_capacity(npz)
    np.savez(npz, client_id=[1], computation=np.array([Runs()], dtype=object), communication=[1.0])
    with pytest.raises(UserError, match="not an npz file of plain arrays"):
        read_capacity(npz)
    npz.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UserError, match="not an npz file"):
        read_capacity(npz)


def test_a_missing_trace_names_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="device_conf_file: resampled"):
        read_capacity(tmp_path / "none")
    with pytest.raises(UserError, match="device_avail_file: null"):
        read_availability(tmp_path / "none")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"active": [1], "finish_time": 5}, "no 'inactive'"),
        ({"active": [1, 2], "inactive": [3], "finish_time": 5}, "2 times 'active' but 1"),
        ({"active": [1], "inactive": [2], "finish_time": 0}, "finish_time"),
        ({"active": [float("nan")], "inactive": [2], "finish_time": 9}, "not finite"),
        ({"active": ["a"], "inactive": [2], "finish_time": 9}, "not numbers"),
        (3, "not numbers"),
    ],
)
def test_bad_availability_is_named(tmp_path: Path, entry: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_availability(write(tmp_path, {4: entry}))


def test_the_resampled_population_has_the_published_marginals() -> None:
    drawn = resample_capacity(200_000, seed=1)
    levels = np.array([0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100]) / 100
    published = [15, 15, 19, 21, 24, 41, 148, 174, 189, 193, 199]
    assert np.allclose(np.quantile(drawn.computation_ms, levels), published, atol=3)
    published = [1016.9, 1062.3, 1393.2, 1817.6, 2855.5, 6074.7, 13882.4, 32545.6, 51663.0, 100206.6, 204056.7]
    assert np.allclose(np.quantile(drawn.communication_kbps, levels), published, rtol=0.02)
    assert abs(np.corrcoef(drawn.computation_ms, drawn.communication_kbps)[0, 1]) < 0.01


def test_the_resampled_population_is_like_the_trace(shared_data: Path) -> None:
    trace = read_capacity(shared_data / "fedscale_device_capacity_51496.npz")
    drawn = resample_capacity(51_496, seed=2)
    assert drawn.computation_ms.mean() == pytest.approx(trace.computation_ms.mean(), rel=0.02)
    assert drawn.computation_ms.std() == pytest.approx(trace.computation_ms.std(), rel=0.02)
    assert set(drawn.computation_ms) <= set(trace.computation_ms)
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(drawn.communication_kbps, level) == pytest.approx(
            np.quantile(trace.communication_kbps, level), rel=0.05
        )


def test_every_client_has_a_device_of_the_trace_also_the_last(tmp_path: Path) -> None:
    # FedScale looks up (n + 1) mod len: the last client gets id 0, which is missing, and 1 ms (defect 6)
    trace = {key: {"computation": 10.0 * key, "communication": 100.0 * key} for key in (1, 2, 3)}
    population = load_population(5, str(write(tmp_path, trace)), None, seed=1)
    assert population.computation_ms.tolist() == [10.0, 20.0, 30.0, 10.0, 20.0]
    assert population.source.startswith("traced")
    assert load_population(5, "resampled", None, seed=1).source.startswith("resampled")


def test_half_a_million_devices_take_little_memory() -> None:
    population = load_population(500_000, "resampled", None, seed=1)
    assert population.size == 500_000
    assert population.computation_ms.nbytes + population.communication_kbps.nbytes < 20e6
