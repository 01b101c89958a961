"""LotteryFL's clients (Li et al. 2020, Algorithm 1, ClientUpdate): prune, rewind, train what is left.

``conf.own`` is the client's mask m_c in bits (nothing yet: all ones), ``conf.ticket`` the thresholds, where it takes
part in a round. A client that fine-tunes what it is served (``personalise_epochs``) has a mask and no ticket: it trains
its surviving weights on all of its training samples, and does not prune.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedscale_ext.method import ClientSamples, ModelSpec, MultiModelExecutor, State, models
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.masked_client import MaskedClient, trainable


@lru_cache(maxsize=2)
def initial(spec: ModelSpec, seed: int) -> State:
    """theta_0, as the aggregator drew it: it need not travel."""
    return models.initial_state(spec, seed)


class LotteryClient(MaskedClient):
    """Prunes single weights of its model, and rewinds the others."""

    def mask(self, parameters: Mapping[str, Tensor], conf: Namespace) -> State:
        """m_c, of weights alone."""
        return masks.unpack(conf.own, masks.prunable(parameters))

    def enter(self, data: ClientSamples, model: nn.Module, conf: Namespace) -> None:
        """Prune and rewind where that is due. BatchNorm's running statistics stay the global ones: they are no weights
        to rewind."""
        if conf.own is None:
            return
        parameters = trainable(model)
        weights = masks.prunable(parameters)
        mask, ticket = self.mask(parameters, conf), getattr(conf, "ticket", None)
        masks.apply(mask, weights)
        if ticket is not None:
            left = masks.survivors(mask) / sum(weight.numel() for weight in weights.values())
            if left > ticket["target"] and self.accuracy(data, model, conf) > ticket["threshold"]:
                mask = masks.pruned(mask, weights, ticket["step"])
                theta = initial(self.bench.spec(conf.model_key), conf.seed)
                with torch.no_grad():
                    for name, parameter in parameters.items():
                        parameter.copy_(theta[name])
                masks.apply(mask, weights)
        conf.mask, conf.keeps = mask, masks.pack(mask)


class LotteryExecutor(MultiModelExecutor):
    """Its clients can look at the model that they were handed."""

    def get_client_trainer(self, conf: Namespace) -> LotteryClient:
        """How LotteryFL's clients train."""
        return LotteryClient(conf, self.bench)
