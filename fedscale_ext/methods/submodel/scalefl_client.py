"""ScaleFL's clients: deeper exits weigh more, and others learn from the deepest one."""

from argparse import Namespace

import torch
from torch import Tensor

from fedscale_ext.method import MultiModelClient, MultiModelExecutor
from fedscale_ext.methods.submodel.multi_exit_client import MultiExitClient


class ScaleFLClient(MultiExitClient):
    """Of n exits: sum_j j (CE_j + gamma T^2 KL(p_n || p_j)) / (n (n + 1) / 2), p at temperature T."""

    def __init__(self, conf: Namespace) -> None:
        super().__init__(conf)
        self._gamma: float = getattr(conf, "kd_gamma", 0.0)
        self._temperature: float = getattr(conf, "kd_temperature", 1.0)
        self._detach: bool = getattr(conf, "kd_detach", False)
        self.loss_key = self._gamma, self._temperature, self._detach

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Logits [..., exits, classes] and cross-entropies [..., exits] -> [...]."""
        if self._gamma:
            log_p = (output / self._temperature).log_softmax(-1)
            teacher = log_p[..., -1:, :].detach() if self._detach else log_p[..., -1:, :]
            # of the last exit from itself it is zero, and so are its gradients
            divergence = (teacher.exp() * (teacher - log_p)).sum(-1)
            each = each + self._gamma * self._temperature**2 * divergence
        weight = torch.arange(1, each.shape[-1] + 1, dtype=each.dtype, device=each.device)
        return (each * (weight / weight.sum())).sum(-1)


class ScaleFLExecutor(MultiModelExecutor):
    """Its clients train as ScaleFL's."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How such clients train."""
        return ScaleFLClient(conf)
