"""Plots as files and as part of a page: one drawing, whose colours the page can change for the dark."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedscale_ext.report.plots.panels import GRID, INK, MAIN, MODELS, MUTED
from fedscale_ext.util.atomic_files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# colour of a drawing -> (variable of the page's style sheet, its value in the dark)
_DARK_MODELS = ("#4da3dd", "#f0b53a", "#35bd93", "#de9dc1", "#8fcdf2", "#f2814a", "#b09ad6", "#d6c544")
COLOURS: Mapping[str, tuple[str, str]] = {
    INK: ("ink", "#e8eaed"),
    MUTED: ("muted", "#a3abb8"),
    GRID: ("grid", "#3a414d"),
    "#ffffff": ("card", "#1b1f27"),
    MAIN: ("main", "#6aa8e8"),
    **{light: (f"series-{index}", dark) for index, (light, dark) in enumerate(zip(MODELS, _DARK_MODELS, strict=True))},
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_DPI = 180  # of a plot beside a page; pictures by themselves are larger


def svg(figure: "Figure") -> str:
    """The drawing as SVG text with words as words, the same for the same drawing; what no reader needs is left out."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedscale_ext"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"^.*?(?=<svg)", "", out.getvalue(), count=1, flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r"(font:[^;\"]*?px) [^;\"]*", rf"\1 {FONT}", text)  # as earlier releases of matplotlib have it
    text = re.sub(r" font-family:[^;\"]*;?", "", text).replace("<svg ", f'<svg font-family="{FONT}" ', 1)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", text))
    text = re.sub(r"\s+id=\"([^\"]+)\"", lambda match: match[0] if match[1] in used else "", text)
    text = re.sub(r"(?<=>)\s*\n\s*(?=<)", "\n", text.replace("<g/>", ""))
    return re.sub(r" *\n *(?!<)", " ", text).rstrip()


def inline(text: str, name: str, title: str) -> str:
    """An SVG to stand in a page: its colours are the page's, its ids its own (``name``), its title for who hears it."""
    text = re.sub(r"\s+id=\"([^\"]+)\"", rf' id="{name}-\1"', text)
    text = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", text)
    for light, (variable, _) in COLOURS.items():
        text = re.sub(re.escape(light), f"var(--{variable})", text, flags=re.I)
    # the page says how large it is
    text = re.sub(r"<svg ([^>]*?)width=\"[^\"]*\" ([^>]*?)height=\"[^\"]*\"", r"<svg \1\2", text, count=1)
    text = re.sub(r" xmlns(?::xlink)?=\"[^\"]*\"", "", text).replace("xlink:href", "href")
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def save(figure: "Figure", folder: Path, name: str) -> str:
    """Write ``folder/name.svg`` and ``.png``; the SVG's text."""
    text = svg(figure)
    write_atomic(folder / f"{name}.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + text)
    save_figure(figure, folder / f"{name}.png", _DPI)
    return text


def save_figure(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """Write ``path`` atomically, in the format that its ending names; makes the folder."""
    out = io.BytesIO()
    figure.savefig(out, format=path.suffix[1:].lower(), dpi=dpi)
    write_atomic(path, out.getvalue())


def style_variables() -> str:
    """The drawing's colours as CSS, in the light and in the dark."""
    light = "".join(f"--{name}:{colour};" for colour, (name, _) in COLOURS.items())
    dark = "".join(f"--{name}:{colour};" for name, colour in COLOURS.values())
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
