"""DepthFL's clients: every exit learns from the labels and from all others."""

from argparse import Namespace

from torch import Tensor

from fedscale_ext.method import MultiModelClient, MultiModelExecutor
from fedscale_ext.methods.submodel.multi_exit_client import MultiExitClient


class DepthFLClient(MultiExitClient):
    """Of n exits: sum_i CE_i + w(t) / (n - 1) sum_{i != j} KL(p_j || p_i), each teacher p_j fixed."""

    def __init__(self, conf: Namespace) -> None:
        super().__init__(conf)
        self._consistency: float = getattr(conf, "consistency", 0.0)
        # w(t) is another one in each round: recordings would pile up
        self.loss_key = None if self._consistency else ()

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Logits [..., exits, classes] and cross-entropies [..., exits] -> [...]."""
        others = each.shape[-1] - 1
        if not (self._consistency and others):
            return each.sum(-1)
        log_p = output.log_softmax(-1)
        fixed = log_p.detach()
        # all pairs at once: with itself, an exit's divergence is zero, and so are its gradients
        own = (fixed.exp() * fixed).sum((-2, -1)) * each.shape[-1]
        crossed = (fixed.exp().sum(-2) * log_p.sum(-2)).sum(-1)
        return each.sum(-1) + self._consistency / others * (own - crossed)


class DepthFLExecutor(MultiModelExecutor):
    """Its clients train as DepthFL's."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How such clients train."""
        return DepthFLClient(conf)
