"""FedTrans (Zhu et al., MLSys 2024, Algorithm 1): a chain of models that grows while it trains.

In a round, each participant trains one model that its device affords, drawn by its past losses. Each model becomes the
mean of its clients' weights, and takes weights from smaller models (soft aggregation). If the newest model's loss has
levelled out, a copy of it with its most active cells wider or deeper joins the chain.

Paper to code, section by section: docs/methods/fedtrans.md.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.method import (
    About,
    Cost,
    EvaluationPlan,
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
from fedscale_ext.methods.averaging.server_optimizer import ServerOptimizer
from fedscale_ext.methods.fedtrans import client_manager, model_aggregator, model_transformer
from fedscale_ext.methods.fedtrans.client_manager import LossHistory
from fedscale_ext.methods.fedtrans.model_aggregator import Lineage
from fedscale_ext.methods.fedtrans.model_transformer import Transformation
from fedscale_ext.methods.fedtrans.params import FedTransParams
from fedscale_ext.methods.fedtrans.transformation_records import step_axes
from fedscale_ext.metrics.convergence import mean_accuracies, stalled
from fedscale_ext.server.announcements import ModelChoice

_HISTORY = "loss_history/"  # begins names of its tensors in a checkpoint


class FedTransAggregator(MultiModelAggregator):
    """A chain of models that grows while it trains, assigned by utility and aggregated softly (FedTrans).

    Server state: the pool's models M_0, M_1, … with their lineage, and the utilities U[c][k].

    Per model: ``losses`` H_j (one float per round in which it had a participant); per newest model:
    ``active``, the activeness of its last T rounds, and ``last_op`` per cell.
    """

    about: ClassVar[About] = About("growing", 2024, "a model of cells")
    Params = FedTransParams
    prox_param = "prox_mu"
    unprotected = "the training losses by which clients are assigned to models and models grow"

    def init_state(self, population: Population, task: Task) -> None:
        """Create M_0, which every client may train, and utilities of zero."""
        spec = self.initial_spec()
        self._check_model(spec)
        first = self.pool.add("m0", spec, self.initial_state(spec))
        self._report_start(first.cost)
        self._report_growth()
        self.lineages = [Lineage()]
        self.losses: list[list[float]] = [[]]
        self.active: deque[dict[str, float]] = deque(maxlen=self.params.T)
        self.last_op: dict[str, str | None] = {}
        self.exhausted = False
        self.utilities = np.zeros((task.num_clients, 1))
        self.loss_history = LossHistory(task.num_clients)
        self.optimizers = [self._optimizer()]

    def _check_model(self, spec: ModelSpec) -> None:
        """Raise UserError if M_0 cannot grow as configured."""
        models.cells.cell_family(spec)  # a model without cells is refused before anybody trains
        widens = self.params.transform_policy != "deepen_only"
        if widens and self.params.widen == "block" and models.cells.output_cells(spec) is None:
            raise UserError(
                f"fedtrans.widen is block, which models of the family {spec.family!r} do not know: set fedtrans.widen: "
                "cell, or start from a resnet such as resnet18_speech"
            )

    def _report_start(self, cost: Cost) -> None:
        """Report what M_0 costs, and what clients afford."""
        self.report_weak(cost.forward_macs, "they would train it all the same")
        least, greatest = (f"{macs:,.0f}" for macs in (self.capacity.min(), self.capacity.max()))
        start = ModelChoice("m0", cost).described()
        self.notice(f"fedtrans begins with {start}; clients afford {least} to {greatest} MACs per sample")

    def _report_growth(self) -> None:
        """Report if the job ends before the model grows, or before a model that has grown is served."""
        compared, rounds = self.params.gamma + self.params.delta, self.config.fedscale.rounds
        if rounds < compared:
            self.notice(
                f"the model will not grow in {rounds} rounds: that takes the losses of {compared}, "
                "fedtrans.gamma + fedtrans.delta"
            )
        elif rounds == compared:  # a child of the last round is served, with inherited weights
            self.notice(
                f"no model that grows trains in {rounds} rounds: the first comes after round {compared}, "
                "fedtrans.gamma + fedtrans.delta"
            )
        elif rounds - compared < self.params.serve_min_rounds:
            self.notice(
                f"no model that grows is served in {rounds} rounds: it would train in {rounds - compared} at most, and "
                f"fedtrans.serve_min_rounds is {self.params.serve_min_rounds}"
            )

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Sample each participant's model from p^c (Algorithm 1, lines 6-8; Eqs 2, 3)."""
        rows = participants - 1
        allowed = self._compatible(rows)
        probabilities = client_manager.assignment_probabilities(self.utilities[rows], allowed)
        chosen = client_manager.sample_models(probabilities, participants, self.seed, round)
        clients = participants.tolist()
        if self.config.job.record_internals:
            self.record("probabilities", dict(zip(clients, probabilities.tolist(), strict=True)))
            self.record("compatible", {c: np.flatnonzero(a).tolist() for c, a in zip(clients, allowed, strict=True)})
        keys = [model.key for model in self.pool]
        overrides = {"prox_mu": self.params.prox_mu} if self.params.prox_mu else {}
        return [
            WorkItem(client, keys[k], overrides=overrides) for client, k in zip(clients, chosen.tolist(), strict=True)
        ]

    def expected_shares(self) -> dict[str, float]:
        """Share of participants expected on each model: the mean of p^c over all clients that may train."""
        allowed = self._compatible(self.eligible)
        shares = client_manager.assignment_probabilities(self.utilities[self.eligible], allowed).mean(0)
        return {model.key: share for model, share in zip(self.pool, shares.tolist(), strict=True)}

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Update utilities (Eq 4), average by model (FedAvg), note activeness and losses, and aggregate softly (Eq
        5)."""
        pool = list(self.pool)
        specs = [model.spec for model in pool]
        sims = model_aggregator.similarity_matrix(specs, self.lineages, self.params)
        if updates:
            self._update_utilities(updates, sims)
        self._note_progress(updates, pool[-1].state, means.get(pool[-1].key))
        averaged = [self._stepped(j, means.get(model.key)) for j, model in enumerate(pool)]
        for model in pool:
            if model.key in means:
                self.record_state(f"mean/{model.key}", means[model.key])
        shares = np.ones_like(sims) if self.params.similarity == "one" else sims
        mixing = []
        for j, model in enumerate(pool):
            weights = model_aggregator.mixing_weights(j, round, shares, self.lineages, self.params)
            literal = self.params.normalise == "literal"
            total = (model_aggregator.sharing(j, shares, self.params) if literal else weights).sum()
            mixing.append((weights / total).tolist())
            state = model_aggregator.soft_aggregate(j, specs, averaged, self.lineages, weights, shares, self.params)
            self.pool.update(model.key, state)
        self.record("similarity", sims.tolist())
        self.record("mixing", mixing)

    def evolve(self, round: int) -> None:
        """Create a child of the newest model when its loss has levelled out: DoC <= beta (section 4.1)."""
        p = self.params
        doc = model_transformer.degree_of_convergence(self.losses[-1], p.gamma, p.delta)
        self.record("doc", doc)
        if doc is None or doc > p.beta or self.exhausted:
            return
        selected = self._select_cells(round)
        self.record("selected_cells", selected)
        affordable = self._affordable_cells(selected)
        if affordable is None:
            self.exhausted = True
            self.record("exhausted", True)
            return
        spec, state, steps = self._transformed(round, affordable)
        self._add_child(round, spec, state, steps)

    def _affordable_cells(self, selected: list[str]) -> list[str] | None:
        """The selected cells, less the least active ones until clients afford the child (section 3).

        Args:
            selected: Ids of the cells that are to grow.

        Returns:
            Those that grow; None where no device affords the child, even if one cell alone grows.

        """
        return model_transformer.affordable_cells(
            self.pool.newest().spec,
            selected,
            model_transformer.mean_activeness(self.active),
            self.last_op,
            float(np.quantile(self.capacity[self.eligible], self.params.cap_quantile)),
            **self._growth(),
        )

    def _transformed(self, round: int, cells: list[str]) -> tuple[models.ModelSpec, State, tuple[Transformation, ...]]:
        """Widen or deepen these cells of the newest model (section 4.1).

        Args:
            round: The round, which keys the random draws.
            cells: Ids of the cells that grow.

        Returns:
            The child's spec, its state, and the steps that lead to it from its parent.

        """
        parent = self.pool.newest()
        return model_transformer.transform(
            parent.spec,
            parent.state,
            cells,
            self.last_op,
            **self._growth(),
            symmetry=self.params.symmetry,
            generator=stream(self.seed, round, "transform"),
        )

    def _growth(self) -> dict[str, Any]:
        """How cells grow: keyword arguments that the child's cost and its transformation share."""
        p = self.params
        return {
            "policy": p.transform_policy,
            "widen_factor": p.widen_factor,
            "deepen_count": p.deepen_count,
            "widen": p.widen,
            "next_cell_id": self._next_cell_id(),
        }

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client the compatible model of the highest utility (section 5.1)."""
        allowed = self._compatible(slice(None))
        mature = np.array([len(losses) >= self.params.serve_min_rounds for losses in self.losses])
        mature[0] = True
        macs = [model.cost.forward_macs for model in self.pool]
        best = client_manager.served(self.utilities, allowed & mature[None, :], macs, self.params.ties)
        keys = [model.key for model in self.pool]
        return EvaluationPlan([keys[k] for k in best.tolist()])

    def finished(self, round: int) -> str | None:
        """Why training ends early, where ``stop`` asks for it (section 3 and appendix)."""
        p = self.params
        if p.stop == "converged" and self.exhausted:
            docs = [model_transformer.degree_of_convergence(losses, p.gamma, p.delta) for losses in self.losses]
            if all(doc is not None and doc <= p.beta for doc in docs):
                return "no model can grow further and all have converged"
        if p.stop == "accuracy" and stalled(mean_accuracies(self.scheduled_tests()), round, p.stop_gain, p.stop_rounds):
            return f"accuracy rose by no more than {p.stop_gain:g} over {p.stop_rounds} rounds"
        return None

    def lineage(self) -> dict[str, Any]:
        """Return parent, round of birth and transformations of each model."""
        return {
            f"m{k}": {
                "parent": f"m{k - 1}" if k else None,
                "birth": lineage.birth,
                "steps": [step.says for step in lineage.steps],
            }
            for k, lineage in enumerate(self.lineages)
        }

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return utilities and moments as tensors, the rest as JSON."""
        tensors = {"utilities": torch.from_numpy(self.utilities)}
        if self.params.utility == "client_history":
            tensors.update({f"{_HISTORY}{name}": tensor for name, tensor in self.loss_history.tensors().items()})
        for k, optimizer in enumerate(self.optimizers):
            if optimizer is not None:
                tensors.update({f"optimizer/{k}/{name}": tensor for name, tensor in optimizer.tensors().items()})
        return tensors, {
            "lineages": [
                {"birth": one.birth, "root": one.root, "steps": [step.to_json() for step in one.steps]}
                for one in self.lineages
            ],
            "losses": self.losses,
            "active": list(self.active),
            "last_op": self.last_op,
            "exhausted": self.exhausted,
        }

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.lineages = [
            Lineage(one["birth"], one["root"], tuple(map(Transformation.from_json, one["steps"])))
            for one in data["lineages"]
        ]
        self.losses = data["losses"]
        self.active = deque(data["active"], maxlen=self.params.T)
        self.last_op = data["last_op"]
        self.exhausted = data["exhausted"]
        self.utilities = tensors["utilities"].numpy()
        self.loss_history.load({n.removeprefix(_HISTORY): t for n, t in tensors.items() if n.startswith(_HISTORY)})
        self.optimizers = [self._optimizer() for _ in self.lineages]
        for k, optimizer in enumerate(self.optimizers):
            if optimizer is not None:
                prefix = f"optimizer/{k}/"
                optimizer.load({name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)})

    def _compatible(self, rows: np.ndarray | slice) -> np.ndarray:
        """Compatible models of the clients in these rows, bool [rows, models]."""
        return client_manager.compatible(self.capacity[rows], [model.cost.forward_macs for model in self.pool])

    def _update_utilities(self, updates: list[Update], sims: np.ndarray) -> None:
        clients = np.array([update.client for update in updates])
        trained = np.array([int(update.item.model[1:]) for update in updates])
        losses = np.array([update.loss for update in updates])
        standard = client_manager.standardised(losses)
        rows = clients - 1  # nobody else's utilities change
        if self.params.utility == "client_history":
            standard = self.loss_history.standardised(rows, standard)
        self.utilities[rows] = client_manager.updated_utilities(
            self.utilities[rows], self._compatible(rows), trained, standard, sims
        )
        if not self.config.job.record_internals:
            return
        self.record("samples", {update.client: update.samples for update in updates})
        columns = {"losses": losses, "standardised_losses": standard, "assignments": trained,
                   "utilities": self.utilities[rows]}  # fmt: skip
        for name, values in columns.items():
            self.record(name, dict(zip(clients.tolist(), values.tolist(), strict=True)))

    def _stepped(self, j: int, mean: State | None) -> State:
        """State of model j after the server's optimiser (Fig 8); unchanged without participants."""
        model, optimizer = self.pool[f"m{j}"], self.optimizers[j]
        if mean is None:
            return model.state
        if optimizer is None:
            return mean
        return optimizer.step(model.state, mean, models.parameter_names(model.spec))

    def _note_progress(self, updates: list[Update], before: State, after: State | None) -> None:
        """Note the loss of every model with a participant, and the activeness of the newest model."""
        newest = self.pool.newest()
        by_model: dict[str, list[Update]] = {}
        for update in updates:
            by_model.setdefault(update.item.model, []).append(update)
        for k, losses in enumerate(self.losses):
            if f"m{k}" in by_model:
                counted = updates if self.params.doc_loss == "all" else by_model[f"m{k}"]
                losses.append(float(np.average([u.loss for u in counted], weights=[u.samples for u in counted])))
        if after is not None:
            self.active.append(model_transformer.activeness(newest.spec, before, after))
            self.record("activeness", self.active[-1])

    def _select_cells(self, round: int) -> list[str]:
        """Select the most active cells, or as many at random (Table 3, -l)."""
        selected = model_transformer.select_cells(model_transformer.mean_activeness(self.active), self.params.alpha)
        if self.params.cell_selection == "activeness":
            return selected
        cells = list(self.active[-1])
        picked = stream(self.seed, round, "cells").choice(len(cells), size=len(selected), replace=False)
        return [cells[index] for index in sorted(picked)]

    def _next_cell_id(self) -> int:
        """First free number of new cells' names: the number of cells, where M_0's count from c0."""
        spec = self.pool.newest().spec  # has the cells of all its ancestors
        taken = models.cells.cell_family(spec).cell_ids(spec)
        first, count = len(taken), len(taken) * self.params.deepen_count
        while not {f"c{number}" for number in range(first, first + count)}.isdisjoint(taken):
            first += 1
        return first

    def _add_child(self, round: int, spec: models.ModelSpec, state: State, steps: tuple[Transformation, ...]) -> None:
        p, parent = self.params, self.pool.newest().spec
        index = len(self.lineages)
        root = self.lineages[-1].root
        if p.warmup == "reinit":
            root = index
            state = models.initial_state(spec, int(stream(self.seed, round, "reinit").integers(2**62)))
        self.pool.add(f"m{index}", spec, state)
        self.lineages.append(Lineage(round, root, steps))
        self.losses.append([])
        self.active.clear()
        self.last_op.update({step.cell_id: step.op for step in steps})
        self.utilities = np.concatenate([self.utilities, self.utilities[:, -1:]], axis=1)
        self.optimizers.append(self._optimizer())
        what = [step.says for step in steps]
        if self.config.job.record_internals:
            axes = step_axes(parent, steps)
            self.record("child", {"key": f"m{index}", "steps": what, "transformations": axes})
        self.emit(
            {
                "event": "transform",
                "round": round,
                "parent": f"m{index - 1}",
                "child": f"m{index}",
                "what": ", ".join(what),
            }
        )

    def _optimizer(self) -> ServerOptimizer | None:
        if self.params.server_opt == "avg":
            return None
        args = self.config.fedscale
        return ServerOptimizer(self.params.server_opt, args.yogi_eta, args.yogi_tau, args.yogi_beta, args.yogi_beta2)
