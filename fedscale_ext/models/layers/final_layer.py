"""A network's final linear layer, whose inputs are its features and whose outputs are its logits; the deepest exit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.random_input import random_input
from fedscale_ext.models.registry import build, skeleton


@dataclass(frozen=True)
class FinalLayer:
    """The final linear layer of a network.

    Attributes:
        name: Its name, as in torch's ``named_modules()``.
        width: Number of features, the layer's inputs.
        biased: Whether it has a bias.

    """

    name: str
    width: int
    biased: bool

    @property
    def tensors(self) -> dict[str, str]:
        """Names of its tensors in the network's state, by their names in the layer."""
        return {each: f"{self.name}.{each}" for each in (("weight", "bias") if self.biased else ("weight",))}


@cached_by_spec(1024)
def final_layer(spec: ModelSpec) -> FinalLayer:
    """Return the linear layer that a network runs last; raise UserError unless it gives a logit for each class."""
    module = skeleton(spec).eval()
    called: list[tuple[str, Tensor]] = []
    layers = {layer: name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, inputs: called.append((layers[layer], inputs[0])))
    module(torch.empty(2, *spec["input_shape"], device="meta"))
    name, features = called[-1] if called else ("", torch.empty(0))
    last = module.get_submodule(name)
    if not isinstance(last, nn.Linear) or last.out_features != spec["num_classes"] or features.dim() != 2:
        raise UserError(
            f"a model of the family {spec.family!r} does not end in a linear layer from features to the classes, which "
            "this method needs; choose another model"
        )
    return FinalLayer(name, last.in_features, last.bias is not None)


@cached_by_spec(1024)
def ends_in_final_layer(spec: ModelSpec) -> bool:
    """Return whether a network of one exit gives its final layer's outputs unchanged, in training and in evaluation."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # the job's own draws stay as they are
        module = build(spec)
        generator = torch.Generator().manual_seed(0)
        x = random_input(2, *spec["input_shape"], generator=generator)
        of_layer: list[Tensor] = []
        layer = module.get_submodule(final_layer(spec).name)
        layer.register_forward_hook(lambda _, inputs, output: of_layer.append(output))
        with torch.no_grad():
            outputs = [module.train(mode)(x) for mode in (True, False)]
    pairs = [(a.flatten(), b.flatten()) for a, b in zip(outputs, of_layer, strict=True)]
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs)


class Input:
    """The last input of a layer: ``features`` [..., width], in training with an axis of exits where there are some."""

    features: Tensor


@contextmanager
def input_of(layer: nn.Module) -> Iterator[Input]:
    """Keep the last input of a layer while the block runs."""
    last = Input()

    def keep(_: nn.Module, inputs: Sequence[Tensor]) -> None:
        last.features = inputs[0]

    with layer.register_forward_pre_hook(keep):
        yield last


def deepest(output: Tensor, dims: int) -> Tensor:
    """Return the logits or features of the deepest exit.

    Args:
        output: Logits or features with ``dims`` dimensions, or with one more, an axis of exits before the last one.
        dims: Number of dimensions of the result.

    """
    return output[..., -1, :] if output.dim() > dims else output
