"""TailorFL's clients: learn how much each channel matters, keep those that matter most, train what is left."""

from argparse import Namespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor, State, models
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import trainable
from fedscale_ext.methods.pruning.pruned_types import channels_of, kept_bits
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result

GATE = "gate/"  # begins the names of the gates


class TailorClient(MultiModelClient):
    """Its channels pass gates on their way to whoever reads them; gates are learnt beside the weights, and kept.

    ``conf.own`` has the gates and which channels the client keeps (nothing yet: gates of 1, all channels);
    ``conf.tailor`` the ``target`` number of each group and the ``sparsity`` of gates, where it takes part in a round.
    One client after another: whose gates scale what is each one's own.
    """

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: Namespace, bench: Workbench) -> None:
        super().__init__(conf)
        self._bench = bench

    def _own(self, conf: Namespace) -> tuple[channels.Kept, dict[str, Tensor]]:
        whole = channels.whole(self._bench.spec(conf.model_key))
        own: State = conf.own or {}
        gates = {group: own.get(f"{GATE}{group}", torch.ones(len(one))) for group, one in whole.items()}
        return channels_of(own, whole), gates

    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """The channels that it keeps, behind their gates."""
        (kept, gates), parameters = self._own(conf), trainable(model)
        layout = models.layout(self._bench.spec(conf.model_key))
        masks.apply(channels.masks(layout, kept, parameters), parameters)
        _write(parameters, channels.gated(layout, _like(gates, parameters), parameters))

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """Weights and gates together; a client that keeps everything as yet then prunes to its target."""
        layout, asked = models.layout(self._bench.spec(conf.model_key)), getattr(conf, "tailor", None)
        (kept, gates), parameters = self._own(conf), trainable(model)
        gates = {group: one.clone().requires_grad_() for group, one in _like(gates, parameters).items()}
        mask = channels.masks(layout, kept, parameters)
        masks.apply(mask, parameters)
        model.train()
        names, sparsity = list(parameters), 0.0 if asked is None else asked["sparsity"]
        steps = optimizer_of(conf).begin(list(parameters.values()), None, [mask[name] for name in names])
        bare = Namespace(**{**vars(conf), "client_weight_decay": 0.0})  # gates of other channels stay, too
        passed = optimizer_of(bare).begin(
            list(gates.values()), None, [kept[group].to(_device(model)) for group in gates]
        )
        losses = []
        for x, y in self.seen(client_data, conf):
            own = _Gated(model, channels.gated(layout, gates, parameters))
            loss = self.losses(self.output(own, x, client_data, conf), y)
            total = loss.mean() + sparsity * torch.stack([one.abs().sum() for one in gates.values()]).sum()
            wanted = [*parameters.values(), *gates.values()]
            found = list(torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True))
            steps.step(list(parameters.values()), found[: len(names)])
            passed.step(list(gates.values()), found[len(names) :])
            losses.append(loss.detach())
        figures = result(conf, len(client_data), losses)
        if asked is not None and not conf.own:
            kept = channels.strongest({group: one.detach().abs() for group, one in gates.items()}, asked["target"])
            masks.apply(channels.masks(layout, kept, parameters), parameters)
        if asked is None:  # fine-tuned for itself: what is tested is its own network
            _write(parameters, channels.gated(layout, gates, parameters))
        if conf.own is not None:
            learnt = {f"{GATE}{group}": one.detach() for group, one in gates.items()}
            figures["own"] = {**kept_bits(kept), **learnt}
        return {**figures, "update_weight": model.state_dict()}


class _Gated:
    """The network with other parameters, which keeps its statistics."""

    def __init__(self, model: nn.Module, tensors: State) -> None:
        self._model, self._tensors = model, tensors

    def __call__(self, x: Tensor) -> Tensor:
        output: Tensor = functional_call(self._model, self._tensors, (x,))
        return output


@torch.no_grad()
def _write(parameters: State, tensors: State) -> None:
    for name, tensor in tensors.items():
        parameters[name].copy_(tensor)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _like(gates: dict[str, Tensor], parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    first = next(iter(parameters.values()))
    return {group: one.to(first) for group, one in gates.items()}


class TailorExecutor(MultiModelExecutor):
    """Its clients know the network that they were handed."""

    def get_client_trainer(self, conf: Namespace) -> TailorClient:
        """How TailorFL's clients train."""
        return TailorClient(conf, self.bench)
