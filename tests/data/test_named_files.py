"""Digests of the files that settings name."""

import hashlib
import os

import pytest

from fedscale_ext.config.job_config import make_config
from fedscale_ext.data.named_files import differing_files, file_digests


def test_files_that_decide_the_result_are_digested_by_their_settings(tmp_path):
    names = ("boards.csv", "online.csv", "m.json", "small.json", "a.json", "b.json", "w.safetensors")
    path = {name: str(tmp_path / name) for name in names}
    for name in names:
        (tmp_path / name).write_text(name)
    keys = {"method": "moss", "model": path["m.json"], "capacity_model": path["small.json"],
            "device_conf_file": path["boards.csv"], "device_avail_file": path["online.csv"],
            "initial_weights": path["w.safetensors"], "moss.types": [path["a.json"], "lenet_6k", path["b.json"]],
            "fedmd.types": [path["a.json"]]}  # fmt: skip
    digests = file_digests(make_config({}, keys))
    digest = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    assert digests == {
        "device_conf_file": {path["boards.csv"]: digest["boards.csv"]},
        "device_avail_file": {path["online.csv"]: digest["online.csv"]},
        "initial_weights": {path["w.safetensors"]: digest["w.safetensors"]},
        "model": {path["m.json"]: digest["m.json"]},
        "capacity_model": {path["small.json"]: digest["small.json"]},
        "moss.types": {path[name]: digest[name] for name in ("a.json", "b.json")},
    }


@pytest.mark.parametrize("keys", [{}, {"device_avail_file": "resampled", "model": "resnet18"}])
def test_settings_without_files_have_no_digests(keys):
    assert file_digests(make_config({}, keys)) == {}


def test_a_file_that_cannot_be_read_has_no_digest(tmp_path):
    assert file_digests(make_config({}, {"device_conf_file": str(tmp_path / "none.csv")})) == {}
    assert file_digests(make_config({}, {"public_dir": str(tmp_path / "none")})) == {}


def test_the_folder_of_public_data_is_digested_with_all_its_files_but_the_cache(tmp_path):
    config = make_config({}, {"public_dir": str(tmp_path)})
    samples, mapping = tmp_path / "samples.npz", tmp_path / "client_data_mapping" / "train.csv"
    mapping.parent.mkdir()
    samples.write_text("pixels")
    mapping.write_text("clients")

    def digest():
        (of_key,) = file_digests(config)["public_dir"].values()
        return of_key

    first = digest()
    (tmp_path / ".fedscale_ext_cache").mkdir()
    (tmp_path / ".fedscale_ext_cache" / "decoded.npy").write_text("decoded")
    assert digest() == first
    samples.write_text("others")
    assert digest() != first
    samples.write_text("pixels")
    assert digest() == first
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("a name that is not UTF-8")
    assert digest() != first
    mapping.rename(mapping.with_name("test.csv"))
    assert digest() != first


def test_files_differ_where_two_jobs_have_other_contents_of_one_path():
    first = {"model": {"m.json": "1"}, "moss.types": {"a.json": "1", "b.json": "1"}}
    assert (
        differing_files() == differing_files(first) == differing_files(first, first) == differing_files({}, first) == []
    )
    assert differing_files(first, {"model": {"n.json": "2"}, "capacity_model": {"m.json": "2"}}) == []
    assert differing_files(first, first, {"moss.types": {"a.json": "1", "b.json": "2"}}) == ["moss.types b.json"]
