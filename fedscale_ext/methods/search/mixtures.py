"""What methods share that search a supernet as a mixture of all of its operators (FedNAS, SPIDER)."""

from fedscale_ext.method import ModelSpec, UserError, models
from fedscale_ext.models.supernet.family import mixed


def mixture_of(spec: ModelSpec, how: str, method: str, model: str) -> ModelSpec:
    """The supernet as a mixture of all of its operators.

    Args:
        spec: Spec of the configuration's model.
        how: How operators are mixed, "alphas" or "equal".
        method: Name of the method, for messages.
        model: Name of the model, for messages.

    Returns:
        Spec of the mixture.

    Raises:
        UserError: The model is no supernet, or reads texts at every position.

    """
    if not models.searched(spec):
        raise UserError(
            f"method {method} needs a supernet, and model {model} is none; choose one such as cnn_l, or a spec file of "
            "the family supernet"
        )
    if dict(spec.fields).get("readout") == "all":
        raise UserError(
            f"method {method} learns what follows the last symbol of a text, and model {model} reads all: take one "
            "with readout last, such as rnn"
        )
    return mixed(spec, how)
