"""SPIDER (Mushtaq et al. 2021): each client searches a network of its own beside one that all train together.

Every client has two networks. The global one runs all operators of the supernet in equal shares and is averaged by
samples. The local one never leaves the client. It starts as the global one, and learns the same batches with a pull to
the global weights of the round's start. From round ``proj_start`` on it loses operators. Every ``proj_recovery``
rounds, those of a layer drawn at random are left out one after another. The accuracy of the network without each, on
the client's validation samples, decides. Clients are served their local networks.

Departures from the paper and the public code:

* The space is the configuration's supernet, so that SPIDER and FedorAS search the same one; the paper's is DARTS's
  cells, in which the code also chooses which edges of a node stay.
* A client shrinks in a round of ``proj_recovery`` only if it takes part in it; in the paper all clients do.
* Both networks start alike, and both step with the job's learning rate (the paper's: 0.01 with momentum 0.9).
* Momentum starts anew with each round.

A client that shrinks does so before it trains. The virtual clock takes its steps for those of the network before: only
the client learns which operators go. The round's record counts the MACs that it really computed.

Paper to code, section by section: docs/methods/search.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.core.local_steps import trained_on
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientConfig,
    ClientSamples,
    ClientState,
    ClientTensors,
    Cost,
    Count,
    EvaluationPlan,
    Excludes,
    Feature,
    ModelSpec,
    MultiModelClient,
    NotNegative,
    OpenFraction,
    Population,
    State,
    Task,
    Update,
    WorkItem,
    hold_out,
    models,
    optimizer_of,
    personal_version,
    result,
    stream,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.search.alive_operators import alive_ops, drawn_layer, everything, size_rows, without_each
from fedscale_ext.methods.search.mixtures import mixture_of
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.supernet.family import Searchable, tables
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.training.optimizers.sgd import Pull, Sgd, Steps
from fedscale_ext.transport.wire import Section

SHRINKS = "shrink"  # the stream that draws a client's layer
ALIVE = "alive"  # beside a local state: bool [layers, most operators of a layer]


@dataclass(frozen=True)
class SpiderParams:
    """Hyperparameters of SPIDER.

    Attributes:
        lambda_local: Weight of the pull of a client's local weights to the global ones: (lambda / 2) |w_local -
            w_global|^2. The job's ``prox_mu`` does not reach local networks.
        proj_start: First round in which local networks shrink.
        proj_recovery: Rounds from one shrinking to the next.
        shrink: ``layer`` keeps the operator of a layer without which most accuracy is lost (public code). ``operator``
            removes the one without which least is.
        val_ratio: Share of a client's training samples that it validates with.

    """

    lambda_local: NotNegative = 0.01
    proj_start: Count = 60
    proj_recovery: Count = 30
    shrink: Literal["layer", "operator"] = "layer"
    val_ratio: OpenFraction = 0.2


class Local:
    """A client's local network: its tensors, run by the resident module of the global one."""

    def __init__(self, module: nn.Module, ops: Sequence[Sequence[str]], state: dict[str, Tensor], alive: np.ndarray):
        self._module, self._ops, self.state, self.alive = module, ops, state, alive

    def hold(self, alive: np.ndarray) -> dict[str, Tensor]:
        """Restrict the module to these operators; return their tensors by name."""
        cast(Searchable, self._module).hold(alive_ops(self._ops, alive))
        return {name: self.state[name] for name in self._module.state_dict()}

    def release(self) -> None:
        """Make the module the global one again."""
        cast(Searchable, self._module).hold(self._ops)

    def run(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """Logits [B, classes] of x [B, C, H, W]; buffers among ``tensors`` change."""
        output: Tensor = functional_call(self._module, tensors, (x,))
        return output

    @torch.no_grad()
    def shrink(self, how: str, x: Tensor, y: Tensor, batch: int, rng: np.random.Generator) -> None:
        """Drop operators of a random layer by the accuracy of the network without each of them.

        Of equal accuracies the loss decides. BatchNorm takes the samples' own statistics, as in the public code.

        Args:
            how: "layer" keeps one operator, "operator" drops one.
            x: Validation samples [n, C, H, W].
            y: Their classes int64 [n].
            batch: Samples of a pass.
            rng: Draws the layer.

        """
        layer = drawn_layer(self.alive, rng)
        if layer is None:
            return
        without = {}
        for column, alive in without_each(self.alive, layer).items():
            tensors = {name: tensor.clone() for name, tensor in self.hold(alive).items()}
            logits = torch.cat([self.run(tensors, part) for part in x.split(batch)])
            loss = nn.functional.cross_entropy(logits, y)
            without[column] = (int((logits.argmax(-1) == y).sum()), -float(loss))
        order = sorted(without, key=lambda column: without[column])  # most is lost without the first
        self.alive[layer, order[-1:] if how == "operator" else order[1:]] = False


class SpiderClient(MultiModelClient):
    """Steps both networks on each batch; one client after another, as each has a network of its own.

    ``conf.client_state`` is the local state and ``alive``, the operators that it keeps (empty before the first round:
    the global state, all operators). ``conf.objective["spider"]`` has ``lambda`` and, in rounds in which local networks
    shrink, how (``shrink``). A client that fine-tunes its served model lacks it and trains only its local network.
    """

    in_cohorts: ClassVar[bool] = False

    def _local(self, model: nn.Module, conf: ClientConfig) -> Local:
        client_state, ops = conf.client_state or {}, self.bench.spec(conf.model_key)["ops"]
        state = {name: client_state.get(name, tensor).detach().clone() for name, tensor in model.state_dict().items()}
        alive = client_state[ALIVE].cpu().numpy().copy() if ALIVE in client_state else everything(ops)
        return Local(model, ops, state, alive)

    @torch.no_grad()
    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model`` the client's local network."""
        local = self._local(model, conf)
        for name, tensor in model.state_dict().items():
            tensor.copy_(local.state[name])
        local.hold(local.alive)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train both networks; figures are the global network's, ``client_state`` is the local one. See
        :meth:`MultiModelClient.train`."""
        settings = conf.objective.get("spider")
        if settings is None or conf.client_state is None:
            if conf.client_state is not None:
                self.load_personal_model(model, conf)
            return super().train(client_data, model, conf)
        model.train()
        served = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        local = self._local(model, conf)
        _, validation = hold_out(len(client_data), conf.held_out, conf.seed, conf.client_id)
        if settings["shrink"] and len(validation):
            rows = torch.from_numpy(validation).to(client_data.y.device)
            rng = stream(conf.seed, conf.round, conf.client_id, SHRINKS)
            local.shrink(settings["shrink"], client_data.x[rows], client_data.y[rows], conf.batch_size, rng)
            local.release()
        parameters: list[Tensor] = [tensor for tensor in model.parameters() if tensor.requires_grad]
        steps = optimizer_of(conf).begin(parameters)
        tensors = local.hold(local.alive)
        local_parameters = [
            tensors[name].requires_grad_() for name, tensor in model.named_parameters() if tensor.requires_grad
        ]
        names = [name for name, tensor in model.named_parameters() if tensor.requires_grad]
        pulled = self._pulled(settings["lambda"], local_parameters, [served[name] for name in names], conf)
        step_losses = []
        for x, y in self.seen(client_data, conf):
            local.release()
            losses = self.losses(self.output(model, x, client_data, conf), y)
            steps.step(parameters, list(torch.autograd.grad(losses.mean(), parameters)))
            step_losses.append(losses.detach())
            local.hold(local.alive)
            mine = self.losses(self.output(lambda batch: local.run(tensors, batch), x, client_data, conf), y)
            pulled.step(local_parameters, list(torch.autograd.grad(mine.mean(), local_parameters)))
        local.release()
        new = {name: tensor.detach() for name, tensor in local.state.items()}
        new[ALIVE] = torch.from_numpy(local.alive)
        return {**result(conf, len(client_data), step_losses), "update_weight": model.state_dict(), "client_state": new}

    @staticmethod
    def _pulled(pull: float, parameters: list[Tensor], towards: list[Tensor], conf: ClientConfig) -> Steps:
        """SGD of the local network: its prox term is (lambda/2) |w_local - w_global|^2 (Equation 3)."""
        sgd = Sgd(conf.learning_rate, conf.client_momentum, conf.client_weight_decay, pull, conf.clip_norm)
        velocity = [torch.zeros_like(tensor) for tensor in parameters] if sgd.momentum else []
        return Steps(sgd, Pull(pull, conf.clip_norm, towards if pull else []), velocity)


class LocalNetworks(ClientState):
    """The clients' local states and the operators that they keep, ``alive`` bool [clients, layers, operators]."""

    def __init__(self, folder: Path, template: State, held: np.ndarray, clients: int) -> None:
        super().__init__(folder, clients, {GLOBAL: {**template, ALIVE: torch.from_numpy(held)}})
        self.alive = np.repeat(held[None], clients, axis=0)

    def checked(self, item: WorkItem, section: Section | None) -> State:
        """Check a local network: rejected where a layer has no operator left, or a dropped one is back."""
        tensors = super().checked(item, section)
        alive = tensors[ALIVE].numpy()
        if (alive & ~self.alive[item.client - 1]).any() or not alive.any(1).all():
            raise Rejected("its operators cannot be")
        return tensors

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        super().take(round, item, new)
        self.alive[item.client - 1] = new[ALIVE].numpy()

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        tensors, data = super().state()
        return {**tensors, ALIVE: torch.from_numpy(self.alive)}, data

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:  # noqa: D102
        super().load_state(tensors, data)
        self.alive = tensors[ALIVE].numpy().copy()


class SpiderAggregator(FedAvgAggregator):
    """Clients shrink supernets of their own beside one that is averaged (SPIDER)."""

    about: ClassVar[About] = About("search", 2021, "a supernet")
    Params: ClassVar[type] = SpiderParams
    Client: ClassVar[type] = SpiderClient
    chooses_paths: ClassVar[bool] = True
    keeps_weights: ClassVar[bool] = False  # a local network begins as the global one
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.EARLY_STOP, "removes operators by rounds until one is left on each edge"),
        Excludes(Feature.ADAM, "pulls local weights to the global ones in steps of SGD"),
        Excludes(Feature.CHANGES, "trains a local network beside the global one"),
    )
    unprotected: ClassVar[str] = "the operators of clients' local networks"

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0 of the global network."""
        spec = self._mixture()
        self.pool.add(GLOBAL, spec, models.initial_state(spec, self.seed))
        self.report_weak(self.smallest_cost().forward_macs, "they would train both networks all the same")
        self.tables = tables(spec)
        self._report_few_rounds()

    def _mixture(self) -> ModelSpec:
        return mixture_of(self.initial_spec(), "equal", "spider", self.args.model)

    def smallest_cost(self) -> Cost:
        """Training both networks, as they are before the local one shrinks, and exchanging the global one."""
        one = models.cost(self._mixture())
        return Cost(2 * one.forward_macs, 2 * one.training_macs, 2 * one.parameters, one.bytes)

    def _report_few_rounds(self) -> None:
        """Report that no client's search can end in the job's rounds, if that is so. A client that takes part in few
        of them may not end its one either."""
        rounds, p, choices = self.args.rounds, self.params, self.tables.held.sum(1) - 1
        times = len(range(p.proj_start, rounds + 1, p.proj_recovery))
        needed = int((choices > 0).sum() if p.shrink == "layer" else choices.sum())
        if not times:
            self.notice(
                f"rounds is {rounds}: local networks shrink from round {p.proj_start} on, so this job serves whole "
                "supernets"
            )
        elif times < needed:
            self.notice(
                f"rounds is {rounds}: local networks shrink in {times} round{'s' * (times > 1)}, and a search takes "
                f"{needed}, so none ends with a single path"
            )

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's local network from round to round."""
        held = self.tables.held.copy()
        self.local = LocalNetworks(self.log_dir, self.pool[GLOBAL].state, held, self.task.num_clients)
        return [*super().client_tensors(), self.local]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train both networks; in some rounds the local ones shrink before."""
        p = self.params
        shrinks = round >= p.proj_start and (round - p.proj_start) % p.proj_recovery == 0
        settings = {"lambda": p.lambda_local, "shrink": p.shrink if shrinks else None}
        self.alive_before = self.local.alive.copy()
        items = []
        for client in participants.tolist():
            item = WorkItem(client, GLOBAL, {"spider": settings}, {"held_out": p.val_ratio})
            alive, layer = self.local.alive[client - 1], None
            if shrinks and self.validation_samples(client):
                layer = drawn_layer(alive, stream(self.seed, round, client, SHRINKS))
            items.append(self.with_work(item, alive, layer))
        return items

    def work_done(self, update: Update) -> WorkItem:
        """Count the steps of the network that the client shrank to, and the passes that chose it."""
        before, after = (every[update.client - 1] for every in (self.alive_before, self.local.alive))
        shrunk = np.flatnonzero((before != after).any(1))
        return self.with_work(update.item, after, int(shrunk[0]) if len(shrunk) else None)

    def with_work(self, item: WorkItem, alive: np.ndarray, layer: int | None) -> WorkItem:
        """Return an item with its work: steps of the global network and the local one, passes that choose operators.

        Args:
            item: The item, of a client whose local network was as ``alive_before`` says.
            alive: Operators of the local network in its steps, bool [layers, operators].
            layer: The layer that shrinks, None for none.

        """
        whole, local = self.pool[GLOBAL].cost, self.local_cost(alive)
        passed = 0
        if layer is not None:
            networks = without_each(self.alive_before[item.client - 1], layer).values()
            passes = sum(self.local_cost(network).forward_macs for network in networks)
            passed = self.validation_samples(item.client) * passes
        seen = int(self.task.step_sizes(item.client, item.overrides).sum())
        backward = 1 + (local.training_macs - local.forward_macs) / (whole.training_macs - whole.forward_macs)
        forward = 1 + local.forward_macs / whole.forward_macs + passed / (seen * whole.forward_macs)
        return replace(item, compute_fraction=backward, forward_fraction=forward - backward)

    def validation_samples(self, client: int) -> int:
        """Number of samples that a client holds out."""
        samples = int(self.task.train_sizes[client - 1])
        return samples - trained_on(samples, self.params.val_ratio)

    def local_cost(self, alive: np.ndarray) -> Cost:
        """Cost of the local network with these operators, bool [layers, operators]."""
        spec = self.pool[GLOBAL].spec
        return models.cost(spec.replace(ops=alive_ops(spec["ops"], alive)))

    def local_costs(self) -> list[Cost]:
        """Cost of each client's newest local network, index client - 1."""
        return [self.local_cost(alive) for alive in self.local.alive]

    def personal_bytes(self) -> Sequence[float]:
        """Bytes of the operators that each client's local network keeps, and of what all networks have."""
        return [float(cost.bytes) for cost in self.local_costs()]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take the clients' mean of the global network, by samples."""
        super().aggregate(round, updates, means)
        self.record("operators", {u.client: int(self.local.alive[u.client - 1].sum()) for u in updates})
        costs = {update.client: self.local_cost(self.local.alive[update.client - 1]) for update in updates}
        self.record("local_macs", {client: cost.forward_macs for client, cost in costs.items()})

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its local network; test the global one beside."""
        return EvaluationPlan([personal_version(GLOBAL)] * self.task.num_clients, {"global": GLOBAL})

    def results(self) -> dict[str, Any]:
        """Report the sizes of the clients' local networks, and the memory of a client's step before its one shrinks.

        State and momentum in memory are those of two networks.
        """
        moments = int(self.config.job.client_momentum > 0)
        one = training_memory(self.pool[GLOBAL].spec, self.args.batch_size, moments=moments)
        both = one._replace(state=2 * one.state, optimizer=2 * one.optimizer)
        return {
            "memory": [{"network": "global and local", **both.megabytes()}],
            "local_networks": size_rows(self.local_costs()),
        }
