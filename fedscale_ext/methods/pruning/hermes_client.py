"""Hermes's clients: train with group lasso what they keep, and prune channels while the model is good enough."""

from argparse import Namespace
from collections.abc import Mapping

from torch import Tensor, nn

from fedscale_ext.method import ClientSamples, MultiModelExecutor, State, models
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import MaskedClient, trainable
from fedscale_ext.methods.pruning.pruned_types import channels_of, kept_bits


class HermesClient(MaskedClient):
    """Keeps some channels of each group: ``conf.own`` tells which. ``conf.hermes`` has ``threshold``, ``step`` and the
    ``target`` number of channels of each group, where it takes part in a round."""

    def _kept(self, conf: Namespace) -> channels.Kept:
        return channels_of(conf.own, channels.whole(self.bench.spec(conf.model_key)))

    def mask(self, parameters: Mapping[str, Tensor], conf: Namespace) -> State:
        """What hangs on the channels, of all parameters."""
        return channels.masks(models.layout(self.bench.spec(conf.model_key)), self._kept(conf), parameters)

    def enter(self, data: ClientSamples, model: nn.Module, conf: Namespace) -> None:
        """Prune the next channels where that is due."""
        if conf.own is None:
            return
        parameters = trainable(model)
        kept, mask, asked = self._kept(conf), self.mask(parameters, conf), getattr(conf, "hermes", None)
        masks.apply(mask, parameters)
        if asked is not None:
            have, target = channels.widths(kept), asked["target"]
            if have != target and self.accuracy(data, model, conf) >= asked["threshold"]:
                layout = models.layout(self.bench.spec(conf.model_key))
                counts = next_widths(have, target, asked["step"])
                kept = channels.strongest(channels.strength(layout, parameters), counts, among=kept)
                mask = channels.masks(layout, kept, parameters)
                masks.apply(mask, parameters)
        conf.mask, conf.keeps = mask, kept_bits(kept)


def next_widths(have: Mapping[str, int], target: Mapping[str, int], step: float) -> dict[str, int]:
    """Each group without ``step`` of its channels, one at least, down to the target."""
    return {group: max(target[group], min(width - 1, round(width * (1 - step)))) for group, width in have.items()}


class HermesExecutor(MultiModelExecutor):
    """Its clients can look at the model that they were handed."""

    def get_client_trainer(self, conf: Namespace) -> HermesClient:
        """How Hermes's clients train."""
        return HermesClient(conf, self.bench)
