"""What Moss's server did, in a few figures of each transfer: for the summary, which the internals are too long for."""

from collections.abc import Mapping
from typing import Any

from fedscale_ext.methods.moss.proxy_models import Exchange

_FIGURES = ("fidelity", "ce", "matching")


class ServerFigures:
    """Figures of each transfer in its first and its last round without divergence, and how often it diverged.

    ``transfers``: the type and the way of each, by name (:class:`Transfers` has them).
    """

    def __init__(self, transfers: Mapping[str, tuple[str, str]]) -> None:
        self._transfers = transfers
        self._of: dict[str, dict[str, Any]] = {name: {"first": None, "last": None, "diverged": 0} for name in transfers}

    def add(self, round: int, exchange: Exchange) -> None:
        """Add the figures of a round."""
        for name in exchange.diverged:
            self._of[name]["diverged"] += 1
        for name, report in exchange.reports.items():
            # with proxies, a fidelity is named after the type that the proxy stands for
            reached = exchange.fidelity.get(name, exchange.fidelity.get(name.removeprefix("forward.")))
            figures = {"round": round, "fidelity": reached, "ce": report.ce, "matching": report.matching}
            entry = self._of[name]
            entry["first"], entry["last"] = entry["first"] or figures, figures

    def rows(self) -> list[dict[str, Any]]:
        """A row of JSON values for each transfer that took place; a type that was copied has none."""
        rows = []
        for name, (key, way) in self._transfers.items():
            first, last = (self._of[name][which] or {} for which in ("first", "last"))
            if not first and not self._of[name]["diverged"]:
                continue
            row = {"type": key, "transfer": way, "first_round": first.get("round"), "last_round": last.get("round")}
            for figure in _FIGURES:
                row |= {f"{figure}_first": first.get(figure), f"{figure}_last": last.get(figure)}
            rows.append({**row, "diverged": self._of[name]["diverged"]})
        return rows

    def state(self) -> dict[str, Any]:
        """Return JSON for a checkpoint."""
        return self._of

    def load_state(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; KeyError where it is of other transfers."""
        self._of = {name: dict(data[name]) for name in self._transfers}
