"""Stage 2 of FedorAS on the server: the searches of all tiers, one after another (section 3.2).

What it keeps for a restart is the scores that the present search was told, and what the earlier ones found: a search
that is told the same goes the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from fedscale_ext.methods.fedoras.search import Path, PathSearch, SearchSettings
from fedscale_ext.methods.fedoras.tiers import Bracket
from fedscale_ext.models.supernet.family import Tables

Judge = Callable[[int, int, list[Path]], Sequence[float] | np.ndarray]  # of a tier, a generation and its paths


class TierSearches:
    """``costs`` and ``brackets`` by tier. ``shared``: a path has the same score whichever tier it is judged for, so
    that no search asks for what an earlier one was told. ``found`` by tier, as JSON."""

    def __init__(
        self, costs: Sequence[Tables], brackets: Sequence[Bracket], settings: Sequence[SearchSettings], seed: int,
        *, shared: bool,
    ) -> None:  # fmt: skip
        self._costs, self._brackets, self._settings, self._seed = costs, brackets, settings, seed
        self._scores: dict[Path, float] | None = {} if shared else None
        self._present: dict[str, Any] | None = None
        self.found: list[dict[str, Any]] = []

    def run(self, judge: Judge, kept: Callable[[int, PathSearch], None]) -> None:
        """Search for what is not found yet. ``kept`` is called with the tier and its search after each generation that
        was judged, when :meth:`state` has it."""
        for tier in range(len(self.found), len(self._costs)):
            search = PathSearch(
                self._costs[tier], self._brackets[tier], self._settings[tier], self._seed, "search", tier,
                scores=self._scores,
            )  # fmt: skip
            if self._present is not None:
                search.load_state(self._present)
            while paths := search.ask():
                search.tell(judge(tier, search.generation, paths))
                self._present = search.state()
                kept(tier, search)
            self.found.append(_result(search))
            self._present = None

    def state(self) -> dict[str, Any]:
        """JSON."""
        return {"found": self.found, "present": self._present}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.found, self._present = list(state["found"]), state["present"]


def _result(search: PathSearch) -> dict[str, Any]:
    best = search.best()
    return {
        "path": list(best.path),
        "macs": best.macs,
        "score": best.score,
        "judged": len(search.judged),
        "generations": search.generation,
        "front": [[found.macs, found.score] for found in search.front()],
        "scores": [[found.macs, found.score if isfinite(found.score) else None] for found in search.judged.values()],
    }
