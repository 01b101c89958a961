"""FedScale's result of a client's training."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import trained_on


def moving_loss(losses: list[float], first_epoch: int, decay: float) -> float:
    """Return FedScale's training loss: the first step's, then its moving average over the first epoch."""
    average = losses[0]
    for loss in losses[1:first_epoch]:
        average = (1.0 - decay) * average + decay * loss
    return average


def result(conf: ClientConfig, samples: int, losses: Sequence[Tensor]) -> dict[str, Any]:
    """Return FedScale's result without the trained state.

    Args:
        conf: The client's settings.
        samples: Number of the client's samples, with those that it holds out.
        losses: Losses [B] of each step's samples.

    Returns:
        client_id, moving_loss, trained_size, success, utility and wall_duration. The utility is Oort's (Lai et al.,
        OSDI 2021, section 4.2): the samples that the steps can see, times the root of the mean squared loss of all
        steps' samples. FedScale's client takes the last batch's.

    Raises:
        FloatingPointError: If a step's mean loss is not finite.

    """
    sizes = list(map(len, losses))
    padded = pad_sequence(list(losses), batch_first=True)  # [steps, largest batch]
    means = (padded.sum(1) / padded.new_tensor(sizes)).tolist()
    if not all(map(math.isfinite, means)):
        raise FloatingPointError(f"the loss is not finite from step {list(map(math.isfinite, means)).index(False)}")
    samples = trained_on(samples, conf.held_out)
    first_epoch = len(means) // conf.local_epochs if conf.local_epochs else max(1, samples // conf.batch_size)
    unique = min(samples, conf.local_steps * conf.batch_size)
    return {
        "client_id": conf.client_id,
        "moving_loss": moving_loss(means, first_epoch, conf.loss_decay),
        "trained_size": sum(sizes),
        "success": len(losses) == conf.local_steps,
        "utility": math.sqrt(padded.square().sum().item() / sum(sizes)) * unique,
        "wall_duration": 0,
    }
