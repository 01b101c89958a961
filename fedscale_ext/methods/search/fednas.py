"""FedNAS (He, Annavaram and Avestimehr, 2020): a search by gradients, of weights and of alphas, averaged by the server.

Search (Algorithm 1): all clients train the same mixture of all candidate operators; each step moves the alphas by the
gradient of the losses on a training and on a validation batch (Equation 5), then the weights on the training
batch. The server's weights and alphas are the clients' means by samples. Then the operator of the largest alpha in
each layer makes a network that FedAvg trains.

Departures from the paper and the public code:

* Alphas are tensors of the model like any other, so that the server's mean takes them in. The public code averages
  them into a variable that is bound anew in each pass, and hands out the alphas of its first client.
* The space is the configuration's supernet, so that FedNAS and FedorAS search the same one; the paper's is DARTS's
  cells.
* Clients validate with a part of their own training samples; the public code takes their test samples.
* Weights step by the job's optimiser (the paper's: SGD, learning rate 0.025, momentum 0.9, weight decay 3e-4,
  clipping at 5), Adam's moments of the alphas start anew with each round. The learning rate falls as a cosine (DARTS's)
  over the rounds of the search, and again over those of the network that it derives.

Paper to code, section by section: docs/methods/search.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.local_steps import batches, trained_on
from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    ClientSamples,
    Cost,
    Count,
    Decay,
    EvaluationPlan,
    Excludes,
    Feature,
    ModelSpec,
    MultiModelClient,
    NotNegative,
    OpenFraction,
    Population,
    Positive,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    hold_out,
    models,
    optimizer_of,
    result,
    stream,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.search.mixtures import mixture_of
from fedscale_ext.models.counting import BATCH, count
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.registry import skeleton
from fedscale_ext.models.supernet.family import mixed, path_of
from fedscale_ext.training.optimizers.adam import Adam

SEARCHED, DERIVED = "supernet", "derived"
ALPHAS = "alphas."  # begins the names of a mixture's alphas


@dataclass(frozen=True)
class FedNASParams:
    """Hyperparameters of FedNAS.

    Attributes:
        search_rounds: Rounds of search. The derived network trains in the rounds after them.
        init: The derived network starts from ``random`` weights, as in the paper, or from ``inherited`` ones of the
            search.
        schedule: Schedule of the weights' learning rate: a ``cosine`` down to ``lr_min``, or the ``job``'s decay. It
            begins anew with the derived network. The second cosine ends with the last round, or when ``stop_macs`` is
            spent. With ``cosine``, a job whose ``rounds`` exceed ``search_rounds`` cannot be resumed with more.
        lr_min: Learning rate at which the cosine ends.
        lambda_train: Weight of the training loss in the gradient of the alphas (Eq. 5).
        lambda_val: Weight of the validation loss in the gradient of the alphas (Eq. 5).
        val_ratio: Share of a client's training samples that it validates with.
        alpha_lr: Learning rate of Adam on the alphas, as in DARTS.
        alpha_beta1: Decay beta_1 of Adam on the alphas, as in DARTS.
        alpha_beta2: Decay beta_2 of Adam on the alphas, as in DARTS.
        alpha_weight_decay: Weight decay of Adam on the alphas, as in DARTS.

    """

    search_rounds: Count = 50
    init: Literal["random", "inherited"] = "random"
    schedule: Literal["cosine", "job"] = "cosine"
    lr_min: NotNegative = 1e-3
    lambda_train: NotNegative = 1.0
    lambda_val: NotNegative = 1.0
    val_ratio: OpenFraction = 0.5
    alpha_lr: Positive = 3e-4
    alpha_beta1: Decay = 0.5
    alpha_beta2: Decay = 0.999
    alpha_weight_decay: NotNegative = 1e-3

    def __post_init__(self) -> None:
        if not (self.lambda_train or self.lambda_val):
            raise UserError("fednas.lambda_train and lambda_val must not both be zero")

    def follows_rounds(self, rounds: int) -> str:
        """Return the cosine over the rounds after the search, where there are some."""
        return "fednas.schedule: cosine" if self.schedule == "cosine" and rounds > self.search_rounds else ""


def alphas_share(spec: ModelSpec) -> float:
    """MACs of a backward pass to a mixture's alphas, as a share of that to its weights.

    It has no gradients of weights, and none of what comes before the first alphas.
    """
    network = skeleton(spec)
    for name, tensor in network.named_parameters():
        tensor.requires_grad_(name.startswith(ALPHAS))
    forward, both = count(network, torch.empty(BATCH, *spec["input_shape"], device="meta"))
    return (both - forward) / (models.cost(spec).training_macs - forward)


class FedNASClient(MultiModelClient):
    """A client of the search.

    ``conf.objective["search"]`` has the weights of the losses (``train``, ``val``) and Adam's settings.

    One client after another: a step takes two batches and two optimisers. A client without a validation part (a single
    sample) moves its alphas only by the training loss, as far as that counts.
    """

    in_cohorts: ClassVar[bool] = False

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Step the alphas, then the weights, on each batch (Equation 5). The reported loss is that of the weights'
        steps."""
        model.train()
        search = conf.objective["search"]
        named = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
        alphas: list[Tensor] = [tensor for name, tensor in named if name.startswith(ALPHAS)]
        weights: list[Tensor] = [tensor for name, tensor in named if not name.startswith(ALPHAS)]
        by_alphas = Adam(**search["adam"], eps=1e-8, mu=0.0, clip_norm=None).begin(alphas)
        by_weights = optimizer_of(conf).begin(weights)
        _, validation = hold_out(len(client_data), conf.held_out, conf.seed, conf.client_id)
        rng = stream(conf.seed, conf.round, conf.client_id, "validation batches")
        rows = list(batches(len(validation), conf.batch_size, conf.local_steps, rng)) if len(validation) else []
        step_losses = []
        for step, (x, y) in enumerate(self.seen(client_data, conf)):
            terms = []
            if search["train"]:
                terms.append(search["train"] * self._loss(model, x, y, client_data, conf).mean())
            if search["val"] and rows:
                chosen = torch.from_numpy(validation[rows[step]]).to(client_data.y.device)
                seen, labels = client_data.x[chosen], client_data.y[chosen]
                terms.append(search["val"] * self._loss(model, seen, labels, client_data, conf).mean())
            if terms:
                by_alphas.step(alphas, list(torch.autograd.grad(sum(terms, torch.zeros(())), alphas)))
            losses = self._loss(model, x, y, client_data, conf)
            by_weights.step(weights, list(torch.autograd.grad(losses.mean(), weights)))
            step_losses.append(losses.detach())
        return {**result(conf, len(client_data), step_losses), "update_weight": model.state_dict()}

    def _loss(self, model: nn.Module, x: Tensor, y: Tensor, samples: ClientSamples, conf: ClientConfig) -> Tensor:
        return self.losses(self.output(model, x, samples, conf), y)


class FedNASAggregator(FedAvgAggregator):
    """Searches a network by gradients, with weights and alphas averaged, then trains it (FedNAS)."""

    about: ClassVar[About] = About("search", 2020, "a supernet")
    Params: ClassVar[type] = FedNASParams
    chooses_paths: ClassVar[bool] = True
    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.CHANGES, "steps its alphas by Adam on other losses"),)

    @staticmethod
    def Client(conf: ClientConfig, bench: Bench) -> MultiModelClient:
        """Create a client that searches, or one that trains the derived network as FedAvg's."""
        return (FedNASClient if "search" in conf.objective else MultiModelClient)(conf, bench)

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0 and alpha_0 of the mixture."""
        spec = self._mixture()
        supernet = self.pool.add(SEARCHED, spec, models.initial_state(spec, self.seed))
        self._alphas_share = alphas_share(spec)
        self.report_weak(supernet.cost.forward_macs, "they would train it all the same")
        rounds, searched = self.args.rounds, self.params.search_rounds
        if rounds < searched:
            self.notice(
                f"rounds is {rounds}: the search ends with round {searched}, so this job derives no network and serves "
                "the whole supernet"
            )
        elif rounds == searched:
            self.notice(
                f"rounds is {rounds}: the search ends with the last one, so the network that it derives does not train"
            )

    def _mixture(self) -> ModelSpec:
        return mixture_of(self.initial_spec(), "alphas", "fednas", self.args.model)

    def smallest_cost(self) -> Cost:
        """Training and exchanging the mixture. The supernet alone costs less: there, a step takes one path."""
        return models.cost(self._mixture())

    @property
    def model(self) -> str:
        """Key of the model that clients train and are served now."""
        return DERIVED if DERIVED in self.pool else SEARCHED

    def learning_rate(self, round: int) -> float:
        """A cosine over the search, and another over the rounds that follow it."""
        p, first = self.params, float(self.args.learning_rate)
        searching = round <= p.search_rounds
        step, steps = (round, p.search_rounds) if searching else (
            round - p.search_rounds, self.args.rounds - p.search_rounds)  # fmt: skip
        if p.schedule == "job":
            return super().learning_rate(step)
        least, done = min(p.lr_min, first), min(1.0, (step - 1) / max(1, steps - 1))
        done = max(done, self.spent_share(after=p.search_rounds))
        return least + (first - least) * (1 + cos(pi * done)) / 2

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let S_t search, or train the derived network."""
        if self.model == DERIVED:
            return [WorkItem(client, DERIVED) for client in participants.tolist()]
        p = self.params
        adam = {"lr": p.alpha_lr, "beta1": p.alpha_beta1, "beta2": p.alpha_beta2, "weight_decay": p.alpha_weight_decay}
        search = {"train": p.lambda_train, "val": p.lambda_val, "adam": adam}
        objective, overrides = {"search": search}, {"held_out": p.val_ratio}
        return [self._searching(client, objective, overrides) for client in participants.tolist()]

    def _searching(self, client: int, objective: Mapping[str, Any], overrides: Mapping[str, Any]) -> WorkItem:
        passes, backward = self._passes(client, overrides), self._alphas_share
        return WorkItem(
            client, SEARCHED, objective, overrides,
            compute_fraction=1.0 + passes * backward, forward_fraction=passes * (1.0 - backward),
        )  # fmt: skip

    def _passes(self, client: int, overrides: Mapping[str, Any]) -> float:
        """Passes of the alphas' losses, per pass of the weights': on the same batches, and on those of validation."""
        p, samples, sizes = self.params, int(self.task.train_sizes[client - 1]), self.task.step_sizes(client, overrides)
        validated = min(samples - trained_on(samples, p.val_ratio), self.task.batch_size) * len(sizes)
        return (p.lambda_train > 0) + (p.lambda_val > 0) * validated / float(sizes.sum())

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take the clients' means of w and alpha, by samples (Algorithm 1, server)."""
        self.pool.update(self.model, means[self.model])
        if self.model == SEARCHED:
            alphas = [self._alphas(layer).softmax(0).tolist() for layer in range(len(self._spec["ops"]))]
            self.record("alphas", alphas)

    def evolve(self, round: int) -> None:
        """Derive the network after the last round of the search."""
        if self.model == SEARCHED and round >= self.params.search_rounds:
            spec = path_of(mixed(self._spec, None), self.genotype())
            state = models.initial_state(spec, self.seed)
            if self.params.init == "inherited":
                state = {name: self.pool[SEARCHED].state[name] for name in state}
            self.pool.add(DERIVED, spec, state)
            cost = self.pool[DERIVED].cost
            self.notice(
                f"round {round}: the search ends, the network that it found has {cost.forward_macs / 1e6:.4g} MMACs "
                f"and {cost.parameters:,} parameters: {' '.join(self.genotype())}"
            )

    def genotype(self) -> tuple[str, ...]:
        """The operator of the largest alpha in each layer; of equal ones the first."""
        return tuple(held[int(self._alphas(layer).argmax())] for layer, held in enumerate(self._spec["ops"]))

    @property
    def _spec(self) -> ModelSpec:
        return self.pool[SEARCHED].spec

    def _alphas(self, layer: int) -> torch.Tensor:
        return self.pool[SEARCHED].state[f"{ALPHAS}{layer}"]

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve every client the mixture, later the derived network."""
        return EvaluationPlan([self.model] * self.task.num_clients, {"global": self.model})

    def unfinished_notice(self) -> str | None:
        """What the job's end cut off: the search, or the training of its network. None where ``rounds`` did, which a
        notice before the first round tells."""
        if self.args.rounds <= self.params.search_rounds:
            return None
        if self.model == SEARCHED:
            return "the search did not end: no network is derived, and the whole supernet is served"
        if self.pool[DERIVED].version == 0:
            return "the job ended with the search: the network that it derived did not train"
        return None

    def lineage(self) -> dict[str, Any]:
        """Return the origin of the derived network: the search."""
        origins: dict[str, Any] = {SEARCHED: {"parent": None, "birth": 0, "steps": ["all operators"]}}
        if DERIVED in self.pool:
            path = " ".join(name for (name,) in self.pool[DERIVED].spec["ops"])
            origins[DERIVED] = {"parent": SEARCHED, "birth": self.params.search_rounds, "steps": [path]}
        return origins

    def results(self) -> dict[str, Any]:
        """Report the memory of a client's step, in the search and after it. Adam's moments of the alphas are left
        out."""
        batch, moments = self.args.batch_size, int(self.config.job.client_momentum > 0)
        return {
            "memory": [
                {"network": model.key, **training_memory(model.spec, batch, moments=moments).megabytes()}
                for model in self.pool
            ]
        }
