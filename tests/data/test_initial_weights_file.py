"""Which file ``initial_weights`` names: a path, torchvision's cache, the Hub; one sentence where there is none."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.initial_weights_file import names_path, weights_file


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(UserError, match="which does not exist"):
        weights_file(str(path))
    path.touch()
    assert weights_file(str(path)) == path
    assert names_path(str(path)) and not names_path("hf:a/b") and not names_path("torchvision:resnet18")


@pytest.mark.parametrize("name", ["resnet18", "ResNet18_Weights.IMAGENET1K_V1", "ResNet18_Weights.DEFAULT"])
def test_torchvisions_weights_are_those_in_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    with pytest.raises(UserError) as error:
        weights_file(f"torchvision:{name}")
    assert f"download https://download.pytorch.org/models/{path.name} to {path}" in str(error.value)
    path.parent.mkdir(parents=True)
    path.touch()
    assert weights_file(f"torchvision:{name}") == path


@pytest.mark.parametrize("name", ["resnet19", "ResNet18_Weights.V9", "Resnet18_Weights.DEFAULT", "", "os.path"])
def test_weights_that_torchvision_does_not_have_are_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=r"torchvision has no such weights; name a network"):
        weights_file(f"torchvision:{name}")


class _Hub:
    """A Hub without a network: repositories are folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[Any] = []

    def hf_hub_download(self, repository: str, name: str, *, revision: str | None, local_files_only: bool) -> str:
        self.requests.append((repository, name, revision, local_files_only))
        path = self.folder / repository / name
        if not path.is_file():
            raise ConnectionError("no network\nand a second line")
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Hub:
    fake = _Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=fake.hf_hub_download))  # type: ignore[arg-type]
    return fake


def test_a_repository_of_the_hub_gives_its_file(hub: _Hub, tmp_path: Path) -> None:
    path = tmp_path / "timm" / "resnet18.a1_in1k" / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.touch()
    assert weights_file("hf:timm/resnet18.a1_in1k") == path
    assert weights_file("hf:timm/resnet18.a1_in1k@v2", fetch=False) == path
    name = ("timm/resnet18.a1_in1k", "model.safetensors")
    assert hub.requests == [(*name, None, False), (*name, "v2", True)]


def test_without_network_there_is_one_sentence(hub: _Hub) -> None:
    with pytest.raises(UserError) as error:
        weights_file("hf:owner/name")
    sentence = str(error.value)
    assert "cannot be downloaded (ConnectionError: no network" in sentence and "\n" not in sentence


@pytest.mark.parametrize("name", ["owner", "a/b/c", "../b", "a/b@", "https://a/b", "", "a b/c"])
def test_names_of_no_repository_are_refused_unasked(hub: _Hub, name: str) -> None:
    with pytest.raises(UserError, match="write a repository of the Hub as hf:owner/name"):
        weights_file(f"hf:{name}")
    assert hub.requests == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"pip install 'fedscale_ext\[hub\]'"):
        weights_file("hf:owner/name")
