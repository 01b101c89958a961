"""Weights from elsewhere go into a model whose tensors have the same names."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.models.pretrained import fitted, read_weights

SPEC = models.named_spec("cnn_small", (1, 28, 28), 10)


def start(classes: int = 10, seed: int = 1) -> dict[str, torch.Tensor]:
    return models.initial_state(models.named_spec("cnn_small", (1, 28, 28), classes), seed)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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
