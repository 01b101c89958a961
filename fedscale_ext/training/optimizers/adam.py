"""Adam as the clients' optimizer (Kingma and Ba, ICLR 2015), with the further gradient terms of ``sgd.py``.

Weight decay is L2 regularisation, as in torch.optim.Adam. It enters the moments, unlike AdamW's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.training.optimizers.sgd import Masks, Pull


@dataclass(frozen=True)
class Adam:
    """Hyperparameters of Adam: ``beta1``, ``beta2`` and ``eps`` are torch's, the others those of :class:`Sgd`."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    mu: float
    clip_norm: float | None
    lasso: float = 0.0

    @classmethod
    def of(cls, conf: ClientConfig) -> "Adam":
        """Read the hyperparameters from a client's settings."""
        decay, beta1, beta2 = conf.client_weight_decay, conf.adam_beta1, conf.adam_beta2
        pulls = conf.prox_mu, conf.clip_norm, conf.group_lasso
        return cls(conf.learning_rate, beta1, beta2, conf.adam_eps, decay, *pulls)

    def begin(
        self, parameters: list[Tensor], offset: list[Tensor] | None = None, mask: Masks | None = None
    ) -> "AdamSteps":
        """Start from the present values of the parameters, with zero moments.

        Args:
            parameters: Their values are w_global of the prox term.
            offset: Added to each step's gradients, by parameter.
            mask: Which entries of each parameter train; gradients are zero elsewhere.

        Returns:
            The optimizer under way.

        """
        first, second = ([torch.zeros_like(parameter) for parameter in parameters] for _ in range(2))
        # a CUDA graph replays the same commands, so that the number of the step must be a tensor
        on_gpu = bool(parameters) and parameters[0].is_cuda
        taken = torch.zeros((), dtype=torch.float64, device=parameters[0].device) if on_gpu else 0
        pull = Pull.begin(self.mu, self.clip_norm, parameters, offset, mask, self.lasso)
        return AdamSteps(self, pull, first, second, taken)


@dataclass
class AdamSteps:
    """Adam under way: both moments, ``mean`` and ``square``, and the number of steps ``taken`` (a tensor on a GPU)."""

    adam: Adam
    pull: Pull
    mean: list[Tensor]
    square: list[Tensor]
    taken: Tensor | int

    @torch.no_grad()
    def restart(self, parameters: list[Tensor]) -> None:
        """Restart from the present values of the parameters, in the same memory."""
        self.pull.restart(parameters)
        torch._foreach_zero_(self.mean)
        torch._foreach_zero_(self.square)
        self.taken *= 0

    def first(self, clients: int) -> "AdamSteps":
        """Return the optimizer of the first ``clients`` of a cohort; it shares this one's memory."""
        mean, square = ([one[:clients] for one in moments] for moments in (self.mean, self.square))
        return AdamSteps(self.adam, self.pull.first(clients), mean, square, self.taken)

    @torch.no_grad()
    def step(self, parameters: list[Tensor], gradients: list[Tensor], *, cohort: bool = False) -> None:
        """Step in place: w <- w - lr m' / (sqrt(v') + eps).

        m' and v' are the bias-corrected moments of clip(g + mu (w - w_global)) + weight_decay w.

        Args:
            parameters: Changed in place.
            gradients: Gradients of the loss, which stay unchanged.
            cohort: Whether the first axis of each tensor is clients.

        """
        adam = self.adam
        gradients = self.pull(parameters, gradients, cohort=cohort)
        if adam.weight_decay:
            gradients = list(torch._foreach_add(gradients, self.pull.inside(parameters), alpha=adam.weight_decay))
        torch._foreach_lerp_(self.mean, gradients, 1.0 - adam.beta1)
        torch._foreach_mul_(self.square, adam.beta2)
        torch._foreach_addcmul_(self.square, gradients, gradients, value=1.0 - adam.beta2)
        self.taken += 1
        if not adam.lr:  # by which a schedule may end; no parameter moves
            return
        spread = (1.0 - adam.beta2**self.taken) ** 0.5
        size = (1.0 - adam.beta1**self.taken) / -adam.lr
        below = list(torch._foreach_sqrt(self.square))  # becomes (sqrt(v') + eps) times the factor from -lr m' to m
        torch._foreach_mul_(below, self._number(size / spread, below))
        torch._foreach_add_(below, self._number(size * adam.eps, below))
        torch._foreach_addcdiv_(parameters, self.mean, below)

    def _number(self, value: Tensor | float, tensors: list[Tensor]) -> Tensor | float:
        return value.to(tensors[0].dtype) if isinstance(value, Tensor) else value
