"""FedSkel's clients: find the filters that answer most, then train and hand in these alone."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor, State
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.masked_client import trainable

SKELETON = "skeleton/"  # begins the names of what tells which filters


def filters(model: nn.Module) -> dict[str, nn.Conv2d]:
    """The layers whose filters (rows of their weights) a skeleton chooses from, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, nn.Conv2d)}


def skeleton_size(filters: int, share: float) -> int:
    """How many of a layer's filters: ``share`` of them, one at least."""
    return max(1, round(share * filters))


def top(values: Tensor, share: float) -> Tensor:
    """bool like the vector: its largest entries, of equal ones the first."""
    chosen = values.argsort(descending=True, stable=True)[: skeleton_size(len(values), share)]
    return torch.zeros(len(values), dtype=torch.bool, device=values.device).index_fill(0, chosen, True)


def skeleton_of(own: State, layers: Iterable[str], state: Mapping[str, Tensor]) -> State:
    """Which filters of each layer ``own`` tells of, bool [filters]; all where it tells nothing. ``state``: any of the
    network, on the device of what is made."""
    like = {name: state[f"{name}.weight"].flatten(1)[:, 0] for name in layers}
    return masks.unpack({name.removeprefix(SKELETON): own[name] for name in own if name.startswith(SKELETON)}, like)


def rows(skeleton: State, parameters: Mapping[str, Tensor]) -> State:
    """The same by parameter, in a shape that broadcasts: of a layer's weight and bias."""
    found = {}
    for layer, one in skeleton.items():
        for name in (f"{layer}.weight", f"{layer}.bias"):
            if name in parameters:
                found[name] = one.view(-1, *[1] * (parameters[name].dim() - 1))
    return found


@contextmanager
def answers(layers: Mapping[str, nn.Conv2d]) -> Iterator[dict[str, Tensor]]:
    """In the block, the sums of what each layer's filters answer in magnitude, float64 [filters] by layer."""
    found = {name: torch.zeros(layer.out_channels, dtype=torch.float64) for name, layer in layers.items()}

    def hook(name: str) -> Any:
        def add(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
            found[name] += output.detach().abs().mean((2, 3)).sum(0).double().cpu()

        return add

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def only_skeleton(layers: Mapping[str, nn.Conv2d], skeleton: State) -> Iterator[None]:
    """In the block, no gradient passes filters outside of the skeleton: neither to weights nor to inputs."""

    def hook(name: str) -> Any:
        inside = skeleton[name].view(-1, 1, 1)

        def cut(_layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
            return torch.where(inside, output, output.detach())

        return cut

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class SkeletonClient(MultiModelClient):
    """``conf.own`` has the client's whole state and its skeleton (nothing yet: all filters). ``conf.fedskel`` says
    whether this round ``set``s the skeleton, and to which ``share``, where the client takes part in one. One client
    after another: whose filters pass gradients is each one's own.
    """

    in_cohorts: ClassVar[bool] = False

    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """Its own network, with the server's filters where its skeleton is."""
        if not conf.own:
            return
        handed = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: conf.own[name] for name in handed})
        parameters = trainable(model)
        with torch.no_grad():
            for name, inside in rows(skeleton_of(conf.own, filters(model), parameters), parameters).items():
                parameters[name].copy_(torch.where(inside, handed[name], parameters[name]))

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """SetSkel: the whole model, counting what filters answer; UpdateSkel: the skeleton of its own network."""
        layers, asked = filters(model), getattr(conf, "fedskel", None)
        if asked is not None and asked["set"]:
            with answers(layers) as found:
                figures = super().train(client_data, model, conf)
            skeleton = {name: top(sums, asked["share"]) for name, sums in found.items()}
        else:
            self.own_model(model, conf)
            parameters = trainable(model)
            skeleton = skeleton_of(conf.own or {}, layers, parameters)
            inside = rows(skeleton, parameters)
            conf.mask = {name: one.expand(parameters[name].shape) for name, one in inside.items()}
            with only_skeleton(layers, skeleton):
                figures = super().train(client_data, model, conf)
        if conf.own is not None:
            bits = {f"{SKELETON}{name}": one for name, one in masks.pack(skeleton).items()}
            figures["own"] = {**{name: tensor.clone() for name, tensor in model.state_dict().items()}, **bits}
        return figures


class SkeletonExecutor(MultiModelExecutor):
    """Its clients have skeletons."""

    def get_client_trainer(self, conf: Namespace) -> SkeletonClient:
        """How FedSkel's clients train."""
        return SkeletonClient(conf)
