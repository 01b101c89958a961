"""FedorAS's clients: for each batch a path of the subspace that they were sent, and a step of SGD on it (section 3.1).

The paper does not say what happens to an operator that a path leaves out. Until its first path in a client's training,
nothing moves it. From then on its gradient is zero where a path leaves it out, so that momentum and weight decay keep
moving it: the public code pins torch 1.13, whose ``zero_grad()`` leaves zeros, and SGD skips only missing gradients.
With ``fedoras.idle_gradient: none`` such an operator rests, and keeps its momentum until a path has it again (what the
same code does from torch 2.0 on). The optimiser is made anew for each client and round.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.executor.executor import MultiModelExecutor
from fedscale_ext.methods.fedoras.brackets import budget_tables
from fedscale_ext.methods.fedoras.judge_task import Judge
from fedscale_ext.methods.fedoras.operator_aggregation import Operator, operator_of
from fedscale_ext.methods.fedoras.path_sampling import drawn_paths
from fedscale_ext.methods.fedoras.subspace_sampling import held_by
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.tasks.kind import Kind
from fedscale_ext.training.local_training import Bench, MultiModelClient
from fedscale_ext.training.optimizers.sgd import Pull, Sgd, Steps
from fedscale_ext.training.outcome import result
from fedscale_ext.training.samples import ClientSamples

IdleGradient = Literal["zero", "none"]
EXAMPLES = "examples"  # of what clients hand back: how many went through each operator, int64 [layers, operators]


def reads_everywhere(spec: ModelSpec) -> bool:
    """Whether the network is trained on its outputs at every position of a text."""
    return dict(spec.fields).get("readout") == "all"


class Paths:
    """A supernet whose paths train in turn: its trainable ``parameters``, and which of them a path uses."""

    def __init__(self, model: nn.Module) -> None:
        self._model = cast(Searchable, model)
        self.parameters: list[Tensor] = []
        self._shared: list[int] = []
        self._by_operator: dict[Operator, list[int]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                operator = operator_of(name)
                indices = self._shared if operator is None else self._by_operator.setdefault(operator, [])
                indices.append(len(self.parameters))
                self.parameters.append(parameter)

    def choose(self, path: Sequence[str]) -> list[int]:
        """Make the network that of a path; return the indices of its parameters."""
        self._model.choose(path)
        return self._shared + [index for operator in enumerate(path) for index in self._by_operator.get(operator, ())]


class PathSgd:
    """SGD on ``parameters`` of which each step has gradients for some.

    ``idle``: the gradient of a parameter that had one in an earlier step and has none in this one; with "none" that
    parameter is not touched.
    """

    def __init__(self, sgd: Sgd, parameters: Sequence[Tensor], idle: IdleGradient) -> None:
        self._sgd, self._parameters = sgd, parameters
        # without these a gradient of zero moves nothing
        moves = bool(sgd.momentum or sgd.weight_decay or sgd.mu)
        self._zeros = idle == "zero" and moves
        self._started: set[int] = set()  # parameters that had a gradient
        self._velocity: dict[int, Tensor] = {}
        self._origin: dict[int, Tensor] = {}  # of the prox term: what a parameter was before its first step

    @torch.no_grad()
    def step(self, indices: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Step the parameters ``indices`` that have a gradient, and the idle ones, in place."""
        by_index = {index: gradient for index, gradient in zip(indices, gradients, strict=True) if gradient is not None}
        for index in by_index.keys() - self._started:
            if self._sgd.mu:
                self._origin[index] = self._parameters[index].detach().clone()
            if self._sgd.momentum:
                self._velocity[index] = torch.zeros_like(self._parameters[index])
        if self._zeros:
            by_index |= {
                index: torch.zeros_like(self._parameters[index]) for index in sorted(self._started - by_index.keys())
            }
        self._started |= by_index.keys()
        used = [self._parameters[index] for index in by_index]
        origin = [self._origin[index] for index in by_index] if self._sgd.mu else []
        velocity = [self._velocity[index] for index in by_index] if self._sgd.momentum else []
        pull = Pull(self._sgd.mu, self._sgd.clip_norm, origin)
        Steps(self._sgd, pull, velocity).step(used, list(by_index.values()))


class FedorASClient(MultiModelClient):
    """Client that trains another path in each step, and so one client after another.

    ``conf.objective["paths"]`` has the tier's ``budget`` in MACs, its ``unsupported`` operators, the device's ``load``
    and the ``idle_gradient``. Without it, a client trains its model as it is.
    """

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._spec, self._supernet = bench.spec(conf.model_key), bench.host(conf.model_key)  # the part, and the whole
        self._everywhere = reads_everywhere(self._spec)

    def seen(self, data: ClientSamples, conf: ClientConfig) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches; for texts that are read at every position, labels are the next symbols, [B, T]."""
        for x, y in super().seen(data, conf):
            if self._everywhere:
                y = torch.cat([x.flatten(1)[:, 1:].to(y.dtype), y[:, None]], 1)
            yield x, y

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample; for a text the mean over its positions."""
        losses = super().losses(output, labels)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train a path on each batch; ``returned`` of the result has the examples of each operator."""
        settings = conf.objective.get("paths")
        if settings is None:
            return super().train(client_data, model, conf)
        costs = budget_tables(self._supernet, tuple(settings["unsupported"]))
        paths = drawn_paths(
            costs, held_by(costs, self._spec), settings["budget"], settings["load"], conf.local_steps,
            conf.seed, conf.round, conf.client_id,
        )  # fmt: skip
        model.train()
        network = Paths(model)
        sgd = PathSgd(Sgd.of(conf), network.parameters, settings["idle_gradient"])
        examples, layers = np.zeros(costs.held.shape, dtype=np.int64), np.arange(len(costs.ops))
        step_losses = []
        for (x, y), chosen in zip(self.seen(client_data, conf), paths, strict=True):
            used = network.choose(costs.path(chosen))
            losses = self.losses(self.output(model, x, client_data, conf), y)
            parameters = [network.parameters[index] for index in used]
            gradients = torch.autograd.grad(losses.mean(), parameters, allow_unused=True)
            sgd.step(used, gradients)
            examples[layers, chosen] += len(x)
            step_losses.append(losses.detach())
        figures = result(conf, len(client_data), step_losses)
        returned = {EXAMPLES: torch.from_numpy(examples)}
        return {**figures, "update_weight": model.state_dict(), "returned": returned}


def fedoras_client(conf: ClientConfig, bench: Bench) -> MultiModelClient:
    """Create a client that trains paths, or one that trains its model as it is."""
    if conf.objective.get("paths") is None and not reads_everywhere(bench.spec(conf.model_key)):
        return MultiModelClient(conf, bench)
    return FedorASClient(conf, bench)


class FedorASExecutor(MultiModelExecutor):
    """Executor whose clients train a path in each step (section 3.1) or one model (3.3), or judge paths (3.2)."""

    kinds: ClassVar[tuple[Kind, ...]] = (Judge(),)
