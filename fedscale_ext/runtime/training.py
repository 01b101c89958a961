"""A client's local training: plain SGD on the model that it was handed, with FedScale's results."""

import math
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from fedscale.cloud.execution.torch_client import TorchClient
from overrides import overrides
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.streams import stream


class ClientSamples:
    """The training samples of one client on the training device: x [n, C, H, W] float32, y [n] int64."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)


def batches(samples: int, batch_size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers of ``steps`` batches: shuffled epochs whose incomplete last batch is left out.

    A client with fewer samples than a batch trains on all of them in each step (FedScale's loader
    drops its only, incomplete batch and never ends).
    """
    size = min(samples, batch_size)
    done = 0
    while done < steps:
        order = rng.permutation(samples)
        for start in range(0, samples - size + 1, size):
            if done == steps:
                return
            yield order[start : start + size]
            done += 1


def moving_loss(losses: list[float], first_epoch: int, decay: float) -> float:
    """FedScale's training loss: the first step's, then its moving average over the first epoch."""
    average = losses[0]
    for loss in losses[1:first_epoch]:
        average = (1.0 - decay) * average + decay * loss
    return average


class MultiModelClient(TorchClient):
    """FedScale's client for models of any spec, a configurable optimiser and a right-signed prox term."""

    @overrides
    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """Train ``model`` in place for ``conf.local_steps`` steps.

        Returns FedScale's result: client_id, moving_loss, trained_size, success, utility,
        update_weight (state on the CPU), wall_duration. Raises FloatingPointError when the loss is
        no longer finite; FedScale would report such a client as a success.
        """
        model.train()
        optimizer = self.get_optimizer(model, conf)
        parameters = list(model.parameters())
        start = [parameter.detach().clone() for parameter in parameters] if conf.prox_mu else None
        rng = stream(conf.seed, conf.round, conf.client_id, "batches")
        losses: list[Tensor] = []
        trained = 0
        for rows in batches(len(client_data), conf.batch_size, conf.local_steps, rng):
            picked = torch.from_numpy(rows).to(client_data.y.device)
            loss = functional.cross_entropy(model(client_data.x[picked]), client_data.y[picked], reduction="none")
            optimizer.zero_grad()
            loss.mean().backward()
            self._shape_gradients(parameters, start, conf)
            optimizer.step()
            losses.append(loss.detach())
            trained += len(rows)
        means = [step.mean().item() for step in losses]
        if not all(map(math.isfinite, means)):
            raise FloatingPointError(f"the loss is not finite from step {list(map(math.isfinite, means)).index(False)}")
        first_epoch = max(1, len(client_data) // conf.batch_size)
        unique = min(len(client_data), conf.local_steps * conf.batch_size)
        return {
            "client_id": conf.client_id,
            "moving_loss": moving_loss(means, first_epoch, conf.loss_decay),
            "trained_size": trained,
            "success": len(losses) == conf.local_steps,
            "utility": math.sqrt(losses[-1].square().mean().item()) * unique,
            "update_weight": {name: value.detach().cpu().clone() for name, value in model.state_dict().items()},
            "wall_duration": 0,
        }

    def _shape_gradients(self, parameters: list[nn.Parameter], start: list[Tensor] | None, conf: Namespace) -> None:
        """Add FedProx's gradient mu (w - w_global) (Li et al. 2020, Eq 2) and clip, both before the step."""
        if start is not None:
            for parameter, origin in zip(parameters, start, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - origin, alpha=conf.prox_mu)
        if conf.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, conf.clip_norm)

    def get_optimizer(self, model: nn.Module, conf: Namespace) -> torch.optim.Optimizer:
        """SGD; FedScale fixes momentum 0.9 and weight decay 5e-4, which are the defaults here."""
        return torch.optim.SGD(
            model.parameters(),
            lr=conf.learning_rate,
            momentum=conf.client_momentum,
            weight_decay=conf.client_weight_decay,
            foreach=True,
        )
