"""The clients' optimiser: SGD with momentum, weight decay, prox term and clipping, on lists of tensors.

One-by-one training steps on a model's tensors, cohorts on the same tensors with a leading axis of
clients. No Python loop over parameters but for clipping, which needs a norm per client.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Masks = list[Tensor | None]  # of parameters: bool, which of their entries train; None: all


def masks_of(confs: Sequence[Namespace], names: Sequence[str]) -> Masks:
    """The masks of a cohort's parameters ``names``, each [clients, *shape]; empty where its clients have none."""
    if confs[0].mask is None:
        return []
    return [torch.stack([conf.mask[name] for conf in confs]) if name in confs[0].mask else None for name in names]


@dataclass(frozen=True)
class Sgd:
    """``lr`` learning rate, ``mu`` FedProx's coefficient, ``clip_norm`` largest norm of a client's gradient, ``lasso``
    the weight of group lasso."""

    lr: float
    momentum: float
    weight_decay: float
    mu: float
    clip_norm: float | None
    lasso: float = 0.0

    @classmethod
    def of(cls, conf: Namespace) -> "Sgd":
        """From a client's settings."""
        decay, clip, lasso = conf.client_weight_decay, conf.clip_norm, conf.group_lasso
        return cls(conf.learning_rate, conf.client_momentum, decay, conf.prox_mu, clip, lasso)

    def begin(self, parameters: list[Tensor], offset: list[Tensor] | None = None, mask: Masks | None = None) -> "Steps":
        """Start from ``parameters`` as they are: w_global of the prox term, momentum zero. ``offset`` is added to
        each step's gradients (:mod:`variates`), which are zero outside the ``mask``."""
        velocity = [torch.zeros_like(parameter) for parameter in parameters] if self.momentum else []
        return Steps(self, Pull.begin(self.mu, self.clip_norm, parameters, offset, mask, self.lasso), velocity)


@dataclass
class Pull:
    """What every optimiser does to the loss's gradients first; ``origin`` is empty without a prox term, ``offset``
    without control variates, ``mask`` where all entries train."""

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
        """Remember ``parameters`` where there is a prox term."""
        origin = [parameter.detach().clone() for parameter in parameters] if mu else []
        return cls(mu, clip_norm, origin, offset or [], mask or [], lasso)

    def restart(self, parameters: list[Tensor]) -> None:
        """Begin anew from ``parameters``, in the same memory."""
        if self.origin:
            torch._foreach_copy_(self.origin, list(parameters))

    def first(self, clients: int) -> "Pull":
        """The same for the first ``clients`` of a cohort alone."""
        origin, offset = ([one[:clients] for one in tensors] for tensors in (self.origin, self.offset))
        mask = [None if one is None else one[:clients] for one in self.mask]
        return Pull(self.mu, self.clip_norm, origin, offset, mask, self.lasso)

    def __call__(self, parameters: list[Tensor], gradients: list[Tensor], *, cohort: bool) -> list[Tensor]:
        """clip(g + mu (w - w_global)) + offset: the prox gradient is Li et al. 2020, Eq 2, clipped together with the
        loss's, and so is that of ``lasso`` times the sum of all filters' norms (filters: rows of what has two axes or
        more); zero outside the mask. The gradients are left as they are: two of them may share memory.
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
        """The parameters with zeros outside the mask: what decays of them."""
        if not self.mask:
            return parameters
        pairs = zip(parameters, self.mask, strict=True)
        return [one if mask is None else torch.where(mask, one, 0.0) for one, mask in pairs]


def _directions(parameter: Tensor, cohort: bool) -> Tensor:
    """Each filter divided by its norm, the gradient of that; zero for a filter of zeros."""
    dims = tuple(range(1 + cohort, parameter.dim()))
    norms = torch.linalg.vector_norm(parameter, dim=dims, keepdim=True)
    return parameter / norms.masked_fill(norms == 0, 1.0)


@dataclass
class Steps:
    """An optimiser under way; ``velocity`` is empty without momentum."""

    sgd: Sgd
    pull: Pull
    velocity: list[Tensor]

    @torch.no_grad()
    def restart(self, parameters: list[Tensor]) -> None:
        """Begin anew from ``parameters``, in the same memory."""
        self.pull.restart(parameters)
        if self.velocity:
            torch._foreach_zero_(self.velocity)

    def first(self, clients: int) -> "Steps":
        """The same for the first ``clients`` of a cohort alone; shares its memory."""
        return Steps(self.sgd, self.pull.first(clients), [one[:clients] for one in self.velocity])

    @torch.no_grad()
    def step(self, parameters: list[Tensor], gradients: list[Tensor], *, cohort: bool = False) -> None:
        """w <- w - lr v, v <- momentum v + clip(g + mu (w - w_global)) + weight_decay w, in place.

        Gradients are left as they are; outside the mask nothing changes. ``cohort``: the first axis is clients.
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
    """Gradients scaled down to a total norm of at most ``norm`` (per client, where ``cohort``)."""
    rows = [gradient.reshape(len(gradient) if cohort else 1, -1) for gradient in gradients]
    norms = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows])
    # 1e-6 as torch.nn.utils.clip_grad_norm_ has it: no division by zero
    scale = (norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    if not cohort:
        return list(torch._foreach_mul(gradients, scale[0]))
    return [gradient * scale.view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients]
