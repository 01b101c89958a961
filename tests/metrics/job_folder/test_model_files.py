import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from synthetic_job import models

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.model_files import load_model, save_models
from fedscale_ext.util.tensor_files import write_tensors


def test_models_come_back_with_their_specs(tmp_path: Path):
    paths = save_models(tmp_path, models())
    assert paths == [tmp_path / "models" / "m0.safetensors", tmp_path / "models" / "m1.safetensors"]
    for path, model in zip(paths, models(), strict=True):
        spec, state = load_model(path)
        assert spec == model.spec and hash(spec) == hash(model.spec)
        assert state.keys() == model.state.keys()
        for name, tensor in model.state.items():
            assert torch.equal(state[name], tensor) and state[name].dtype == tensor.dtype
    with safe_open(str(paths[1]), "pt") as file:
        assert json.loads(file.metadata()["spec"]) == models()[1].spec.to_json()
    assert json.loads(paths[1].with_suffix(".json").read_text()) == models()[1].spec.to_json()


def test_keys_that_no_file_can_be_called(tmp_path: Path):
    model = models()[0]
    for key in ("../out", "a/b", "level 0.5", ".."):
        model.key = key
        (path,) = save_models(tmp_path, [model])
        assert path.resolve().parent == (tmp_path / "models").resolve()
        assert load_model(path)[0] == model.spec


def test_the_folder_holds_only_the_models_given(tmp_path: Path):
    for pool in (models(), models()[1:]):
        paths = save_models(tmp_path, pool)
        specs = [path.with_suffix(".json") for path in paths]
        assert sorted((tmp_path / "models").iterdir()) == sorted([*paths, *specs])


@pytest.mark.parametrize("metadata", [{}, {"spec": "no json"}, {"spec": "[]"}, {"spec": '{"family": "toy"}'}])
def test_tensors_without_a_spec_are_refused(tmp_path: Path, metadata: dict[str, str]):
    write_tensors(tmp_path / "t", {"a": torch.zeros(1)}, metadata)
    with pytest.raises(UserError, match="no model spec"):
        load_model(tmp_path / "t")


def test_damage_is_refused(tmp_path: Path):
    (path,) = save_models(tmp_path, models()[:1])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"m0.safetensors is damaged.*sha256"):
        load_model(path)
