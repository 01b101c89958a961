"""FedorAS (Dudziak, Laskaridis, Fernandez-Marques, FedorAS: Federated Architecture Search under system heterogeneity,
TMLR 2023): a supernet is trained, searched for a model of each tier of devices, and these are fine-tuned.

Stage 1 (section 3.1): participants are drawn from all clients, whatever their tier; each is sent a subspace of the
supernet, trains a path within its tier's budget for every batch, and hands back its weights and how many examples
went through each operator, by which OPA averages them. Until the search, each tier is tested on a path of its own, near
the tier's budget, with the supernet's weights and running statistics. Stage 2 (3.2), a round in which nobody trains:
the best path of each tier's bracket by the supernet's weights. Stage 3 (3.3): FedAvg of each tier's model by clients
of that tier and above.

Paper to code, section by section: docs/methods/fedoras.md.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from fedscale_ext.data.registry import is_text
from fedscale_ext.method import (
    About,
    ClientTensors,
    EvaluationPlan,
    Excludes,
    Feature,
    ModelSpec,
    MultiModelAggregator,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    stream,
)
from fedscale_ext.methods.fedoras.bracket_sampling import check_reachable
from fedscale_ext.methods.fedoras.brackets import brackets_of, upper_only
from fedscale_ext.methods.fedoras.client import FedorASExecutor, fedoras_client
from fedscale_ext.methods.fedoras.figures import NAMES, fairness_figures, stage_figures, tier_figures
from fedscale_ext.methods.fedoras.fine_tuning import FineTuning, JobKeys, tier_key, twin_key
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_sampling import path_macs, sample_paths
from fedscale_ext.methods.fedoras.path_scoring import PathScorer
from fedscale_ext.methods.fedoras.search import PathSearch
from fedscale_ext.methods.fedoras.stages import Plan
from fedscale_ext.methods.fedoras.supernet_training import SUPERNET, OperatorExamples, SupernetTraining, Tier
from fedscale_ext.methods.fedoras.tier_assignment import tiers_of
from fedscale_ext.methods.fedoras.tier_searches import TierSearches
from fedscale_ext.models.supernet.family import cheapest_path, path_of, searched
from fedscale_ext.tasks.client_tensors import ReturnedTensors

_TRIED = 64  # paths of which a tier's dearest is tested


class FedorASAggregator(MultiModelAggregator):
    """A supernet trained by paths within each device's budget, searched and fine-tuned tier by tier (FedorAS)."""

    about: ClassVar[About] = About("search", 2023, "a supernet")
    Params: ClassVar[type] = FedorASParams
    Client: ClassVar[Any] = staticmethod(fedoras_client)
    Executor: ClassVar[type] = FedorASExecutor
    reduces: ClassVar[bool] = False  # each client's operators have weights of their own
    chooses_paths: ClassVar[bool] = True
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.ADAM, "steps each path by SGD"),
        Excludes(Feature.EARLY_STOP, "has stages that follow one another by rounds"),
    )

    def supernet(self) -> ModelSpec:
        """Spec of the configuration's ``model``; UserError where it is no supernet."""
        spec = self.initial_spec()
        if not models.searched(spec):
            raise UserError(
                f"method fedoras needs a supernet, and model {self.args.model} is none; choose one such as cnn_l, or a "
                "spec file of the family supernet"
            )
        return spec

    def on_text(self) -> bool:
        """Whether the job's data are text."""
        return is_text(self.args.data_set)

    def smallest_spec(self) -> ModelSpec:
        """Spec of the cheapest path, unless ``capacity_model`` names another model."""
        if self.config.job.capacity_model is not None:
            return super().smallest_spec()
        spec = self.supernet()
        return path_of(spec, cheapest_path(spec))

    def init_state(self, population: Population, task: Task) -> None:
        """Create the supernet, the clients' tiers, and a path of each tier to test."""
        if self.config.job.control_variates:
            raise UserError(
                "control_variates takes all of a client's steps for steps of the same model, and method fedoras trains "
                "another path in each; turn it off"
            )
        spec, p = self.supernet(), self.params
        brackets = brackets_of(self.args.model, spec, p, self.seed)
        number = len(brackets)
        if p.unsupported and len(p.unsupported) != number:
            raise UserError(
                f"fedoras.unsupported has {len(p.unsupported)} lists; it must hold one for each of {number} tiers"
            )
        self.tier_of = tiers_of(self.args.model, spec, p, self.seed, brackets, self.capacity, self.eligible)
        self.brackets = upper_only(brackets) if p.upper_only else brackets
        self.pool.add(SUPERNET, spec, models.initial_state(spec, self.seed))
        unsupported = p.unsupported or ((),) * number
        tiers = [Tier(bracket.high, names) for bracket, names in zip(brackets, unsupported, strict=True)]
        self.training = SupernetTraining(self.pool, task, p, self.seed, tiers, self.tier_of)
        for tier, bracket in enumerate(self.brackets):
            check_reachable(self.training.costs[tier], bracket, stream(self.seed, "reachable", tier))
        self.plan = Plan(p.supernet_rounds, p.finetune_rounds, p.twin_rounds, number)
        central = p.evaluation == "central"
        self.searches = TierSearches(self.training.costs, self.brackets, p, self.seed, shared=central)
        keys = JobKeys(self.args.learning_rate, self.config.job.augment, self.on_text())
        self.tuning = FineTuning(self.pool, p, self.seed, keys)
        self.path_scorer = PathScorer(self, self.training)
        for tier, bracket in enumerate(self.brackets):
            self.pool.add_part(tier_key(tier), SUPERNET, path_of(spec, self._tested(tier)), {})
            self.notice(f"tier {tier + 1}: {(self.tier_of == tier).sum()} clients, paths of {bracket}")
        self._report_beyond_capacity()
        self._report_few_rounds()

    def _report_beyond_capacity(self) -> None:
        """Report clients that do not afford what their tier serves, or a twin that all clients train."""
        served = np.array([self.pool[tier_key(tier)].cost.forward_macs for tier in range(len(self.brackets))])
        ranks = self.params.allocation != "capacity"  # shares deal tiers whatever devices afford
        if beyond := self.count_beyond(served.astype(np.float64)[self.tier_of]):
            self.notice(f"{beyond} of {len(self.capacity)} clients are in a tier whose paths their "
                        f"devices do not afford{': tiers rank devices' if ranks else ''}")  # fmt: skip
        twins = served[: self.plan.twins_until(self.args.rounds)]
        if self.params.twin_clients == "all" and len(twins) and (beyond := self.count_beyond(float(twins.max()))):
            self.notice(f"{beyond} of {len(self.capacity)} clients do not afford the largest twin, which any client "
                        "may train: fedoras.twin_clients is all")  # fmt: skip

    def _report_few_rounds(self) -> None:
        """Report that the job ends before the search or before the last stage, if that is so."""
        rounds, plan = self.args.rounds, self.plan
        if rounds < plan.search:
            self.notice(
                f"rounds is {rounds}: the search comes with round {plan.search}, so this job only trains a supernet"
            )
        elif rounds < plan.rounds:
            self.notice(f"rounds is {rounds}: the last stage would end with round {plan.rounds}")

    def _tested(self, tier: int) -> tuple[str, ...]:
        costs = self.training.costs[tier]
        budgets = np.full(_TRIED, self.training.tiers[tier].budget)
        paths = sample_paths(costs, costs.held, budgets, stream(self.seed, tier + 1, "tested"))
        return costs.path(paths[path_macs(costs, paths).argmax()])

    def client_tensors(self) -> list[ClientTensors]:
        """Receive how many examples went through each operator (Equation 5)."""
        return [OperatorExamples(self.pool, self.training.macs, self.task)]

    def candidates(self, round: int) -> tuple[np.ndarray, int]:
        """Select from all clients in stage 1, from none in the search, then from a model's tier and above (3.3)."""
        stage, number = self.plan.at(round), self.args.num_participants
        if stage.name == "supernet":
            return self.eligible, number
        if stage.name == "search":
            return np.zeros_like(self.eligible), 0
        if stage.name == "twin" and self.params.twin_clients == "all":
            return self.eligible, number
        path = [name for (name,) in self.pool[tier_key(stage.tier)].spec["ops"]]
        columns = self.training.macs.indices(path)[None]
        runs = np.array([np.isfinite(path_macs(costs, columns)[0]) for costs in self.training.costs])
        able = self.eligible & (self.tier_of >= stage.tier) & runs[self.tier_of]
        count = self.params.finetune_clients if stage.name == "finetune" else None
        return able, min(count or number, int(able.sum()))

    def learning_rate(self, round: int) -> float:
        """The job's schedule in stage 1; stage 3 has one of its own."""
        stage = self.plan.at(round)
        return self.tuning.learning_rate(stage) if stage.name in ("finetune", "twin") else super().learning_rate(round)

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Give each participant its subspace and budget, or the model that it fine-tunes; nothing in the search."""
        stage = self.plan.at(round)
        if stage.name == "supernet":
            return self.training.assign(round, participants)
        if stage.name == "search":
            self._search()
            return []
        return self.tuning.assign(stage, participants)

    def _search(self) -> None:
        """Run stage 2: each tier's model is the best path of its bracket, with the supernet's weights (3.2)."""
        self.searches.run(self.path_scorer, self._judged, self.path_scorer.without_judge)
        whole = self.pool[SUPERNET]
        for tier, result in enumerate(self.searches.results):
            spec = path_of(whole.spec, result["path"])
            self.pool.replace(tier_key(tier), spec, {name: whole.state[name] for name in models.layout(spec)})
        self.charge(**self.path_scorer.spent)

    def _judged(self, tier: int, search: PathSearch) -> None:
        self.keep_state()
        front = search.front()
        best = f", best {front[-1].score:.4g} at {front[-1].macs / 1e6:.4g} MMACs" if front else ""
        what = f"search of tier {tier + 1} of {len(self.brackets)}: {len(search.judged)} of " \
               f"{search.evaluations} paths judged{best}"  # fmt: skip
        self.emit({"event": "progress", "round": self.round, "what": what})

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add a client's operators by its examples, or its model by its samples."""
        self.record_state(f"client/{update.client}", state)
        if self.plan.at(round).name != "supernet":
            self.tuning.collect(state, self.weight(update.item))
            return
        examples = self.client_tensors_by_kind[ReturnedTensors.kind]
        assert isinstance(examples, OperatorExamples)
        self.training.collect(update, state, examples.counts(update.client))

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Average by operators (OPA, Equation 5); in stage 3, by FedAvg."""
        self.record("stage", asdict(self.plan.at(round)))
        self.record("samples", {update.client: self.weight(update.item) for update in updates})
        if self.plan.at(round).name != "supernet":
            self.tuning.aggregate()
            return
        self.record("operators", self.training.aggregate())
        self.record("compute_fraction", {update.client: update.item.compute_fraction for update in updates})
        self.record("trained", {update.client: update.trained for update in updates})
        examples = self.client_tensors_by_kind[ReturnedTensors.kind]
        assert isinstance(examples, OperatorExamples)
        self.record("examples", {client: examples.counts(client).tolist() for client in examples.of})
        self.record("tiers", {update.client: int(self.tier_of[update.client - 1]) for update in updates})
        if round == 1:
            self.record("tables", [
                {"ops": costs.ops, "macs": np.where(np.isfinite(costs.macs), costs.macs, -1).tolist(),
                 "fixed": costs.fixed_macs} for costs in self.training.costs
            ])  # fmt: skip

    def finished(self, round: int) -> str | None:
        """Say that all stages are done, where they end before the last round of the job."""
        return "all stages are done" if self.last_round() <= round < self.args.rounds else None

    def last_round(self) -> int:
        """The last stage's last round, where ``rounds`` leaves room for more."""
        return min(super().last_round(), self.plan.rounds)

    def phase(self, round: int) -> str:
        """The stage, and the tier whose model is trained."""
        stage = self.plan.at(round)
        tier = f" of tier {stage.tier + 1}" if stage.name in ("finetune", "twin") else ""
        return NAMES[stage.name] + tier

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client the model of its tier; test these and their twins on all test samples."""
        keys = [tier_key(tier) for tier in range(len(self.brackets))]
        twins = [twin_key(tier) for tier in range(len(self.brackets)) if twin_key(tier) in self.pool]
        return EvaluationPlan([keys[tier] for tier in self.tier_of.tolist()], {key: key for key in keys + twins})

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return scores and results of the search, and what it has cost; models are in the pool."""
        judges = {"spent": dict(self.path_scorer.spent), "generations": self.path_scorer.generations}
        return {}, {"searches": self.searches.state(), "server_macs": self.mac_counter.macs, **judges}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.searches.load_state(data["searches"])
        self.mac_counter.add(data.get("server_macs", 0))  # of a search that was stopped; earlier checkpoints have none
        self.path_scorer.spent.update(data["spent"])
        self.path_scorer.generations[:] = data["generations"]

    def lineage(self) -> dict[str, Any]:
        """Return the origin of each model: paths come from the supernet, twins from random weights."""
        birth = self.plan.search if self.searches.results and self.history[-1].round >= self.plan.search else 0
        known: dict[str, Any] = {}
        for model in self.pool:
            if searched(model.spec):
                known[model.key] = {"parent": None, "birth": 0, "steps": ["all operators"]}
            else:
                steps = [" ".join(name for (name,) in model.spec["ops"])]
                parent = None if model.key.endswith("_twin") else SUPERNET
                known[model.key] = {"parent": parent, "birth": birth, "steps": steps}
        return known

    def results(self) -> dict[str, Any]:
        """Report each tier's model, accuracy and search, fairness over clients, and the cost of each stage and of
        judging."""
        return {
            "tiers": tier_figures(self),
            "fairness": fairness_figures(self),
            "stages": stage_figures(self.plan, self.history, self.path_scorer.generations),
            "judging": self.path_scorer.generations,
        }
