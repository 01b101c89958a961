"""Comparisons for the terminal: few columns, so that 80 of its own suffice."""

from collections.abc import Sequence

from fedscale_ext.report.arms import Arm, best, shown

_COLUMNS = ("accuracy", "global", "iqr", "macs", "network", "time")


def comparison_rows(arms: Sequence[Arm]) -> tuple[list[str], list[list[str]]]:
    """Titles and a row per arm; the best of a column has a star behind it."""
    figures = [figure for figure in shown(arms) if figure.key in _COLUMNS]
    tops = [best(arms, figure) for figure in figures]
    rows = []
    for place, arm in enumerate(arms):
        cells = []
        for figure, top in zip(figures, tops, strict=True):
            mean, spread = arm.mean(figure.key), arm.std(figure.key)
            text = "–" if mean is None else figure.tell(mean)
            if spread and figure.key in ("accuracy", "global"):
                text += f" ± {figure.tell(spread)}"
            cells.append(text + ("*" if place in top else ""))
        label = f"{arm.label} ({arm.state})" if arm.state else arm.label
        rows.append([label, str(len(arm.jobs)), *cells])
    titles = ["", "jobs", *(figure.title for figure in figures)]
    return titles, rows
