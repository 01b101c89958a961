"""FedNAS's clients: in each step the alphas, then the weights (He et al. 2020, Equation 5 and Algorithm 1, client)."""

from argparse import Namespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.core.local_steps import batches, hold_out
from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor, stream
from fedscale_ext.training.adam import Adam
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result

ALPHAS = "alphas."  # begins the names of a mixture's alphas


class FedNASClient(MultiModelClient):
    """A client of the search: ``conf.search`` has the weights of the losses (``train``, ``val``) and Adam's settings.

    One client after another: a step takes two batches and two optimisers. A client without a validation part (a single
    sample) moves its alphas by the training loss alone, as far as that counts.
    """

    in_cohorts: ClassVar[bool] = False

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; the loss is that of the weights' steps."""
        model.train()
        search = conf.search
        named = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
        alphas: list[Tensor] = [tensor for name, tensor in named if name.startswith(ALPHAS)]
        weights: list[Tensor] = [tensor for name, tensor in named if not name.startswith(ALPHAS)]
        by_alphas = Adam(**search["adam"], eps=1e-8, mu=0.0, clip_norm=None).begin(alphas)
        by_weights = optimizer_of(conf).begin(weights)
        _, validation = hold_out(len(client_data), conf.held_out, conf.seed, conf.client_id)
        rng = stream(conf.seed, conf.round, conf.client_id, "validation batches")
        rows = list(batches(len(validation), conf.batch_size, conf.local_steps, rng)) if len(validation) else []
        found = []
        for step, (x, y) in enumerate(self.seen(client_data, conf)):
            terms = []
            if search["train"]:
                terms.append(search["train"] * self._loss(model, x, y, client_data, conf).mean())
            if search["val"] and rows:
                own = torch.from_numpy(validation[rows[step]]).to(client_data.y.device)
                seen, labels = client_data.x[own], client_data.y[own]
                terms.append(search["val"] * self._loss(model, seen, labels, client_data, conf).mean())
            if terms:
                by_alphas.step(alphas, list(torch.autograd.grad(sum(terms, torch.zeros(())), alphas)))
            losses = self._loss(model, x, y, client_data, conf)
            by_weights.step(weights, list(torch.autograd.grad(losses.mean(), weights)))
            found.append(losses.detach())
        return {**result(conf, len(client_data), found), "update_weight": model.state_dict()}

    def _loss(self, model: nn.Module, x: Tensor, y: Tensor, own: ClientSamples, conf: Namespace) -> Tensor:
        return self.losses(self.output(model, x, own, conf), y)


class FedNASExecutor(MultiModelExecutor):
    """Its clients search while they are told how, and train what was found like anybody's."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How FedNAS's clients train."""
        return FedNASClient(conf) if hasattr(conf, "search") else MultiModelClient(conf)
