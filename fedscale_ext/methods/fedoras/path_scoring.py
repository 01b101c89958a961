"""Scores of paths in FedorAS's search: by the validation samples of all clients, put together, or by clients that
judge on their own samples (federated evaluation, section 4.7).

Here executors do either. What federated evaluation takes counts: the minimal supernet that clients are sent, their
forward passes, and their time, in rounds of so many clients. Whether a client is online plays no part in it.
"""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import trained_on
from fedscale_ext.core.parts import part_of
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras import judge_task
from fedscale_ext.methods.fedoras.federated_evaluation import (
    EvaluationCall,
    agreement_by_rounds,
    call,
    check_afforded,
    mean_scores,
)
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.methods.fedoras.search import Path
from fedscale_ext.methods.fedoras.supernet_training import SUPERNET, SupernetTraining
from fedscale_ext.models.supernet.family import restricted
from fedscale_ext.population.clock import TRAINING_FACTOR, completion_times
from fedscale_ext.tasks.unit_planning import SPREAD, in_parts
from fedscale_ext.transport.units import Dropped
from fedscale_ext.transport.wire import WireError

if TYPE_CHECKING:
    from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator

_UNIT_SAMPLES = 1 << 15  # passes of samples through a path in a unit of a central search, about
_MINIMAL = "judged"  # key of the supernet that clients are sent
_REPORT = 24  # bytes of what a client says of a path


class PathScorer:
    """Scores paths: plans who judges them on which samples, and turns the answers into scores.

    ``held_out`` int64 [clients]: validation samples of each. ``spent``: what clients spent on judging. ``generations``:
    JSON of each generation that clients judged: what they were sent and, with ``compare_rankings``, how their ranking
    agrees after each round of them with the server's on all validation samples (``tau``), and with that on the samples
    of all clients who can judge (``tau_able``). ``unjudged`` is the number of paths that nobody can judge, where there
    are any.
    """

    def __init__(self, job: "FedorASAggregator", training: SupernetTraining) -> None:
        self._job, self._training, self._params = job, training, job.params
        task, share = job.task, job.params.val_ratio
        self.held_out = np.array([size - trained_on(int(size), share) for size in task.train_sizes], dtype=np.int64)
        if not self.held_out.any():
            raise UserError(
                f"no client holds out a sample at fedoras.val_ratio {job.params.val_ratio:g}, so that no path can be "
                "judged; raise it"
            )
        self.spent: dict[str, Any] = {"seconds": 0.0, "forward_macs": 0.0, "download_bytes": 0, "upload_bytes": 0}
        self.generations: list[dict[str, Any]] = []

    def __call__(self, tier: int, generation: int, paths: list[Path]) -> np.ndarray:
        """Scores of paths, float64 [paths]; NaN for a path that could not be judged."""
        if self._params.evaluation == "central":
            return self._central(paths)
        return self._federated(tier, generation, paths)

    def without_judge(self, tier: int) -> int:
        """Return how many of a tier's paths nobody could judge."""
        return sum(row.get("unjudged", 0) for row in self.generations if row["tier"] == tier + 1)

    def _count(self, paths: list[Path]) -> None:
        """Count a central judgement as the server's work, though executors do it."""
        self._job.mac_counter.add(self._passes * self._central_samples * int(self._macs(paths).sum()))

    @property
    def _passes(self) -> int:
        """Passes of a sample through a path that is judged; the first of two measures BatchNorm's statistics."""
        return 1 + self._params.recalibrate

    def _macs(self, paths: list[Path]) -> np.ndarray:
        """MACs of a sample's pass through each path, float64 [paths]."""
        costs = self._training.macs
        return path_macs(costs, np.array([costs.indices(path) for path in paths]))

    @property
    def _central_samples(self) -> int:
        return ceil(part_of(self._params.val_fraction, int(self.held_out.sum())))

    def _central(self, paths: list[Path]) -> np.ndarray:
        self._count(paths)
        samples = self._central_samples
        at_once = max(1, _UNIT_SAMPLES // samples)
        parts = max(ceil(len(paths) / at_once), min(SPREAD["cpu"], len(paths)))
        requests = [
            (judge_task.header_of(SUPERNET, part, self._params.val_ratio, self._params.recalibrate,
                               fraction=self._params.val_fraction), np.full((1, len(part)), samples))
            for part in in_parts(paths, parts)
        ]  # fmt: skip
        figures = np.concatenate([answer[0] for answer in self._answers(requests)])
        return self._score(figures) / samples

    def _federated(self, tier: int, generation: int, paths: list[Path]) -> np.ndarray:
        job, training = self._job, self._training
        affords = np.array([each.budget for each in training.tiers])[training.tier_of]
        budgets = np.where(job.eligible & (self.held_out > 0), affords, -1.0)
        number = self._params.evaluation_rounds * job.args.num_participants
        costs = training.costs[tier]
        macs = path_macs(costs, np.array([costs.indices(path) for path in paths]))
        check_afforded(macs, budgets)
        able = (macs <= budgets[:, None]) & self._supported(paths)
        unjudged = int((~able.any(0)).sum())
        if unjudged:
            job.notice(
                f"search of tier {tier + 1}, generation {generation}: nobody can judge {unjudged} of {len(paths)} "
                "paths, as no client with validation data affords such a path and has its operators"
            )
        if unjudged == len(paths):
            taus: dict[str, Any] = {"tau": [None], "tau_able": [None]} if self._params.compare_rankings else {}
            self.generations.append({"tier": tier + 1, "generation": generation, "paths": unjudged, "clients": 0,
                                     "supernet_mb": 0.0, "sent_mb": 0.0, "unjudged": unjudged, **taus})  # fmt: skip
            return np.full(unjudged, np.nan)
        drawn = call(costs, paths, able, number, stream(job.seed, "judges", tier, generation))
        judges = drawn.judges
        model = job.pool.add_part(_MINIMAL, SUPERNET, restricted(training.spec, drawn.ops), {}, transient=True)
        try:
            sums, examples = self._by_clients(model.key, paths, drawn.clients, judges)
        finally:
            job.pool.drop_transient()
        counts = np.where(judges, self.held_out[drawn.clients - 1][:, None], 0)
        self._spend(drawn, counts, paths, model.cost.bytes)
        size, clients = model.cost.bytes / 1e6, len(drawn.clients)
        row: dict[str, Any] = {"tier": tier + 1, "generation": generation, "paths": len(paths), "clients": clients,
                               "supernet_mb": size, "sent_mb": size * clients}  # fmt: skip
        if unjudged:
            row["unjudged"] = unjudged
        if self._params.compare_rankings:
            everyone = np.flatnonzero(able.any(1))
            theirs = mean_scores(*self._by_clients(SUPERNET, paths, everyone + 1, able[everyone]))
            for name, ranking in (("tau", self._central(paths)), ("tau_able", theirs)):
                agreement = agreement_by_rounds(sums, examples, ranking, job.args.num_participants)
                row[name] = [tau if isfinite(tau) else None for tau in agreement]
        self.generations.append(row)
        return mean_scores(sums, examples)

    def _by_clients(
        self, key: str, paths: list[Path], clients: np.ndarray, judges: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Let clients judge paths.

        Args:
            key: Key of the network that they are sent.
            paths: The paths.
            clients: Numbers of the clients, int64 [clients].
            judges: The paths that each judges, bool [clients, paths].

        Returns:
            float64 [clients, paths] each: scores summed over the client's own validation samples, and the number of
            these; 0 where it does not judge, or no answer came.

        """
        counts = np.where(judges, self.held_out[clients - 1][:, None], 0)
        requests = [
            (judge_task.header_of(key, paths, self._params.val_ratio, self._params.recalibrate,
                               clients=clients[part].tolist(), judges=judges[part]), counts[part])
            for part in in_parts(range(len(clients)), min(2 * SPREAD["cpu"], len(clients)))
        ]  # fmt: skip
        figures = np.concatenate(list(self._answers(requests)))
        examples = np.where(np.isfinite(figures).all(-1), counts, 0).astype(np.float64)
        return np.where(examples > 0, self._score(figures), 0.0), examples

    def _supported(self, paths: list[Path]) -> np.ndarray:
        """Whether a client's devices have all operators of a path, bool [all clients, paths]."""
        columns = np.array([self._training.macs.indices(path) for path in paths])
        able = [np.isfinite(path_macs(costs, columns)) for costs in self._training.costs]
        return np.array(able)[self._training.tier_of]

    def _answers(self, requests: Sequence[tuple[dict[str, Any], np.ndarray]]) -> list[np.ndarray]:
        """Answers of each unit, float64 [sets, paths, 3]; NaN where there is no usable one."""
        job, answers = self._job, []
        units = [job.make_unit(judge_task.EVENT, [header["model"]], **header) for header, _ in requests]
        for (header, counts), result in zip(requests, job.dispatcher.answers(units), strict=True):
            try:
                if isinstance(result, Dropped):
                    raise WireError(result.reason)
                answers.append(judge_task.read_figures(result[1], counts))
            except WireError as reason:
                job.notice(f"round {job.round}: {len(header['paths'])} paths are not judged: {reason}")
                answers.append(np.full((*counts.shape, len(judge_task.COLUMNS)), np.nan))
        return answers

    def _score(self, figures: np.ndarray) -> np.ndarray:
        """Scores summed over samples, the greater the better: [..., 3] -> [...]."""
        return figures[..., 0] if self._params.score == "accuracy" else -figures[..., 2]

    def _spend(self, drawn: EvaluationCall, counts: np.ndarray, paths: list[Path], size: int) -> None:
        """Count what clients receive, compute and wait for, round after round of ``num_participants``."""
        job = self._job
        macs = self._passes * (counts @ self._macs(paths))
        computation, communication = completion_times(
            job.population.computation_ms[drawn.clients - 1], job.population.communication_kbps[drawn.clients - 1],
            macs=macs, down_bytes=size, up_bytes=_REPORT * (counts > 0).sum(1), samples=1,
            reference_macs=job.config.job.reference_macs,
        )  # fmt: skip
        seconds = computation / TRAINING_FACTOR + communication
        rounds = np.arange(0, len(seconds), job.args.num_participants)
        self.spent["seconds"] += float(np.maximum.reduceat(seconds, rounds).sum())
        self.spent["forward_macs"] += float(macs.sum())
        self.spent["download_bytes"] += size * len(drawn.clients)
        self.spent["upload_bytes"] += _REPORT * int((counts > 0).sum())
