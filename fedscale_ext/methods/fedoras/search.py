"""Stage 2: the best path of a tier's bracket, by the supernet's own weights (FedorAS, section 3.2, Equation 6).

A search asks for the scores of paths. The caller decides who judges them, and on which data:

    search = PathSearch(tables, bracket, params, evaluations, seed, "search", tier)
    while paths := search.ask():
        search.tell(judge(paths))
    path, macs, score = search.best()

The best is the one with the greatest score inside the bracket; MACs are the second objective of NSGA-II only. Paths are
known by the tuple of their operators: the public code joins the operators' numbers into one text, in which with more
than ten operators different paths look the same. No path is judged twice.

For a restart, a search keeps the scores that it has received. It then runs again from its seed, and takes those scores
instead of asking again.
"""

from collections.abc import Generator, Mapping, MutableMapping, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import Key, stream
from fedscale_ext.methods.fedoras.bracket_sampling import Genes, check_reachable, new_paths
from fedscale_ext.methods.fedoras.brackets import Bracket
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.models.supernet.family import Tables

Path = tuple[str, ...]


def pareto(macs: np.ndarray, scores: np.ndarray) -> list[int]:
    """The Pareto front of scores and MACs.

    Args:
        macs: float64 [paths].
        scores: float64 [paths]; a NaN is never on the front.

    Returns:
        Indices of the paths that no other beats in score at as many MACs or fewer, cheapest first.

    """
    front: list[int] = []
    best = -np.inf
    for index in np.lexsort((-scores, macs)).tolist():
        if scores[index] > best:
            best = scores[index]
            front.append(index)
    return front


class JudgedPath(NamedTuple):
    """A judged path: its MACs per sample and its score, NaN where that is not a number."""

    path: Path
    macs: float
    score: float


class PathSearch:
    """The search for one tier. UserError where its bracket holds no path.

    ``evaluations``: number of paths that are judged. ``key``: of the streams of random numbers. ``scores``: what is
    known of paths and is not asked for; new scores are added to it, so that several searches may share it.
    """

    def __init__(
        self,
        tables: Tables,
        bracket: Bracket,
        params: FedorASParams,
        evaluations: int,
        *key: Key,
        scores: MutableMapping[Path, float] | None = None,
    ) -> None:
        self.tables, self.bracket, self.evaluations, self._params = tables, bracket, evaluations, params
        self.judged: dict[Path, JudgedPath] = {}
        self.generation = 0  # of the paths that were asked for last
        self._key, self._scores = key, {} if scores is None else scores
        check_reachable(tables, bracket, stream(*key, "reachable"))
        self._batches = self._random() if params.search == "random" else self._nsga2()
        self._batch: list[Genes] = []
        self._ended = False
        self._advance(None)

    def ask(self) -> list[Path]:
        """Paths to judge next; none once the search has ended. They stay the same until :meth:`tell`."""
        self._catch_up()
        return [] if self._ended else [path for path in self._batch_paths() if path not in self._scores]

    def tell(self, scores: Sequence[float] | np.ndarray) -> None:
        """Take the scores of the paths from :meth:`ask`, in their order, the greater the better.

        A path whose score is not finite counts as judged and is never the best.
        """
        paths = self.ask()
        if len(scores) != len(paths):
            raise ValueError(f"{len(scores)} scores were told of {len(paths)} paths")
        self._scores.update(
            (path, float(score) if isfinite(score) else nan) for path, score in zip(paths, scores, strict=True)
        )
        self._catch_up()

    def best(self, without_judge: int = 0) -> JudgedPath:
        """The judged path of the greatest score, of equal ones the cheapest.

        Args:
            without_judge: How many of the paths nobody could judge.

        Raises:
            UserError: No path has a finite score.

        """
        known = [judged for judged in self.judged.values() if isfinite(judged.score)]
        if not known and without_judge == len(self.judged):
            raise UserError(
                f"nobody can judge any of the {without_judge} paths that were tried for the tier that takes "
                f"{self.bracket}, as no client with validation data affords one and has its operators; shorten "
                "fedoras.unsupported, raise fedoras.val_ratio, or set fedoras.evaluation: central"
            )
        if not known:
            raise UserError(
                f"none of the {len(self.judged) - without_judge} paths that were judged for the tier that takes "
                f"{self.bracket} has a finite score: the supernet has not learned anything; train it for more rounds "
                "or with a lower learning rate"
            )
        return min(known, key=lambda judged: (-judged.score, judged.macs))

    def front(self) -> list[JudgedPath]:
        """The judged paths that no other beats in score at as many MACs or fewer, cheapest first."""
        judged = list(self.judged.values())
        indices = pareto(np.array([path.macs for path in judged]), np.array([path.score for path in judged]))
        return [judged[index] for index in indices]

    def state(self) -> dict[str, Any]:
        """Return JSON: each judged path, as columns of the tables, and its score; ``null`` for one that is not
        finite."""
        columns = [self.tables.indices(path).tolist() for path in self.judged]
        return {
            "judged": [
                [path, judged.score if isfinite(judged.score) else None]
                for path, judged in zip(columns, self.judged.values(), strict=True)
            ]
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where a search with the same arguments was when it returned its :meth:`state`."""
        self._scores.update(
            (self.tables.path(columns), nan if score is None else score) for columns, score in state["judged"]
        )
        self._catch_up()

    # ---- what is judged next ----

    def _catch_up(self) -> None:
        """Take in generations until one has a path without a known score."""
        while not self._ended and all(path in self._scores for path in self._batch_paths()):
            self._take_in()

    def _batch_paths(self) -> list[Path]:
        return [self.tables.path(genes) for genes in self._batch]

    def _take_in(self) -> None:
        paths = self._batch_paths()
        macs = path_macs(self.tables, np.array(self._batch))
        judged = [JudgedPath(path, float(one), self._scores[path]) for path, one in zip(paths, macs, strict=True)]
        self.judged.update(zip(paths, judged, strict=True))
        target = self._params.target
        if len(self.judged) >= self.evaluations or (target is not None and any(one.score >= target for one in judged)):
            self._ended = True
        else:
            self._advance([one.score for one in judged])

    def _advance(self, scores: list[float] | None) -> None:
        try:
            batch = next(self._batches) if scores is None else self._batches.send(scores)
        except StopIteration:
            self._ended = True
            return
        self._batch = batch[: self.evaluations - len(self.judged)]
        self.generation += 1

    def _random(self) -> Generator[list[Genes], Sequence[float], None]:
        rng, seen = stream(*self._key, "random"), set[Genes]()
        while batch := new_paths(self.tables, self.bracket, self._params.parents, rng, seen):
            seen.update(batch)
            yield batch

    def _nsga2(self) -> Generator[list[Genes], Sequence[float], None]:
        from fedscale_ext.methods.fedoras.nsga2 import generations  # pymoo, which other methods need not load

        rng, params = stream(*self._key, "random"), self._params
        return generations(
            self.tables,
            self.bracket,
            new_paths(self.tables, self.bracket, params.population, rng),
            lambda number, seen: new_paths(self.tables, self.bracket, number, rng, seen),
            survivors=params.parents,
            mutation=params.mutation,
            objectives=params.objectives,
            seed=int(stream(*self._key, "nsga2").integers(2**63)),
        )
