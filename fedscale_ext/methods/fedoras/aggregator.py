"""FedorAS (Dudziak, Laskaridis, Fernandez-Marques, 2022), stage 1: a supernet is trained in rounds of federated paths.

A round (section 3.1): participants are drawn from all clients, whatever their tier; each is sent a subspace of the
supernet, trains a path within its tier's budget for every batch, and hands back its weights and how many examples
went through each operator, by which OPA averages them. Until there is a search, each tier is tested on a path of its
own, near the tier's budget, with the supernet's weights and running statistics.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedscale_ext import models
from fedscale_ext.errors import UserError
from fedscale_ext.methods.fedoras.client import FedorASExecutor
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_sampling import path_macs, sample_paths
from fedscale_ext.methods.fedoras.supernet_training import SUPERNET, Experience, SupernetTraining, Tier
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.models.supernet import cheapest_path, path_of, searched, tables
from fedscale_ext.population.population import Population
from fedscale_ext.runtime.aggregator import MultiModelAggregator
from fedscale_ext.runtime.client_tensors import ClientTensors, Returned
from fedscale_ext.runtime.work import EvaluationPlan, State, Task, Update, WorkItem
from fedscale_ext.streams import stream

_TRIED = 64  # paths of which a tier's dearest is tested


class FedorASAggregator(MultiModelAggregator):
    """A supernet trained by paths within each device's budget, operators averaged by experience (FedorAS)."""

    Params: ClassVar[type] = FedorASParams
    Executor: ClassVar[type] = FedorASExecutor
    reduces: ClassVar[bool] = False  # each client's operators have weights of their own
    chooses_paths: ClassVar[bool] = True
    assumes_sgd: ClassVar[str] = "steps each path by SGD"

    def supernet(self) -> ModelSpec:
        """The configuration's ``model``; UserError where it is none."""
        spec = self.initial_spec()
        if not models.searched(spec):
            raise UserError(
                f"method fedoras needs a supernet, and model {self.args.model} is none; choose one such as cnn_l, or a "
                "spec file of the family supernet"
            )
        return spec

    def smallest_spec(self) -> ModelSpec:
        """The cheapest path, unless ``capacity_model`` names another model."""
        if self.config.job.capacity_model is not None:
            return super().smallest_spec()
        spec = self.supernet()
        return path_of(spec, cheapest_path(spec))

    def init_state(self, population: Population, task: Task) -> None:
        """The supernet, the clients' tiers, and a path of each tier to be tested on."""
        if self.config.job.control_variates:
            raise UserError(
                "control_variates takes all of a client's steps for steps of the same model, and method fedoras trains "
                "another path in each; turn it off"
            )
        spec, p = self.supernet(), self.params
        self.pool.add(SUPERNET, spec, models.initial_state(spec, self.seed))
        unsupported = p.unsupported or ((),) * p.number
        tiers = [Tier(budget, names) for budget, names in zip(_budgets(spec, p), unsupported, strict=True)]
        self.tier_of = _tiers(self.capacity, p.shares or (1.0,) * p.number)
        counts = np.bincount(self.tier_of, minlength=p.number)
        for number in np.flatnonzero(counts == 0).tolist():
            raise UserError(
                f"tier {number + 1} of {p.number} has none of the {task.num_clients} clients; change fedoras.shares "
                "or have fewer tiers"
            )
        self.training = SupernetTraining(self.pool, task, p, self.seed, tiers, self.tier_of)
        for number, tier in enumerate(tiers, start=1):
            path = self._tested(number, tier)
            self.pool.add_part(f"tier{number}", SUPERNET, path_of(spec, path), {})
            self.notice(
                f"tier {number}: {counts[number - 1]} clients, paths up to {tier.budget / 1e6:.4g} MMACs, tested on "
                f"one of {self.pool[f'tier{number}'].cost.forward_macs / 1e6:.4g}"
            )

    def _tested(self, number: int, tier: Tier) -> tuple[str, ...]:
        costs = self.training.costs[number - 1]
        paths = sample_paths(costs, costs.held, np.full(_TRIED, tier.budget), stream(self.seed, number, "tested"))
        return costs.path(paths[path_macs(costs, paths).argmax()])

    def client_tensors(self) -> list[ClientTensors]:
        """The examples that went through each operator."""
        return [Experience(self.log_dir, self.pool, self.training.macs, self.task)]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Each participant's subspace and budget."""
        return self.training.assign(round, participants)

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add a client's operators by its examples."""
        experience = self.handed[Returned.kind]
        assert isinstance(experience, Experience)
        self.training.collect(update, state, experience.of[update.client])

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """OPA."""
        self.record("operators", self.training.aggregate())
        self.record("effort", {update.client: update.item.effort for update in updates})

    def evaluation_plan(self) -> EvaluationPlan:
        """Each client on the path of its tier; each of these on all test samples."""
        keys = [f"tier{number + 1}" for number in range(self.params.number)]
        return EvaluationPlan([keys[number] for number in self.tier_of.tolist()], {key: key for key in keys})

    def lineage(self) -> dict[str, Any]:
        """Paths come from the supernet."""
        paths = {model.key: model for model in self.pool if not searched(model.spec)}
        steps = {key: [" ".join(name for (name,) in model.spec["ops"])] for key, model in paths.items()}
        return {SUPERNET: {"parent": None, "birth": 0, "steps": ["all operators"]}} | {
            key: {"parent": SUPERNET, "birth": 0, "steps": own} for key, own in steps.items()
        }


def _budgets(spec: ModelSpec, params: FedorASParams) -> list[float]:
    """MACs of each tier's dearest path, by the paper's count."""
    if params.brackets:
        return [1e6 * edge for edge in params.brackets]
    costs = tables(spec, published=True)
    dearest = costs.fixed_macs + np.where(costs.held, costs.macs, 0).max(1).sum()
    return np.linspace(costs.fixed_macs + costs.macs.min(1).sum(), dearest, params.number + 1)[1:].tolist()


def _tiers(capacity: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
    """int64 [clients]: number of each client's tier, the weakest clients in tier 0 (stands in for the search's)."""
    ends = np.round(np.cumsum(shares) / sum(shares) * len(capacity))
    return np.searchsorted(ends, np.argsort(np.argsort(capacity, kind="stable")), side="right")


if __name__ == "__main__":
    from fedscale_ext.runtime.launch import run_aggregator

    run_aggregator()
