"""The key ``initial_weights``: a job's first model starts from given weights.

``data/initial_weights_file.py`` has which file the key names. It holds the weights that another job ended with, which
must be of the same model: FedTrans's Fig 9 trains each transformed model on by FedAvg from its transformed weights. Or
it holds pretrained weights, for tensors of the same names. Tensors of another shape keep their start then: those of
other classes (the last layer) or other channels (the first convolution). Every other tensor must be in the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.data.initial_weights_file import weights_file
from fedscale_ext.data.wording import listed
from fedscale_ext.metrics.job_folder.model_files import is_model_file, load_model
from fedscale_ext.models.registry import skeleton
from fedscale_ext.util.reading import open_plain

_TORCH_FILES = (".pth", ".pt", ".bin")
_LEAST = 0.5  # of a model's parameters, that a file must have
_NAMED = 4  # tensors that a sentence names


def starting_weights(source: str, spec: ModelSpec, start: Callable[[], State], notice: Callable[[str], None]) -> State:
    """Return the weights that a job's first model starts from.

    Args:
        source: The key's value.
        spec: The model's.
        start: Makes the random state of the job's seed, which pretrained weights of other classes leave in part.
        notice: Tells whoever watches the job what was taken from pretrained weights.

    Raises:
        UserError: If the file is missing, damaged or of another model, or its numbers are not finite.

    """
    path = weights_file(source)
    if is_model_file(path):
        return saved_weights(path, spec)
    result = fitted(source, read_weights(path), start())
    notice(result.sentence(source))
    return result.state


def saved_weights(path: Path, spec: ModelSpec) -> State:
    """The state of ``models/KEY.safetensors`` of a finished job, for a model of ``spec``.

    UserError where the file is missing, damaged or of another model, or where its numbers are not finite.
    """
    saved_spec, state = load_model(path)
    template = skeleton(spec).state_dict()
    fits = state.keys() == template.keys() and all(
        (tensor.shape, tensor.dtype) == (template[name].shape, template[name].dtype) for name, tensor in state.items()
    )
    if saved_spec != spec or not fits:
        raise UserError(
            f"initial_weights {path} does not fit the model that the job starts from: it is of another one; "
            "give the .json beside it as model"
        )
    if not all(bool(torch.isfinite(tensor).all()) for tensor in state.values()):
        raise UserError(f"initial_weights {path} holds numbers that are not finite: that job's training diverged")
    return {name: state[name] for name in template}


@dataclass(frozen=True)
class Fitted:
    """A model's state with weights of a file.

    Attributes:
        state: The state.
        taken: Number of tensors that are the file's.
        unfit: Names of tensors that start at random, since the file's have another shape.
        unused: Names in the file that the model does not have.

    """

    state: State
    taken: int
    unfit: Sequence[str]
    unused: Sequence[str]

    def sentence(self, source: str) -> str:
        """Describe what the model took from the file, for a job's notice."""
        unfit = f"; {_listed(self.unfit)} of another shape start at random" if self.unfit else ""
        unused = f"; {len(self.unused)} tensors of the file are not the model's" if self.unused else ""
        return f"{self.taken} of {len(self.state)} tensors start from initial_weights {source}{unfit}{unused}"


def read_weights(path: Path) -> State:
    """Read a safetensors file, or a torch file of tensors by name; UserError for anything else.

    A torch file is read by torch's restricted reader, which builds only tensors and containers.
    """
    try:
        with open_plain(path) as file:
            if path.suffix.lower() in _TORCH_FILES:
                state = torch.load(file, map_location="cpu", weights_only=True)
            else:
                state = safetensors.torch.load(file.read())
    except OSError as error:
        raise UserError(f"initial_weights {path} cannot be read: {error.strerror}") from None
    except Exception as error:  # torch's reader raises many kinds for what is no such file
        raise UserError(f"initial_weights {path} is no file of weights: {one_line(str(error), 120)}") from None
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(each, torch.Tensor) for each in state.values()):
        raise UserError(f"initial_weights {path} holds something other than tensors by name; save a state_dict")
    return {str(name): tensor for name, tensor in state.items()}


def fitted(source: str, weights: State, start: State) -> Fitted:
    """Put weights into a model.

    Args:
        source: The value of ``initial_weights``, for sentences.
        weights: Tensors of the file.
        start: The model's state before, from which tensors of another shape are kept.

    Raises:
        UserError: If the file lacks tensors of the model, has less than half of its parameters, or holds numbers that
            are not finite.

    """
    missing = [name for name in start if name not in weights and not name.endswith("num_batches_tracked")]
    if missing:
        raise UserError(f"initial_weights {source} does not fit the model: it lacks {_listed(missing)}, and has "
                        f"{_listed(list(weights))}; give weights of the same network as model")  # fmt: skip
    unfit = [name for name in start if name in weights and weights[name].shape != start[name].shape]
    taken = [name for name in start if name in weights and name not in unfit]
    size = sum(start[name].numel() for name in taken)
    if size < _LEAST * sum(tensor.numel() for tensor in start.values()):
        raise UserError(f"initial_weights {source} does not fit the model: {_listed(unfit)} have another shape, which "
                        "is more than half of the model")  # fmt: skip
    state = {name: weights[name].to(start[name].dtype) if name in taken else start[name] for name in start}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in state.values()):
        raise UserError(f"initial_weights {source} holds numbers that are not finite")
    return Fitted(state, len(taken), unfit, [name for name in weights if name not in start])


def _listed(names: Sequence[str]) -> str:
    return listed([name[:60] for name in names], _NAMED)
