"""Clients of networks with several exits: they minimise the sum of their exits' cross-entropies.

HypeMeFed, SenSys 2024, section 4.2: the losses of all exits of a client's model are summed. A client's model holds the
exits that its device affords.
"""

from argparse import Namespace

from torch import Tensor
from torch.nn import functional

from fedscale_ext.method import MultiModelClient, MultiModelExecutor


class MultiExitClient(MultiModelClient):
    """The joint loss of all exits, one by one and in cohorts alike."""

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Output [..., exits, classes] (or [..., classes], as in evaluation), labels int64 [...] -> [...]."""
        if output.dim() == labels.dim() + 1:
            return super().losses(output, labels)
        wanted = labels[..., None].expand(output.shape[:-1])
        each = functional.cross_entropy(output.flatten(0, -2), wanted.flatten(), reduction="none")
        return self.combined(output, each.view(wanted.shape))

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Logits [..., exits, classes] and the exits' cross-entropies [..., exits] -> loss of each sample [...]."""
        return each.sum(-1)


class MultiExitExecutor(MultiModelExecutor):
    """Its clients train networks with several exits."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How such clients train."""
        return MultiExitClient(conf)
