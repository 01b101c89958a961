"""A job that starts from another one's weights; refused in one sentence where they are not its model's."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from methods.harness import CLASSES, SHAPE, equal, server

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.model_files import load_model, save_models
from fedscale_ext.server.initial_weights import saved_weights
from fedscale_ext.submodels.model_pool import ModelPool

SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)


def saved(folder: Path, spec: models.ModelSpec = SPEC, **changes: torch.Tensor) -> str:
    """The file of a model with random weights that are not those of the job's seed."""
    pool = ModelPool()
    pool.add("m3", spec, {**models.initial_state(spec, 99), **changes})
    return str(save_models(folder, pool)[0])


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedtrans", "heterofl", "fluid"])
def test_the_first_model_has_these_weights(tmp_path: Path, method: str) -> None:
    path = saved(tmp_path)
    aggregator = server(method_class(method), method, initial_weights=path)
    assert equal(next(iter(aggregator.pool)).state, load_model(Path(path))[1])
    assert not equal(next(iter(server(method_class(method), method).pool)).state, load_model(Path(path))[1])


@pytest.mark.parametrize("method", ["lotteryfl", "splitmix"])
def test_a_method_that_goes_back_to_random_weights_or_has_several_models_does_not_take_them(
    tmp_path: Path, method: str
) -> None:
    aggregator = server(method_class(method), method, initial_weights=saved(tmp_path))
    assert not aggregator.weights_given  # the job is refused then
    plain = server(method_class(method), method)
    assert equal(next(iter(aggregator.pool)).state, next(iter(plain.pool)).state)


def test_the_key_decides_a_jobs_result(tmp_path: Path) -> None:
    assert make_config({}, {"initial_weights": "m3.safetensors"}).decisive() != make_config({}, {}).decisive()


@pytest.mark.parametrize(("change", "why"), [
    ({"head.linear.bias": torch.zeros(CLASSES + 1)}, "does not fit the model"),
    ({"head.linear.bias": torch.zeros(CLASSES, dtype=torch.float64)}, "does not fit the model"),
    ({"more": torch.zeros(1)}, "does not fit the model"),
    ({"head.linear.bias": torch.full((CLASSES,), torch.nan)}, "not finite"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, torch.Tensor], why: str) -> None:
    with pytest.raises(UserError, match=why):
        saved_weights(saved(tmp_path, **change), SPEC)


def test_another_model_a_damaged_file_and_none_are_refused(tmp_path: Path) -> None:
    path = Path(saved(tmp_path, models.named_spec("cnn_small", SHAPE, CLASSES)))
    with pytest.raises(UserError, match="does not fit the model"):
        saved_weights(str(path), SPEC)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="damaged"):
        saved_weights(str(path), SPEC)
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        saved_weights(str(path), SPEC)


def test_pretrained_weights_start_a_job_but_for_the_layer_of_other_classes(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = models.named_spec("cnn_small", (1, 28, 28), 5)
    weights = models.initial_state(spec, 99)
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    hub = SimpleNamespace(hf_hub_download=lambda *_, **__: str(tmp_path / "model.safetensors"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
    # steps so small that weights stay where they were
    still = {"model": "cnn_small", "rounds": 1, "learning_rate": 1e-12, "min_learning_rate": 1e-12}
    states, notices = {}, {}
    for name, source in {"file": str(tmp_path / "model.safetensors"), "hub": "hf:owner/name", "random": None}.items():
        done = fedscale_ext.run(job_file, job_name=name, initial_weights=source, **still)
        states[name] = load_model(Path(done["log_dir"], "models", "global.safetensors"))[1]
        notices[name] = [each for each in done["notices"] if "initial_weights" in each]
        assert bool(done["named_files"].get("initial_weights")) == (source is not None)
    other = [name for name, tensor in weights.items() if tensor.shape != states["random"][name].shape]
    assert other and all(name in notices["file"][0] for name in other) and "hf:owner/name" in notices["hub"][0]
    for name, tensor in states["file"].items():
        begun = states["random"][name] if name in other else weights[name]
        torch.testing.assert_close(tensor, begun, atol=1e-6, rtol=0)
        assert torch.equal(tensor, states["hub"][name])


def test_a_repository_that_cannot_be_had_ends_the_job_before_it_starts(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: Any, **__: Any) -> str:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=offline))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"hf:owner/name: .* cannot be downloaded \(ConnectionError: no network\)"):
        fedscale_ext.run(job_file, model="cnn_small", rounds=1, initial_weights="hf:owner/name")
    assert not (job_file.parent / "logs").exists()


def test_a_grown_model_is_trained_on_by_fedavg_and_nobody_else_takes_its_weights(job_file: Path) -> None:
    grow = {"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9}
    done = fedscale_ext.run(job_file, method="fedtrans", job_name="grown", rounds=3, **grow)
    key = done["models"][-1]["key"]
    assert key != "m0"
    files = Path(done["log_dir"], "models")
    on: dict[str, Any] = {"model": str(files / f"{key}.json"), "initial_weights": str(files / f"{key}.safetensors")}
    # steps so small that weights stay where they were
    tuned = fedscale_ext.run(job_file, job_name="tuned", rounds=1, learning_rate=1e-12, min_learning_rate=1e-12, **on)
    after = load_model(Path(tuned["log_dir"], "models", "global.safetensors"))[1]
    for name, before in load_model(Path(on["initial_weights"]))[1].items():
        if name in models.parameter_names(load_model(Path(on["initial_weights"]))[0]):
            torch.testing.assert_close(after[name], before, atol=1e-6, rtol=0)
    with pytest.raises(UserError, match="splitmix does not start from the weights of one"):
        fedscale_ext.run(job_file, job_name="mixed", method="splitmix", rounds=1, **on)
    with pytest.raises(UserError, match="which does not exist"):
        fedscale_ext.run(job_file, job_name="gone", rounds=1, initial_weights="gone.safetensors")
