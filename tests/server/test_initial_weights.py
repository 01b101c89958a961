"""A job that starts from another one's weights or pretrained ones; one sentence where they do not fit its model."""

import pickle
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
from fedscale_ext.server.initial_weights import fitted, read_weights, saved_weights
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
        saved_weights(Path(saved(tmp_path, **change)), SPEC)


def test_another_model_a_damaged_file_and_none_are_refused(tmp_path: Path) -> None:
    path = Path(saved(tmp_path, models.named_spec("cnn_small", SHAPE, CLASSES)))
    with pytest.raises(UserError, match="does not fit the model"):
        saved_weights(path, SPEC)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="damaged"):
        saved_weights(path, SPEC)
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        saved_weights(path, SPEC)


def start(classes: int = 10, seed: int = 1) -> dict[str, torch.Tensor]:
    return models.initial_state(models.named_spec("cnn_small", (1, 28, 28), classes), seed)


@pytest.mark.parametrize("ending", ["safetensors", "pth", "pt", "bin"])
def test_files_of_tensors_are_read(tmp_path: Path, ending: str) -> None:
    path, state = tmp_path / f"weights.{ending}", start()
    if ending == "safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save({"state_dict": state} if ending == "pt" else state, path)
    assert equal(read_weights(path), state)


class _Bomb:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none.safetensors", None, "cannot be read"),
        ("text.safetensors", b"text", "is no file of weights"),
        ("text.pth", b"text", "is no file of weights"),
        ("bomb.pth", pickle.dumps(_Bomb(), protocol=2), "is no file of weights"),
    ],
)
def test_other_files_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, why: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=why) as error:
        read_weights(tmp_path / name)
    assert "\n" not in str(error.value) and capsys.readouterr().out == ""


def test_a_torch_file_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "a.pth")
    with pytest.raises(UserError, match="something other than tensors by name"):
        read_weights(tmp_path / "a.pth")


def test_only_the_files_tensors_are_counted() -> None:
    spec = models.named_spec("resnet_tiny", (3, 32, 32), 10)
    weights, before = (models.initial_state(spec, seed) for seed in (2, 1))
    weights = {name: tensor for name, tensor in weights.items() if not name.endswith("num_batches_tracked")}
    result = fitted("w.pth", weights, before)
    assert len(weights) < len(result.state)
    assert result.sentence("w.pth").startswith(f"{len(weights)} of {len(result.state)} tensors start from")


def test_the_layer_of_other_classes_keeps_its_start() -> None:
    weights, before = start(classes=7, seed=2), start()
    result = fitted("w.safetensors", weights, before)
    other = [name for name in before if weights[name].shape != before[name].shape]
    assert result.unfit == other and 0 < len(other) <= 2
    for name, tensor in result.state.items():
        assert torch.equal(tensor, before[name] if name in other else weights[name]), name
    assert list(result.state) == list(before)
    sentence = result.sentence("w.safetensors")
    assert f"{len(before) - len(other)} of {len(before)} tensors start from" in sentence and other[0] in sentence


def test_types_of_numbers_are_the_models_and_names_beyond_are_counted() -> None:
    before = start()
    weights = {name: tensor.half() for name, tensor in start(seed=2).items()}
    result = fitted("w", {**weights, "more": torch.zeros(1)}, before)
    assert all(result.state[name].dtype == before[name].dtype for name in before)
    assert result.unused == ["more"] and "1 tensors of the file are not the model's" in result.sentence("w")


def test_weights_of_another_network_are_refused() -> None:
    before, weights = start(), start(seed=2)
    first = next(iter(before))
    with pytest.raises(UserError, match=rf"does not fit the model: it lacks {first}, and has"):
        fitted("w", {name: tensor for name, tensor in weights.items() if name != first}, before)
    with pytest.raises(UserError, match="more than half of the model"):
        fitted("w", {name: torch.zeros(3, 3, 3) for name in weights}, before)
    with pytest.raises(UserError, match="not finite"):
        fitted("w", {**weights, first: torch.full_like(weights[first], torch.nan)}, before)


def test_a_count_of_batches_may_be_missing() -> None:
    spec = models.named_spec("resnet18", (3, 32, 32), 10)
    before, weights = models.initial_state(spec, 1), models.initial_state(spec, 2)
    counts = [name for name in before if name.endswith("num_batches_tracked")]
    result = fitted("w", {name: tensor for name, tensor in weights.items() if name not in counts}, before)
    assert all(torch.equal(result.state[name], before[name]) for name in counts)


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
