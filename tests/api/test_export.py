"""A trained model leaves as an ONNX file that computes what the job's network computes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.api import export as exporting
from fedscale_ext.api.export import export
from fedscale_ext.cli.export import export as export_command
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State, personal_version
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.report.job.loading import LoadedJob, load_job

KEYS = {"model": "cnn_small", "rounds": 1, "progress": False}


def trained(job_file: Path, **keys: object) -> LoadedJob:
    return load_job(fedscale_ext.run(job_file, **{**KEYS, **keys}).path)


@pytest.mark.second_tier
@pytest.mark.parametrize("mask", [False, True])
def test_the_file_gets_right_what_the_job_got_right(job_file: Path, tmp_path: Path, mask: bool) -> None:
    job = trained(job_file, mask_test=mask)
    if mask:
        job.evaluation.correct[:] = 0  # a file never masks, so what is right by masked logits is no matter
    done = export(job, tmp_path / "a" / "m.onnx")
    assert done.why_noise == "" and done.model == "global" and done.difference < 1e-5
    assert done.right == pytest.approx(done.reached) and done.samples == job.evaluation.count.sum()
    session = onnxruntime.InferenceSession(str(done.path))
    (model_input,), (model_output,) = session.get_inputs(), session.get_outputs()
    assert (model_input.name, model_output.name, model_input.shape[1:], model_output.shape[1:]) == (
        "samples",
        "logits",
        [1, 28, 28],
        [62],
    )
    assert len(session.run(None, {"samples": np.zeros((7, 1, 28, 28), np.float32)})[0]) == 7
    about = {each.key: each.value for each in onnx.load(str(done.path)).metadata_props}
    assert len(json.loads(about["labels"])) == 62 and (about["model"], about["job"]) == ("global", "tiny")


@pytest.mark.second_tier
@pytest.mark.parametrize("mask", [False, True])
def test_the_command_says_which_accuracy_the_last_test_had(
    job_file: Path, tmp_path: Path, mask: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = trained(job_file, mask_test=mask)
    capsys.readouterr()
    export_command(str(job.folder), tmp_path / "m.onnx")
    said = capsys.readouterr().out
    assert ("; the job's last test without mask_test had " in said) == mask
    assert ("; the job's last test had " in said) != mask


@pytest.mark.second_tier
def test_without_the_data_noise_tells_whether_it_computes_the_same(job_file: Path, tmp_path: Path) -> None:
    job = trained(job_file)
    job.header["config"]["data_dir"] = str(tmp_path / "gone")
    done = export(job, tmp_path / "m.onnx")
    assert (
        done.why_noise == "the data of the job are not there"
        and done.right is done.reached is None
        and done.difference < 1e-5
    )


@pytest.mark.second_tier
def test_a_network_with_exits_answers_with_its_deepest(job_file: Path, tmp_path: Path) -> None:
    job = trained(job_file, method="hypemefed", model="multi_exit_cnn3", **{"hypemefed.epochs": 1})
    done = export(job, tmp_path / "m.onnx", model=str(job.summary["models"][-1]["key"]))
    assert done.difference < 1e-5


@pytest.mark.second_tier
def test_a_file_that_computes_something_else_is_not_written(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, onnx_of = trained(job_file), exporting._onnx

    def changed(network, shape, about):  # type: ignore[no-untyped-def]
        content = onnx_of(network, shape, about)
        network.std.mul_(2)
        return content

    monkeypatch.setattr(exporting, "_onnx", changed)
    with pytest.raises(UserError, match="computes something else than global: logits differ by"):
        export(job, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_the_model_is_named_where_there_are_several(job_file: Path, tmp_path: Path) -> None:
    job = trained(job_file, method="heterofl")
    first = str(job.summary["models"][0]["key"])
    with pytest.raises(UserError, match=rf"has \d models: name one by --model or a client by --client; it has {first}"):
        export(job, tmp_path / "m.onnx")
    with pytest.raises(UserError, match="has no model 'zz'"):
        export(job, tmp_path / "m.onnx", model="zz")
    with pytest.raises(UserError, match="tells of no client 'nobody'"):
        export(job, tmp_path / "m.onnx", client="nobody")
    name = job.clients.names[0]
    served = job.evaluation.serve
    assert exporting._chosen(job, None, name) == served[0]
    for key, sentence in ((personal_version(first), "has a personal model"), ("a+b", "an ensemble of a, b")):
        job.__dict__["evaluation"] = replace(job.evaluation, serve=(key, *served[1:]))  # a cached property
        with pytest.raises(UserError, match=sentence):
            exporting._chosen(job, None, name)


def test_a_model_that_only_began_the_clients_own_is_not_written(job_file: Path, tmp_path: Path) -> None:
    job = trained(job_file, method="local")
    (key,) = (str(each["key"]) for each in job.summary["models"])
    for choice in ({"model": key}, {}):
        with pytest.raises(UserError, match=f"model {key} of tiny has its initial weights: clients keep models"):
            export(job, tmp_path / "m.onnx", **choice)
    with pytest.raises(UserError, match=r"has a personal model, .*: `fedscale predict` uses it"):
        export(job, tmp_path / "m.onnx", client=job.clients.names[0])


@pytest.mark.second_tier
def test_a_model_without_tested_clients_says_so(job_file: Path, tmp_path: Path) -> None:
    job = trained(job_file)
    job.__dict__["evaluation"] = replace(job.evaluation, serve=("other",) * len(job.evaluation.serve))
    done = export(job, tmp_path / "m.onnx", model="global")
    assert done.why_noise == "no client with test samples is served this model alone" and done.right is None


def test_packages_that_are_missing_are_named(job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"pip install 'fedscale_ext\[export\]'"):
        export(trained(job_file), tmp_path / "m.onnx")


@pytest.mark.second_tier
@pytest.mark.parametrize(("method", "together"), [("hypemefed", False), ("depthfl", True)])
def test_a_network_with_exits_answers_as_the_clients_were_tested(
    job_file: Path, tmp_path: Path, method: str, together: bool
) -> None:
    job = trained(job_file, method=method, model="multi_exit_cnn3")
    served = dict(zip(job.clients.names, job.evaluation.serve, strict=True))
    name, key = next((name, key) for name, key in served.items() if key == str(job.summary["models"][0]["key"]))
    done = export(job, tmp_path / "m.onnx", client=name)
    assert done.why_noise == "" and done.model == key and done.right == pytest.approx(done.reached)
    session = onnxruntime.InferenceSession(str(done.path))
    (answered,) = session.get_outputs()
    assert len(answered.shape) == 2 and answered.shape[1] == 62

    pixels = np.random.default_rng(1).integers(0, 256, (5, 1, 28, 28)).astype(np.float32)
    exits = logits_of_exits(load_model(job.folder / "models" / f"{key}.safetensors"), (pixels / 255 - 0.1307) / 0.3081)
    assert len(exits) > 1
    expected = torch.stack(exits).softmax(2).mean(0).log() if together else exits[-1]
    assert np.allclose(session.run(None, {"samples": pixels})[0], expected, atol=1e-4)


def logits_of_exits(model: tuple[ModelSpec, State], x: np.ndarray) -> list[torch.Tensor]:
    """The logits of each exit, [n, classes], shallowest first."""
    spec, state = model
    module = models.build(spec.replace(predict="mean")).eval()
    module.load_state_dict(state)
    logits: list[torch.Tensor] = []
    for name, part in module.named_children():
        if name.startswith("exit"):
            part.register_forward_hook(lambda _, __, output: logits.append(output))
    with torch.no_grad():
        module(torch.from_numpy(x))
    return logits
