"""NSGA-II (Deb et al., 2002) over paths, by pymoo. Imported only where a job searches by it.

Paths outside the bracket are not evaluated. Where the public code gives them a reward by their distance to it, they are
infeasible here, the further away the more so, and any path inside is better. The code's second objective is a constant;
here it is the MACs, unless ``objectives`` is 1.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.config import Config
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.evaluator import Evaluator
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination
from pymoo.operators.crossover.ux import UniformCrossover
from pymoo.problems.static import StaticProblem

from fedscale_ext.methods.fedoras.bracket_sampling import Genes
from fedscale_ext.methods.fedoras.brackets import Bracket
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.models.supernet.family import Tables

Config.warnings["not_compiled"] = False

_TRIES = 10  # matings to make enough new children
_BARREN = 10  # generations without a child inside the bracket, after which random paths inside take their place
_FAILED = 1e9  # how infeasible a path is whose score is not a number


class _Redraw(Mutation):  # type: ignore[misc]
    """Draw each layer's operator anew with a probability, from all that are supported (``columns`` by layer)."""

    def __init__(self, columns: Sequence[np.ndarray], probability: float) -> None:
        super().__init__()
        self.columns, self.probability = columns, probability

    def _do(self, problem: Problem, X: np.ndarray, *args: Any, random_state: Any = None, **kwargs: Any) -> np.ndarray:
        drawn = np.stack([random_state.choice(operators, len(X)) for operators in self.columns], axis=1)
        return np.where(random_state.random(X.shape) < self.probability, drawn, X)


class _Unseen(DuplicateElimination):  # type: ignore[misc]
    """Children that are no path of this search's past."""

    def __init__(self, seen: set[Genes]) -> None:
        super().__init__()
        self.seen = seen

    def _do(self, pop: Population, other: Population | None, is_duplicate: np.ndarray) -> np.ndarray:
        taken = set(self.seen if other is None else _genes(other))
        for index, genes in enumerate(_genes(pop)):
            is_duplicate[index] = genes in taken
            if other is None:
                taken.add(genes)
        return is_duplicate


def _genes(population: Population) -> list[Genes]:
    return [tuple(map(int, x)) for x in population.get("X")]


def generations(
    tables: Tables,
    bracket: Bracket,
    first: Sequence[Genes],
    more: Callable[[int, set[Genes]], list[Genes]],
    *,
    survivors: int,
    mutation: float,
    objectives: int,
    seed: int,
) -> Generator[list[Genes], Sequence[float], None]:
    """Yields the paths of each generation that are inside the bracket and new, and is sent their scores, the greater
    the better.

    ``first``: the first generation, all inside. ``more(number, seen)``: other paths inside. Of parents and children
    together ``survivors`` become parents; they have as many children, each a mix of two parents in which operators are
    redrawn with probability ``mutation``; where they make too few new ones, random paths fill up (as in the public
    code). Ends when no new paths are inside.
    """
    columns = [np.flatnonzero(np.isfinite(row)) for row in tables.macs]
    problem = Problem(
        n_var=len(columns), n_obj=objectives, n_ieq_constr=1, xl=0, xu=tables.macs.shape[1] - 1, vtype=int
    )
    seen: set[Genes] = set()
    algorithm = NSGA2(
        pop_size=survivors,
        n_offsprings=survivors,
        sampling=np.array(first, dtype=np.int64),
        crossover=UniformCrossover(prob=1.0),
        mutation=_Redraw(columns, mutation),
        eliminate_duplicates=_Unseen(seen),
        output=None,
    )
    algorithm.mating.n_max_iterations = _TRIES
    algorithm.setup(problem, termination=NoTermination(), seed=seed)
    genes, barren, drained = _next_generation(algorithm), 0, False
    while True:
        seen.update(genes)
        macs = path_macs(tables, np.array(genes))
        inside = bracket.inside(macs)
        barren = 0 if inside.any() else barren + 1
        scores = np.full(len(genes), np.nan)
        if inside.any():
            scores[inside] = yield [path for path, valid in zip(genes, inside.tolist(), strict=True) if valid]
        children = Population.new("X", np.array(genes))
        Evaluator().eval(_figures(problem, bracket, macs, scores, objectives), children)
        algorithm.tell(infills=children)
        genes = _next_generation(algorithm) if barren < _BARREN else []
        lacking = survivors - len(genes)
        if lacking and not drained:
            others = more(lacking, seen.union(genes))
            drained = len(others) < lacking
            genes += others
        if not genes:
            return


def _next_generation(algorithm: NSGA2) -> list[Genes]:
    children = algorithm.ask()
    algorithm.termination.force_termination = False  # set where there are no children
    return _genes(children) if children is not None else []


def _figures(
    problem: Problem, bracket: Bracket, macs: np.ndarray, scores: np.ndarray, objectives: int
) -> StaticProblem:
    """Objectives, smaller is better, and the constraint, at most 0 for those inside, of paths by MACs and scores."""
    known = np.isfinite(scores)
    objective = np.column_stack([-np.where(known, scores, 0.0), macs / bracket.high])[:, :objectives]
    distance = np.where(macs > bracket.high, macs - bracket.high, bracket.low - macs)
    outside = np.where(bracket.inside(macs), _FAILED, (distance + 1.0) / bracket.high)
    return StaticProblem(problem, F=objective, G=np.where(known, -1.0, outside)[:, None])
