"""FedorAS's clients: for each batch a path of the subspace that they were sent, and a step of SGD on it (section 3.1).

SGD leaves alone what the path does not use: a parameter without a gradient is not touched, by momentum and weight decay
neither. What an operator's momentum had become stays until a later path has that operator again (as in the public code,
where gradients that do not exist are skipped).
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.methods.fedoras.operator_aggregation import Operator, operator_of
from fedscale_ext.methods.fedoras.path_sampling import drawn_paths
from fedscale_ext.methods.fedoras.subspace_sampling import held_by
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.models.supernet import Searchable, Tables, tables
from fedscale_ext.runtime.executor import MultiModelExecutor
from fedscale_ext.runtime.outcome import result
from fedscale_ext.runtime.samples import ClientSamples
from fedscale_ext.runtime.sgd import Pull, Sgd, Steps
from fedscale_ext.runtime.training import MultiModelClient

EXAMPLES = "examples"  # of what clients hand back: how many went through each operator, int64 [layers, operators]


@lru_cache(maxsize=64)
def budget_tables(supernet: ModelSpec, unsupported: tuple[str, ...]) -> Tables:
    """Costs as tiers' budgets are given: by the paper's count."""
    return tables(supernet, unsupported=unsupported, published=True)


class Paths:
    """A supernet whose paths train in turn: its trainable ``parameters``, and which of them a path uses."""

    def __init__(self, model: nn.Module) -> None:
        self._model = cast(Searchable, model)
        self.parameters: list[Tensor] = []
        self._shared: list[int] = []
        self._own: dict[Operator, list[int]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                operator = operator_of(name)
                places = self._shared if operator is None else self._own.setdefault(operator, [])
                places.append(len(self.parameters))
                self.parameters.append(parameter)

    def choose(self, path: Sequence[str]) -> list[int]:
        """Make the network that of a path; places of its parameters."""
        self._model.choose(path)
        return self._shared + [place for operator in enumerate(path) for place in self._own.get(operator, ())]


class PathSgd:
    """SGD on ``parameters`` of which each step has gradients for some."""

    def __init__(self, sgd: Sgd, parameters: Sequence[Tensor]) -> None:
        self._sgd, self._parameters = sgd, parameters
        self._velocity: dict[int, Tensor] = {}
        self._origin: dict[int, Tensor] = {}  # of the prox term: what a parameter was before its first step

    @torch.no_grad()
    def step(self, places: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """A step of the parameters ``places`` that have a gradient, in place."""
        with_gradient = [(place, own) for place, own in zip(places, gradients, strict=True) if own is not None]
        used = [self._parameters[place] for place, _ in with_gradient]
        for place, parameter in zip((place for place, _ in with_gradient), used, strict=True):
            if self._sgd.mu and place not in self._origin:
                self._origin[place] = parameter.detach().clone()
            if self._sgd.momentum and place not in self._velocity:
                self._velocity[place] = torch.zeros_like(parameter)
        origin = [self._origin[place] for place, _ in with_gradient] if self._sgd.mu else []
        velocity = [self._velocity[place] for place, _ in with_gradient] if self._sgd.momentum else []
        pull = Pull(self._sgd.mu, self._sgd.clip_norm, origin)
        Steps(self._sgd, pull, velocity).step(used, [own for _, own in with_gradient])


class FedorASClient(MultiModelClient):
    """Trains a path of its own in each step, so one client after another. ``conf.paths`` has the tier's ``budget`` in
    MACs, its ``unsupported`` operators and the device's own ``load``; a client without it trains its model as it is."""

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: Namespace, spec: ModelSpec | None = None, supernet: ModelSpec | None = None) -> None:
        super().__init__(conf)
        self._spec, self._supernet = spec, supernet  # what is held, and of what; None where only asked for the class
        self._everywhere = spec is not None and dict(spec.fields).get("readout") == "all"

    def seen(self, data: ClientSamples, conf: Namespace) -> Iterator[tuple[Tensor, Tensor]]:
        """Of texts that are read at every position, the labels are what follows each, [B, T]."""
        for x, y in super().seen(data, conf):
            if self._everywhere:
                y = torch.cat([x.flatten(1)[:, 1:].to(y.dtype), y[:, None]], 1)
            yield x, y

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Of each sample; of a text the mean over its positions."""
        losses = super().losses(output, labels)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; ``returned`` of the result has the examples of each operator."""
        asked = getattr(conf, "paths", None)
        if asked is None or self._spec is None or self._supernet is None:
            return super().train(client_data, model, conf)
        costs = budget_tables(self._supernet, tuple(asked["unsupported"]))
        paths = drawn_paths(
            costs, held_by(costs, self._spec), asked["budget"], asked["load"], conf.local_steps,
            conf.seed, conf.round, conf.client_id,
        )  # fmt: skip
        model.train()
        network = Paths(model)
        sgd = PathSgd(Sgd.of(conf), network.parameters)
        examples, layers = np.zeros(costs.held.shape, dtype=np.int64), np.arange(len(costs.ops))
        found = []
        for (x, y), chosen in zip(self.seen(client_data, conf), paths, strict=True):
            used = network.choose(costs.path(chosen))
            losses = self.losses(self.output(model, x, client_data, conf), y)
            parameters = [network.parameters[place] for place in used]
            gradients = torch.autograd.grad(losses.mean(), parameters, allow_unused=True)
            sgd.step(used, gradients)
            examples[layers, chosen] += len(x)
            found.append(losses.detach())
        figures = result(conf, len(client_data), found)
        returned = {EXAMPLES: torch.from_numpy(examples)}
        return {**figures, "update_weight": model.state_dict(), "returned": returned}


class FedorASExecutor(MultiModelExecutor):
    """Its clients are told which operators they hold, and of which supernet."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How FedorAS's clients train."""
        return FedorASClient(conf)

    def training_handler(self, client_id: int, conf: Namespace, model: str) -> dict[str, Any]:
        """One client on the resident supernet, which holds its subspace alone."""
        return self.work.train_client(model, FedorASClient(conf, self.bench.spec(model), self.bench.host(model)), conf)
