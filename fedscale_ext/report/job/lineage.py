"""How a job's models grew: a table for the terminal, and the life of each model."""

from collections.abc import Mapping
from typing import Any

from fedscale_ext.util.quantities import percent, quantity

TITLES = ("model", "parent", "round", "operation and cell", "MACs", "parameters", "MB", "clients served")


def lineage_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """A row under :data:`TITLES` for each model of a job's summary; a dash for what its method does not tell.

    Shares are of all clients: members of ensembles serve the same ones.
    """
    total = summary["clients"]["total"]
    rows = []
    for model in summary["models"]:
        lineage = origin(model)
        cost, serves = model["cost"], model["serves"]
        rows.append(
            [
                model["key"],
                lineage.get("parent") or "–",
                str(lineage["birth"]) if "birth" in lineage else "–",
                ", ".join(lineage.get("steps", ())) or "–",
                quantity(cost["forward_macs"]),
                quantity(cost["parameters"]),
                f"{cost['bytes'] / 1e6:.3f}",
                f"{serves:,} ({percent(serves / total)})",
            ]
        )
    return rows


def grew(summary: Mapping[str, Any]) -> bool:
    """Tell whether models were born while the job ran."""
    return any(origin(model).get("birth", 0) for model in summary["models"])


def lives(summary: Mapping[str, Any]) -> list[tuple[str, int, float, str, str]]:
    """Each model as :func:`fedscale_ext.report.plots.panels.lives` draws it.

    Its key, birth, MACs, what made it, and its size.
    """
    return [
        (
            model["key"],
            int(origin(model).get("birth", 0)),
            float(model["cost"]["forward_macs"]),
            ", ".join(origin(model).get("steps", ())) or "initial model",
            f"{quantity(model['cost']['forward_macs'])}MACs, {quantity(model['cost']['parameters'])} parameters, "
            f"serves {model['serves']:,}",
        )
        for model in summary["models"]
    ]


def origin(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parent, birth and steps of a model of a summary, as far as its method tells them."""
    return model["lineage"] if isinstance(model["lineage"], dict) else {}
