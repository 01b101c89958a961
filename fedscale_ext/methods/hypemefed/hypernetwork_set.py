"""All hypernetworks of a model: trained on a round's deep clients, generating what shallow ones lack (section 4.4)."""

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
from fedscale_ext.methods.hypemefed.hypernetwork import (
    HyperNetwork,
    Moments,
    Network,
    VectorNetwork,
    by_components,
    parts,
)
from fedscale_ext.methods.hypemefed.hypernetwork_training import train
from fedscale_ext.methods.hypemefed.losses import Target
from fedscale_ext.methods.hypemefed.pairs import Pair, Tensors, kinds, pairs
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.methods.hypemefed.rescaling import factor_to
from fedscale_ext.methods.hypemefed.sizes import check_memory
from fedscale_ext.util.threads import in_threads
from fedscale_ext.util.torch_devices import CPU, threads_on


class HyperNetworks:
    """A network per pair of layers, by the target's name such as ``block2.conv1``.

    ``skipped``: layers that are never generated, with the reasons; ``diverged``: targets of the networks whose last
    training diverged, which are as they were before it; ``not_finite``: targets that the last generation left out for
    some state, because their numbers were not finite; ``orders``: by target, in which order the last training took the
    states, in each epoch. Results depend only on generators and states: pairs train in ``threads`` threads at
    once, one torch thread each.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        params: HyperNetworkParams,
        generator: torch.Generator,
        device: torch.device = CPU,
        threads: int | None = None,
    ) -> None:
        """Draw the networks of a full model's state, which ``shapes`` describes by name.

        Args:
            shapes: Shape of each tensor of the full model's state.
            params: Hyperparameters of the hypernetworks.
            generator: Draws the initial values.
            device: Where the networks train and generate. States come from the CPU and generated tensors return to it.
            threads: How many pairs train at once; by default, as many as the machine has processors, and one on a GPU.

        Raises:
            UserError: The networks do not fit into memory.

        """
        self.params, self.device = params, device
        self.threads = threads or threads_on(device)
        self.pairs, self.skipped = pairs(shapes, kinds(params.generate))
        check_memory(self.pairs, params, self.threads, device)
        self.networks = {pair.target: _network(pair, params, generator) for pair in self.pairs}
        self.diverged: list[str] = []
        self.not_finite: list[str] = []
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
        self, states: Sequence[Tensors], shuffle: Callable[[str], np.random.Generator] | None = None
    ) -> dict[str, list[float]]:
        """Train each pair on the states that hold both of its layers (sections 4.1, step 4, and 4.3).

        H_{1->2} thus learns from clients of the second and of the third exit. Section 4.4 names only the former for it,
        and clients of the full model for H_{2->3}; the third exit's clients hold the layers of both.

        A pair that no state holds stays as it is: the deepest one in a round without a client of that level, where
        the public code crashes.

        Args:
            states: States of the round's clients, whole or in part.
            shuffle: Gives each target's generator of the order in which an epoch takes the states. Without it, every
                epoch takes them as they come.

        Returns:
            Losses by epoch of each pair that was trained, by target.

        """
        largest_first = sorted(self.pairs, key=lambda pair: -self.networks[pair.target].parameters)
        results = in_threads(largest_first, lambda pair: self._train(pair, states, shuffle), self.threads)
        losses = {pair.target: each for pair, each in zip(largest_first, results, strict=True)}
        self.diverged = [pair.target for pair in self.pairs if losses[pair.target] is None]
        return {pair.target: each for pair in self.pairs if (each := losses[pair.target])}

    def generate(
        self, states: Sequence[Tensors], norms: Mapping[str, float] | None = None
    ) -> list[dict[str, torch.Tensor]]:
        """Generate what each state lacks, block after block (section 4.4).

        A block's weights come from the one before, real or generated (auto-regressive). Networks that were never
        trained generate nothing, nor do those after them. The same holds for a state from which a network generates
        numbers that are not finite; ``not_finite`` then names its target.

        Args:
            states: States of shallow clients.
            norms: Norm by tensor's name to which a generated tensor is scaled before the next block is generated
                from it. Without them, tensors stay as they are.

        Returns:
            For each state the generated tensors, by name.

        """
        results = in_threads(states, lambda state: self._generate(state, norms), self.threads)
        lost = {target for _, targets in results for target in targets}
        self.not_finite = [pair.target for pair in self.pairs if pair.target in lost]
        return [generated for generated, _ in results]

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, JSON) for a checkpoint; the tensors are the networks' own, to be written before they train on."""
        tensors = {}
        for name, network in self.networks.items():
            tensors[f"{name}.values"] = network.values.cpu()
            if network.moments is not None:
                tensors |= {f"{name}.{part}": value.cpu() for part, value in network.moments._asdict().items()}
        return tensors, {"rounds": {name: network.rounds for name, network in self.networks.items()}}

    def load_state(self, tensors: Tensors, json: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned; KeyError or RuntimeError where it is of other networks."""
        for name, network in self.networks.items():
            network.values.copy_(tensors[f"{name}.values"])
            moments = [tensors[key] for part in Moments._fields if (key := f"{name}.{part}") in tensors]
            network.moments = Moments(*(part.to(self.device, copy=True) for part in moments)) if moments else None
            network.rounds = int(json["rounds"][name])

    def _train(
        self, pair: Pair, states: Sequence[Tensors], shuffle: Callable[[str], np.random.Generator] | None
    ) -> list[float] | None:
        """Train one pair's network: its losses by epoch, or None where it diverged."""
        names = pair.names(pair.source) + pair.names(pair.target)
        holding = [index for index, state in enumerate(states) if all(name in state for name in names)]
        orders = _orders(len(holding), self.params.epochs, None if shuffle is None else shuffle(pair.target))
        self.orders[pair.target] = [[holding[index] for index in order] for order in orders]
        try:
            return train(
                self.networks[pair.target],
                [self.sample(pair, states[index]) for index in holding],
                orders,
                self.params.lr,
                keep_moments=self.params.optimizer == "kept",
                precision=getattr(torch, self.params.precision),
            )
        except FloatingPointError:
            return None

    def sample(self, pair: Pair, state: Tensors) -> tuple[Any, Any]:
        """The sample (input, target) that a state with both layers gives a pair's network.

        For :class:`HyperNetwork` the input is P [I kh, k], Q [k, O kw] of the source; the target is the next weight as
        a matrix [I' kh, O' kw], or its own components. For :class:`VectorNetwork` both are rows [n, width].
        """
        if not isinstance(self.networks[pair.target], HyperNetwork):
            return self._rows(pair, pair.source, state), self._rows(pair, pair.target, state)
        target = to_matrix(self._on_device(state[f"{pair.target}.weight"]))
        if self.params.loss == "factors":
            return self._factors(pair, state), factors(target, self.params.components)
        return self._factors(pair, state), Target.of(target)

    def _generate(self, state: Tensors, norms: Mapping[str, float] | None) -> tuple[dict[str, torch.Tensor], list[str]]:
        """Generate the tensors that one state lacks, by name; and name the targets whose numbers are not finite."""
        generated: dict[str, torch.Tensor] = {}
        not_finite = []
        known: dict[str, Factors] = {}  # of generated weights, whose components need no large decomposition
        for pair in self.pairs:
            network = self.networks[pair.target]
            if pair.names(pair.target)[0] in state or not network.rounds:
                continue
            if not all(name in state or name in generated for name in pair.names(pair.source)):
                continue
            try:
                if isinstance(network, HyperNetwork):
                    tensors = self._next_weight(pair, network, state, known, norms)
                else:
                    assert isinstance(network, VectorNetwork)
                    tensors = self._next_vectors(pair, network, {**state, **generated}, norms)
            except torch.linalg.LinAlgError:  # finite numbers, too large to be decomposed
                tensors = {}
            if tensors and all(bool(value.isfinite().all()) for value in tensors.values()):
                generated |= tensors
            else:
                not_finite.append(pair.target)
        return generated, not_finite

    def _next_weight(
        self,
        pair: Pair,
        network: HyperNetwork,
        state: Tensors,
        known: dict[str, Factors],
        norms: Mapping[str, float] | None,
    ) -> Tensors:
        """Generate a pair's target by components, and add them to ``known``."""
        before = known.get(pair.source)
        source = (
            self._factors(pair, state) if before is None else product_factors(*before, self.params.components)
        )  # P [I kh, k], Q [k, O kw]
        p, q = network.predict(source)  # [I' kh, k], [k, O' kw]
        weight = p @ q  # [I' kh, O' kw]
        if norms is not None:
            factor = factor_to(norms[f"{pair.target}.weight"], weight)
            p, q, weight = p * factor**0.5, q * factor**0.5, weight * factor
        known[pair.target] = p, q
        return {f"{pair.target}.weight": to_weight(weight, pair.target_shapes["weight"]).cpu()}

    def _next_vectors(
        self, pair: Pair, network: VectorNetwork, state: Tensors, norms: Mapping[str, float] | None
    ) -> Tensors:
        """Generate a pair's target from the rows of its source."""
        rows = network.predict(self._rows(pair, pair.source, state))  # [n, width]
        tensors = {}
        for leaf, value in vectors.unpack(pair.kind, rows, pair.target_shapes).items():
            name = f"{pair.target}.{leaf}"
            tensors[name] = (value if norms is None else value * factor_to(norms[name], value)).cpu()
        return tensors

    def _factors(self, pair: Pair, state: Tensors) -> Factors:
        """P [I kh, k] and Q [k, O kw] of a state's source layer."""
        return factors(to_matrix(self._on_device(state[f"{pair.source}.weight"])), self.params.components)

    def _rows(self, pair: Pair, layer: str, state: Tensors) -> torch.Tensor:
        """Rows [n, width] of one of the pair's layers."""
        shapes = pair.source_shapes if layer == pair.source else pair.target_shapes
        return vectors.pack(pair.kind, {leaf: self._on_device(state[f"{layer}.{leaf}"]) for leaf in shapes})

    def _on_device(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().to(self.device, torch.float32)


def _orders(samples: int, epochs: int, rng: np.random.Generator | None) -> list[list[int]]:
    """Indices of the samples in each epoch: shuffled anew, or without ``rng`` as they come."""
    return [list(range(samples)) if rng is None else rng.permutation(samples).tolist() for _ in range(epochs)]


def _network(pair: Pair, params: HyperNetworkParams, generator: torch.Generator) -> Network:
    kind = HyperNetwork if by_components(pair, params) else VectorNetwork
    return kind(parts(pair, params), generator)
