"""All hypernetworks of a model: trained on a round's deep clients, generating what shallow ones lack (section 4.4)."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedscale_ext.methods.hypemefed import vectors
from fedscale_ext.methods.hypemefed.factorisation import (
    Factors,
    factors,
    product_factors,
    to_matrix,
    to_weight,
)
from fedscale_ext.methods.hypemefed.hypernetwork import HyperNetwork, Moments, Network, VectorNetwork
from fedscale_ext.methods.hypemefed.losses import Target
from fedscale_ext.methods.hypemefed.pairs import Pair, kinds, pairs
from fedscale_ext.methods.hypemefed.params import Options
from fedscale_ext.methods.hypemefed.rescaling import factor_to
from fedscale_ext.methods.hypemefed.sizes import by_components, check_memory, parts
from fedscale_ext.methods.hypemefed.training import train
from fedscale_ext.util.threads import in_threads

State = Mapping[str, torch.Tensor]


class HyperNetworks:
    """A network per pair of layers, by the target's name such as ``block2.conv1``.

    ``skipped``: layers that are never generated, with the reasons; ``diverged``: targets of the networks whose last
    training diverged, which are as they were before it; ``orders``: by target, in which order the last training took
    the states, in each epoch. Results depend on generators and states alone: pairs train in ``threads`` threads at
    once, one torch thread each.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        options: Options,
        generator: torch.Generator,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        """For the full model's state, given as shapes by name; UserError where they do not fit into memory."""
        self.options, self.device = options, torch.device(device)
        self.threads = threads or os.cpu_count() or 1
        self.pairs, self.skipped = pairs(shapes, kinds(options.generate))
        check_memory(self.pairs, options, self.threads)
        self.networks = {pair.target: _network(pair, options, generator) for pair in self.pairs}
        self.diverged: list[str] = []
        self.orders: dict[str, list[list[int]]] = {}
        for network in self.networks.values():
            network.values = network.values.to(self.device)  # drawn on the CPU: every device starts alike

    @property
    def parameters(self) -> int:
        """Numbers in all networks together."""
        return sum(network.parameters for network in self.networks.values())

    @property
    def factored(self) -> list[Sequence[int]]:
        """Shapes of the weights whose singular components are taken."""
        low_rank = (pair for pair in self.pairs if isinstance(self.networks[pair.target], HyperNetwork))
        return [pair.source_shapes["weight"] for pair in low_rank]

    def train(
        self, states: Sequence[State], shuffle: Callable[[str], np.random.Generator] | None = None
    ) -> dict[str, list[float]]:
        """Train each pair on the states that hold both layers; losses by epoch of the pairs that were trained.

        A pair that no state holds stays as it is: the deepest one in a round without a client of that level, where
        the public code crashes. ``shuffle`` gives each target's generator of the order in which an epoch takes the
        states; without it every epoch takes them as they come.
        """
        largest_first = sorted(self.pairs, key=lambda pair: -self.networks[pair.target].parameters)
        found = in_threads(largest_first, lambda pair: self._train(pair, states, shuffle), self.threads)
        losses = {pair.target: each for pair, each in zip(largest_first, found, strict=True)}
        self.diverged = [pair.target for pair in self.pairs if losses[pair.target] is None]
        return {pair.target: each for pair in self.pairs if (each := losses[pair.target])}

    def generate(
        self, states: Sequence[State], norms: Mapping[str, float] | None = None
    ) -> list[dict[str, torch.Tensor]]:
        """For each state the tensors that it lacks and that could be generated, block after block.

        A block's weights come from the one before, real or generated (auto-regressive, section 4.4). Networks that
        were never trained generate nothing, nor do those after them. With ``norms`` each generated tensor is scaled to
        its norm there, before the next block is generated from it.
        """
        return in_threads(states, lambda state: self._generate(state, norms), self.threads)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, JSON) for a checkpoint; the tensors are the networks' own, to be written before they train on."""
        tensors = {}
        for name, network in self.networks.items():
            tensors[f"{name}.values"] = network.values.cpu()
            if network.moments is not None:
                tensors |= {f"{name}.{part}": value.cpu() for part, value in network.moments._asdict().items()}
        return tensors, {"rounds": {name: network.rounds for name, network in self.networks.items()}}

    def load_state(self, tensors: State, json: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned; KeyError or RuntimeError where it is of other networks."""
        for name, network in self.networks.items():
            network.values.copy_(tensors[f"{name}.values"])
            kept = [tensors[key] for part in Moments._fields if (key := f"{name}.{part}") in tensors]
            network.moments = Moments(*(part.to(self.device, copy=True) for part in kept)) if kept else None
            network.rounds = int(json["rounds"][name])

    def _train(
        self, pair: Pair, states: Sequence[State], shuffle: Callable[[str], np.random.Generator] | None
    ) -> list[float] | None:
        """Losses by epoch; None where it diverged."""
        names = pair.names(pair.source) + pair.names(pair.target)
        holding = [index for index, state in enumerate(states) if all(name in state for name in names)]
        orders = _orders(len(holding), self.options.epochs, None if shuffle is None else shuffle(pair.target))
        self.orders[pair.target] = [[holding[index] for index in order] for order in orders]
        try:
            return train(
                self.networks[pair.target],
                [self.sample(pair, states[index]) for index in holding],
                orders,
                self.options.lr,
                keep_moments=self.options.optimizer == "kept",
                precision=getattr(torch, self.options.precision),
            )
        except FloatingPointError:
            return None

    def sample(self, pair: Pair, state: State) -> tuple[Any, Any]:
        """What a state that holds both layers gives a pair's network to learn: (input, wanted)."""
        if not isinstance(self.networks[pair.target], HyperNetwork):
            return self._rows(pair, pair.source, state), self._rows(pair, pair.target, state)
        target = to_matrix(self._on_device(state[f"{pair.target}.weight"]))
        wanted = factors(target, self.options.components) if self.options.loss == "factors" else Target.of(target)
        return self._factors(pair, state), wanted

    def _generate(self, state: State, norms: Mapping[str, float] | None) -> dict[str, torch.Tensor]:
        made: dict[str, torch.Tensor] = {}
        known: dict[str, Factors] = {}  # of generated weights, whose components need no large decomposition
        for pair in self.pairs:
            network = self.networks[pair.target]
            if pair.names(pair.target)[0] in state or not network.rounds:
                continue
            if not all(name in state or name in made for name in pair.names(pair.source)):
                continue
            if isinstance(network, HyperNetwork):
                before = known.get(pair.source)
                found = (
                    self._factors(pair, state) if before is None else product_factors(*before, self.options.components)
                )
                p, q = network.predict(found)
                weight = p @ q
                if norms is not None:
                    factor = factor_to(norms[f"{pair.target}.weight"], weight)
                    p, q, weight = p * factor**0.5, q * factor**0.5, weight * factor
                known[pair.target] = p, q
                made[f"{pair.target}.weight"] = to_weight(weight, pair.target_shapes["weight"]).cpu()
            else:
                assert isinstance(network, VectorNetwork)
                rows = network.predict(self._rows(pair, pair.source, {**state, **made}))
                values = vectors.unpack(pair.kind, rows, pair.target_shapes)
                for leaf, value in values.items():
                    name = f"{pair.target}.{leaf}"
                    made[name] = (value if norms is None else value * factor_to(norms[name], value)).cpu()
        return made

    def _factors(self, pair: Pair, state: State) -> Factors:
        return factors(to_matrix(self._on_device(state[f"{pair.source}.weight"])), self.options.components)

    def _rows(self, pair: Pair, layer: str, state: State) -> torch.Tensor:
        shapes = pair.source_shapes if layer == pair.source else pair.target_shapes
        return vectors.pack(pair.kind, {leaf: self._on_device(state[f"{layer}.{leaf}"]) for leaf in shapes})

    def _on_device(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().to(self.device, torch.float32)


def _orders(samples: int, epochs: int, rng: np.random.Generator | None) -> list[list[int]]:
    """Indices of the samples in each epoch: shuffled anew, or without ``rng`` as they come."""
    return [list(range(samples)) if rng is None else rng.permutation(samples).tolist() for _ in range(epochs)]


def _network(pair: Pair, options: Options, generator: torch.Generator) -> Network:
    kind = HyperNetwork if by_components(pair, options) else VectorNetwork
    return kind(parts(pair, options), generator)
