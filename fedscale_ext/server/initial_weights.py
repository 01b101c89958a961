"""The key ``initial_weights``: a job's first model starts from the weights that another job ended with.

FedTrans's Fig 9 trains each transformed model on by FedAvg from its transformed weights.
"""

from pathlib import Path

import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.metrics.models import load_model
from fedscale_ext.models.registry import skeleton


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
