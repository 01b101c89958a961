"""The key ``initial_weights``: a job's first model starts from given weights.

They are those that another job ended with, or pretrained ones (``models/pretrained.py``). FedTrans's Fig 9 trains each
transformed model on by FedAvg from its transformed weights.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.data.weights_files import weights_file
from fedscale_ext.metrics.job_folder.model_files import is_model_file, load_model
from fedscale_ext.models.pretrained import fitted, read_weights
from fedscale_ext.models.registry import skeleton


def starting_weights(given: str, spec: ModelSpec, start: Callable[[], State], notice: Callable[[str], None]) -> State:
    """Return the weights that a job's first model starts from.

    Args:
        given: The key's value (:func:`fedscale_ext.data.weights_files.weights_file`).
        spec: The model's.
        start: Makes the random state of the job's seed, which pretrained weights of other classes leave in part.
        notice: Tells whoever watches the job what was taken from pretrained weights.

    Raises:
        UserError: If the file is missing, damaged or of another model, or its numbers are not finite.

    """
    path = weights_file(given)
    if is_model_file(path):
        return saved_weights(str(path), spec)
    result = fitted(given, read_weights(path), start())
    notice(result.sentence(given))
    return result.state


def saved_weights(given: str, spec: ModelSpec) -> State:
    """The state of ``models/KEY.safetensors`` of a finished job, for a model of ``spec``.

    UserError where the file is missing, damaged or of another model, or where its numbers are not finite.
    """
    path = Path(given).expanduser()
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
