"""The clients' optimizer: SGD with momentum, weight decay, prox term and clipping, on lists of tensors.

Training one by one steps on a model's tensors, cohorts on the same tensors with a leading axis of clients. There is no
Python loop over parameters except for clipping, which needs a norm per client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig

Masks = list[Tensor | None]  # for each parameter: which of its entries train, bool; None: all


def stacked_masks(confs: Sequence[ClientConfig], names: Sequence[str]) -> Masks:
    """Stack the clients' masks of trained entries.

    Args:
        confs: Settings of each client; either all have a mask or none has.
        names: Names of the parameters.

    Returns:
        For each parameter bool [clients, *shape], or None if all its entries train; an empty list without masks.

    """
    masks = [conf.mask for conf in confs if conf.mask is not None]
    if not masks:
        return []
    return [torch.stack([mask[name] for mask in masks]) if name in masks[0] else None for name in names]


@dataclass(frozen=True)
class Sgd:
    """Hyperparameters of SGD.

    Attributes:
        lr: Learning rate.
        momentum: Factor of the last step's velocity.
        weight_decay: Coefficient of L2 regularisation.
        mu: FedProx's coefficient.
        clip_norm: Largest norm of a client's gradient; None: no clipping.
        lasso: Weight of the group lasso.

    """

    lr: float
    momentum: float
    weight_decay: float
    mu: float
    clip_norm: float | None
    lasso: float = 0.0

    @classmethod
    def of(cls, conf: ClientConfig) -> "Sgd":
        """Read the hyperparameters from a client's settings."""
        decay, clip, lasso = conf.client_weight_decay, conf.clip_norm, conf.group_lasso
        return cls(conf.learning_rate, conf.client_momentum, decay, conf.prox_mu, clip, lasso)

    def begin(self, parameters: list[Tensor], offset: list[Tensor] | None = None, mask: Masks | None = None) -> "Steps":
        """Start from the present values of the parameters, with zero momentum.

        Args:
            parameters: Their values are w_global of the prox term.
            offset: Added to each step's gradients (:mod:`scaffold`), by parameter.
            mask: Which entries of each parameter train; gradients are zero elsewhere.

        Returns:
            The optimizer under way.

        """
        velocity = [torch.zeros_like(parameter) for parameter in parameters] if self.momentum else []
        return Steps(self, Pull.begin(self.mu, self.clip_norm, parameters, offset, mask, self.lasso), velocity)


@dataclass
class Pull:
    """Terms that every optimizer first applies to the loss's gradients: prox, lasso, mask, clipping and offset.

    Attributes:
        mu: FedProx's coefficient.
        clip_norm: Largest norm of a client's gradient; None: no clipping.
        origin: w_global of each parameter; empty without a prox term.
        offset: Added to the gradients; empty without control variates.
        mask: Which entries of each parameter train; empty where all do.
        lasso: Weight of the group lasso.

    """

    mu: float
    clip_norm: float | None
    origin: list[Tensor] = field(default_factory=list)
    offset: list[Tensor] = field(default_factory=list)
    mask: Masks = field(default_factory=list)
    lasso: float = 0.0

    @classmethod
    def begin(
        cls,
        mu: float,
        clip_norm: float | None,
        parameters: list[Tensor],
        offset: list[Tensor] | None,
        mask: Masks | None,
        lasso: float = 0.0,
    ) -> "Pull":
        """Start from the present values of the parameters, which are copied if there is a prox term."""
        origin = [parameter.detach().clone() for parameter in parameters] if mu else []
        return cls(mu, clip_norm, origin, offset or [], mask or [], lasso)

    def restart(self, parameters: list[Tensor]) -> None:
        """Restart from the present values of the parameters, in the same memory."""
        if self.origin:
            torch._foreach_copy_(self.origin, list(parameters))

    def first(self, clients: int) -> "Pull":
        """Return views of the terms for the first ``clients`` of a cohort."""
        origin, offset = ([one[:clients] for one in tensors] for tensors in (self.origin, self.offset))
        mask = [None if one is None else one[:clients] for one in self.mask]
        return Pull(self.mu, self.clip_norm, origin, offset, mask, self.lasso)

    def __call__(self, parameters: list[Tensor], gradients: list[Tensor], *, cohort: bool) -> list[Tensor]:
        """Return clip(g + mu (w - w_global) + lasso) + offset, with zeros outside the mask.

        The prox gradient is that of Li et al. 2020, Eq 2. It is clipped together with the loss's. So is the gradient of
        ``lasso`` times the sum of all filters' norms, where filters are the rows of tensors with two axes or more. The
        gradients passed in stay unchanged, because two of them may share memory.

        Args:
            parameters: The present values.
            gradients: Gradients of the loss.
            cohort: Whether the first axis of each tensor is clients.

        Returns:
            The gradients to step by.

        """
        if self.lasso:
            gradients = [
                gradient if parameter.dim() - cohort < 2 else gradient + self.lasso * _directions(parameter, cohort)
                for parameter, gradient in zip(parameters, gradients, strict=True)
            ]
        if self.origin:
            away = torch._foreach_sub(parameters, self.origin)
            gradients = list(torch._foreach_add(gradients, away, alpha=self.mu))
        if self.mask:
            gradients = [
                gradient if mask is None else torch.where(mask, gradient, 0.0)
                for gradient, mask in zip(gradients, self.mask, strict=True)
            ]
        if self.clip_norm is not None:
            gradients = clipped(gradients, self.clip_norm, cohort=cohort)
        return list(torch._foreach_add(gradients, self.offset)) if self.offset else gradients

    def inside(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return the parameters with zeros outside the mask, the part that weight decay applies to."""
        if not self.mask:
            return parameters
        pairs = zip(parameters, self.mask, strict=True)
        return [one if mask is None else torch.where(mask, one, 0.0) for one, mask in pairs]


def _directions(parameter: Tensor, cohort: bool) -> Tensor:
    """Return each filter divided by its norm, which is the norm's gradient; zero for a filter of zeros."""
    dims = tuple(range(1 + cohort, parameter.dim()))
    norms = torch.linalg.vector_norm(parameter, dim=dims, keepdim=True)
    return parameter / norms.masked_fill(norms == 0, 1.0)


@dataclass
class Steps:
    """SGD under way; ``velocity`` is empty without momentum."""

    sgd: Sgd
    pull: Pull
    velocity: list[Tensor]

    @torch.no_grad()
    def restart(self, parameters: list[Tensor]) -> None:
        """Restart from the present values of the parameters, in the same memory."""
        self.pull.restart(parameters)
        if self.velocity:
            torch._foreach_zero_(self.velocity)

    def first(self, clients: int) -> "Steps":
        """Return the optimizer of the first ``clients`` of a cohort; it shares this one's memory."""
        return Steps(self.sgd, self.pull.first(clients), [one[:clients] for one in self.velocity])

    @torch.no_grad()
    def step(self, parameters: list[Tensor], gradients: list[Tensor], *, cohort: bool = False) -> None:
        """Step in place: v <- momentum v + clip(g + mu (w - w_global)) + weight_decay w, w <- w - lr v.

        Outside the mask nothing changes.

        Args:
            parameters: Changed in place.
            gradients: Gradients of the loss, which stay unchanged.
            cohort: Whether the first axis of each tensor is clients.

        """
        sgd = self.sgd
        gradients = self.pull(parameters, gradients, cohort=cohort)
        if not self.velocity:
            if sgd.weight_decay and self.pull.mask:
                torch._foreach_sub_(parameters, self.pull.inside(parameters), alpha=sgd.lr * sgd.weight_decay)
            elif sgd.weight_decay:
                torch._foreach_mul_(parameters, 1.0 - sgd.lr * sgd.weight_decay)
            torch._foreach_add_(parameters, gradients, alpha=-sgd.lr)
            return
        torch._foreach_mul_(self.velocity, sgd.momentum)
        torch._foreach_add_(self.velocity, gradients)
        if sgd.weight_decay:
            torch._foreach_add_(self.velocity, self.pull.inside(parameters), alpha=sgd.weight_decay)
        torch._foreach_add_(parameters, self.velocity, alpha=-sgd.lr)


def clipped(gradients: list[Tensor], norm: float, *, cohort: bool = False) -> list[Tensor]:
    """Scale gradients down to a total norm of at most ``norm``.

    Args:
        gradients: One tensor per parameter.
        norm: Largest total norm.
        cohort: Whether the first axis is clients, each with a norm of its own.

    Returns:
        The scaled gradients.

    """
    rows = [gradient.reshape(len(gradient) if cohort else 1, -1) for gradient in gradients]  # [K or 1, entries]
    norms = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows])  # [parameters, K or 1]
    # 1e-6 as torch.nn.utils.clip_grad_norm_ has it: no division by zero
    scale = (norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    if not cohort:
        return list(torch._foreach_mul(gradients, scale[0]))
    return [gradient * scale.view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients]
