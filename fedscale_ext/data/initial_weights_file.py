"""The key ``initial_weights``: which file it names, on this machine or at the Hugging Face Hub.

- a path: ``models/KEY.safetensors`` of a finished job, another safetensors file, or a torch file (``.pth``, ``.pt``)
- ``torchvision:NAME``: a file that torchvision has in its cache, named by the network (``torchvision:resnet18``: its
  default weights) or by the weights (``torchvision:ResNet18_Weights.IMAGENET1K_V1``)
- ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``: ``model.safetensors`` of a repository of the Hub
"""

import importlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedscale_ext import compat
from fedscale_ext.core.errors import UserError, one_line

TORCHVISION, HUB = "torchvision:", "hf:"
HUB_FILE = "model.safetensors"
_PART = r"\w[\w.-]{0,95}"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}(@[\w./-]{{1,200}})?")


def names_path(source: str) -> bool:
    """Whether ``initial_weights`` is the path of a file, not a name of torchvision or the Hub."""
    return not source.startswith((TORCHVISION, HUB))


def weights_file(source: str, fetch: bool = True) -> Path:
    """Return the file on this machine that ``initial_weights`` names.

    Args:
        source: The key's value.
        fetch: Whether a file of the Hub is downloaded if it is not here yet.

    Raises:
        UserError: If there is no such file, name or repository, or it is neither here nor can be downloaded.

    """
    if source.startswith(HUB):
        return _of_hub(source, fetch)
    if source.startswith(TORCHVISION):
        return _of_torchvision(source)
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(f"initial_weights names the file {source}, which does not exist")
    return path


def _of_torchvision(source: str) -> Path:
    models: Any = compat.torchvision_models()
    name = source.removeprefix(TORCHVISION)
    try:
        weights = models.get_weight(name) if "." in name else models.get_model_weights(name).DEFAULT
        url = str(weights.url)
    except (ValueError, KeyError, AttributeError, TypeError):
        raise UserError(
            f"initial_weights {source}: torchvision has no such weights; name a network, as in torchvision:resnet18, "
            "or weights, as in torchvision:ResNet18_Weights.IMAGENET1K_V1"
        ) from None
    hub: Any = importlib.import_module("torch.hub")
    path = Path(hub.get_dir(), "checkpoints", urlsplit(url).path.rpartition("/")[2])
    if not path.is_file():
        raise UserError(f"initial_weights {source}: the weights are not on this machine; download {url} to {path}, or "
                        "give the path of the file")  # fmt: skip
    return path


def _of_hub(source: str, fetch: bool) -> Path:
    name = source.removeprefix(HUB)
    if not _REPOSITORY.fullmatch(name):
        raise UserError(f"initial_weights {source}: write a repository of the Hub as hf:owner/name or "
                        "hf:owner/name@revision")  # fmt: skip
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:
        raise UserError(f"initial_weights {source} needs huggingface_hub: pip install 'fedscale_ext[hub]'") from None
    repository, _, revision = name.partition("@")
    try:
        return Path(hub.hf_hub_download(repository, HUB_FILE, revision=revision or None, local_files_only=not fetch))
    except Exception as error:  # of the Hub's own and of the network, by no common class
        raise UserError(
            f"initial_weights {source}: {HUB_FILE} of the repository is not on this machine and cannot be downloaded "
            f"({type(error).__name__}: {one_line(str(error), 120)}); check name and network, or give the path of a file"
        ) from None
