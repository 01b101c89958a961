"""Stage 2 of FedorAS on the server: the searches of all tiers, one after another (section 3.2).

For a restart it keeps the scores of the present search, and the results of the earlier ones. Where searches share
scores, it keeps all of them. A search that gets the same scores takes the same course.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np

from fedscale_ext.methods.fedoras.brackets import Bracket
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.search import Path, PathSearch
from fedscale_ext.models.supernet.family import Tables

ScorePaths = Callable[[int, int, list[Path]], Sequence[float] | np.ndarray]  # of a tier, a generation and its paths


class TierSearches:
    """The searches of all tiers; ``results`` has those of the finished ones, by tier, as JSON.

    ``costs`` and ``brackets`` are by tier. With ``shared``, a path has the same score whichever tier it is judged for,
    so that no path is judged twice.
    """

    def __init__(
        self, costs: Sequence[Tables], brackets: Sequence[Bracket], params: FedorASParams, seed: int, *, shared: bool
    ) -> None:
        self._costs, self._brackets, self._params, self._seed = costs, brackets, params, seed
        self._evaluations = params.evaluations_by_tier(len(brackets))
        self._scores: dict[Path, float] | None = {} if shared else None
        self._present: dict[str, Any] | None = None
        self.results: list[dict[str, Any]] = []

    def run(
        self, score_paths: ScorePaths, after_generation: Callable[[int, PathSearch], None],
        without_judge: Callable[[int], int] = lambda tier: 0,
    ) -> None:  # fmt: skip
        """Search for the tiers that have no result yet (section 3.2).

        Args:
            score_paths: Scores the paths of a tier's generation, the greater the better.
            after_generation: Called with the tier and its search after each judged generation. :meth:`state` then
                has its scores.
            without_judge: Returns how many paths of a tier nobody could judge.

        Raises:
            UserError: No path of a tier has a finite score.

        """
        for tier in range(len(self.results), len(self._costs)):
            search = PathSearch(
                self._costs[tier], self._brackets[tier], self._params, self._evaluations[tier], self._seed, "search",
                tier, scores=self._scores,
            )  # fmt: skip
            if self._present is not None:
                search.load_state(self._present)
            while paths := search.ask():
                search.tell(score_paths(tier, search.generation, paths))
                self._present = search.state()
                after_generation(tier, search)
            self.results.append(_result(search, without_judge(tier)))
            self._present = None

    def state(self) -> dict[str, Any]:
        """Return JSON for a checkpoint."""
        scores = [[list(path), score if isfinite(score) else None] for path, score in (self._scores or {}).items()]
        return {"found": self.results, "present": self._present, "scores": scores}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.results, self._present = list(state["found"]), state["present"]
        if self._scores is not None:
            scores = state.get("scores", ())  # which earlier checkpoints do not have
            self._scores.update((tuple(path), nan if score is None else score) for path, score in scores)


def _result(search: PathSearch, without_judge: int) -> dict[str, Any]:
    best = search.best(without_judge)
    return {
        "path": list(best.path),
        "macs": best.macs,
        "score": best.score,
        "judged": len(search.judged),
        "generations": search.generation,
        "front": [[path.macs, path.score] for path in search.front()],
        "scores": [[path.macs, path.score if isfinite(path.score) else None] for path in search.judged.values()],
    }
