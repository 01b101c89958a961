"""FedMask's clients: weights stay as they were drawn, and a score for each of them learns whether it counts."""

import math
from argparse import Namespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor, State, models
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.lotteryfl_client import initial
from fedscale_ext.methods.pruning.masked_client import trainable
from fedscale_ext.methods.pruning.pruned_types import channels_of, kept_bits
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result

THRESHOLD, LR = 0.5, 100.0


class MaskClient(MultiModelClient):
    """``conf.own`` has the client's mask in bits, which channels it may use, and BatchNorm's statistics (nothing yet:
    all of them). ``conf.fedmask`` has the ``target`` number of channels of each group, where it takes part in a round.
    ``threshold``: tau, ``lr``: of the scores. One client after another: scores are each one's own.
    """

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: Namespace, bench: Workbench, threshold: float = THRESHOLD, lr: float = LR) -> None:
        super().__init__(conf)
        self._bench, self._middle, self._lr = bench, math.log(threshold / (1 - threshold)), lr

    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """W * m_c with its own statistics."""
        if not conf.own:
            return
        parameters = trainable(model)
        self._draw(parameters, conf)
        weights = masks.prunable(parameters)
        masks.apply(masks.unpack(conf.own, weights), weights)
        masks.apply(channels.masks(self._layout(conf), self._kept(conf), parameters), parameters)
        self._take_statistics(model, conf)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """Scores begin one above or below the threshold, as the server's bits say, and step by the straight-through
        gradient dL/ds = dL/dw W sigma'(s)."""
        layout, parameters, middle = self._layout(conf), trainable(model), self._middle
        weights = masks.prunable(parameters)
        bits = {name: weight.detach() != 0 for name, weight in weights.items()}
        self._draw(parameters, conf)
        drawn = {name: weight.detach().clone() for name, weight in weights.items()}
        model.train()
        first = conf.own is not None and not conf.own and hasattr(conf, "fedmask")
        kept = self._tailored(client_data, model, conf, drawn) if first else self._kept(conf)
        self._take_statistics(model, conf)
        inside = channels.masks(layout, kept, parameters)
        masks.apply(inside, parameters)
        scores = {name: torch.where(one, middle + 1.0, middle - 1.0).to(drawn[name]) for name, one in bits.items()}
        settings = Namespace(**{**vars(conf), "learning_rate": self._lr, "client_weight_decay": 0.0})
        values, wanted = list(scores.values()), list(weights.values())
        steps = optimizer_of(settings).begin(values, None, [inside[name] for name in scores])
        losses = []
        for x, y in self.seen(client_data, conf):
            self._place(weights, drawn, scores, inside, middle)
            loss = self.losses(self.output(model, x, client_data, conf), y)
            found = torch.autograd.grad(loss.mean(), wanted, allow_unused=True, materialize_grads=True)
            pairs = zip(found, drawn.values(), values, strict=True)
            steps.step(values, [gradient * w * _slope(score) for gradient, w, score in pairs])
            losses.append(loss.detach())
        self._place(weights, drawn, scores, inside, middle)
        figures = result(conf, len(client_data), losses)
        if conf.own is not None:
            learnt = masks.pack({name: (score > middle) & inside[name] for name, score in scores.items()})
            statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
            figures["own"] = {**kept_bits(kept), **learnt, **statistics}
        return {**figures, "update_weight": model.state_dict()}

    @torch.no_grad()
    def _place(self, weights: State, drawn: State, scores: State, inside: State, middle: float) -> None:
        for name, weight in weights.items():
            weight.copy_(torch.where((scores[name] > middle) & inside[name], drawn[name], 0.0))

    def _tailored(self, data: ClientSamples, model: nn.Module, conf: Namespace, drawn: State) -> channels.Kept:
        """The one-shot structure: channels whose weights matter most to the loss of the first batch, by |w dL/dw|."""
        weights = masks.prunable(trainable(model))
        x, y = next(self.seen(data, conf))
        statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
        loss = self.losses(self.output(model, x, data, conf), y).mean()
        found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True, materialize_grads=True)
        for name, buffer in model.named_buffers():
            buffer.copy_(statistics[name])
        mattering = {name: gradient * drawn[name] for name, gradient in zip(weights, found, strict=True)}
        return channels.strongest(channels.strength(self._layout(conf), mattering), conf.fedmask["target"])

    def _kept(self, conf: Namespace) -> channels.Kept:
        return channels_of(conf.own or {}, channels.whole(self._bench.spec(conf.model_key)))

    def _layout(self, conf: Namespace) -> models.Layout:
        return models.layout(self._bench.spec(conf.model_key))

    @torch.no_grad()
    def _draw(self, parameters: dict[str, Tensor], conf: Namespace) -> None:
        """W, as the aggregator drew it: it need not travel."""
        theta = initial(self._bench.spec(conf.model_key), conf.seed)
        for name, parameter in parameters.items():
            parameter.copy_(theta[name])

    @torch.no_grad()
    def _take_statistics(self, model: nn.Module, conf: Namespace) -> None:
        for name, buffer in model.named_buffers() if conf.own else ():
            buffer.copy_(conf.own[name])


def _slope(score: Tensor) -> Tensor:
    return torch.sigmoid(score) * torch.sigmoid(-score)


class MaskExecutor(MultiModelExecutor):
    """Its clients know the network that they were handed."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How FedMask's clients train, in rounds and when they fine-tune."""
        given = self.config.method_params()
        return MaskClient(conf, self.bench, **{name: given[name] for name in ("threshold", "lr") if name in given})
