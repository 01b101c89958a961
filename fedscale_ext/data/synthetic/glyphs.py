"""Characters as a made-up writer draws them: a font, distorted in the writer's own style.

Everything is drawn at 4 times the size of the result and sampled down, all of a writer's samples at once.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.registry import CHARACTERS

SIDE = 28
_SOURCE = 112  # side of the canvas that a font draws on
_FINE = 56  # side of the grid that is sampled, 2 x 2 places to a pixel
_FONT_SIZE = 80  # a capital is about 58 of 112 high
_REACH = 12  # distances from a stroke's edge are known up to here, in pixels of the canvas
_KNOTS = 4  # elastic displacements are free at 4 x 4 places and smooth in between

# The text fonts among those that ship with matplotlib; the others hold symbols.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    "cmb10", "cmr10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """A writer's style of drawing. Lengths are fractions of the picture's side, angles radians.

    ``pen`` is the width added to (or taken from) each side of the font's strokes, ``elastic`` [2, knots, knots] the
    displacements that all of the writer's characters share, ``wobble`` how far one sample departs from them.
    """

    font: str
    size: float
    aspect: float
    slant: float
    turn: float
    shift: tuple[float, float]
    pen: float
    ink: float
    blur: float
    elastic: np.ndarray
    wobble: float


def writer_style(seed: int, writer: int) -> Style:
    """Draw the style of a writer (1, 2, …); it does not depend on the number of writers."""
    rng = stream(seed, 0, writer, "glyph style")
    font = FONTS[int(rng.integers(len(FONTS)))]
    bold = "Bol" in font or font == "cmb10"
    leans = any(mark in font for mark in ("Italic", "Ita", "Oblique", "cmti"))
    return Style(
        font=font,
        size=float(rng.uniform(0.98, 1.28)),
        aspect=float(np.exp(rng.normal(0.0, 0.14))),
        slant=float(np.clip(rng.normal(-0.05 if leans else 0.1, 0.18), -0.4, 0.45)),
        turn=float(rng.normal(0.0, 0.07)),
        shift=(float(rng.normal(0.0, 0.035)), float(rng.normal(0.0, 0.035))),
        pen=float(rng.uniform(-0.014, 0.012) if bold else rng.uniform(0.002, 0.036)),
        ink=float(rng.uniform(0.75, 1.0)),
        blur=float(rng.uniform(0.02, 0.05)),
        elastic=rng.normal(0.0, rng.uniform(0.02, 0.05), (2, _KNOTS, _KNOTS)),
        wobble=float(rng.uniform(0.5, 1.5)),
    )


def _font_file(name: str) -> Path:
    import matplotlib  # here, because it is slow to import and only synthesis needs it

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


def _distance(mask: np.ndarray) -> np.ndarray:
    """Pixels to the nearest set pixel of the same picture, at most ``_REACH``: float32, as ``mask`` bool [n, y, x]."""
    from scipy.ndimage import distance_transform_edt  # here, because it is slow to import and only synthesis needs it

    return np.stack([np.minimum(distance_transform_edt(~one), _REACH) for one in mask]).astype(np.float32)


@lru_cache(maxsize=len(FONTS))
def templates(font: str) -> np.ndarray:
    """The 62 characters as a font has them: float32 [62, 112, 112], the signed distance to the strokes'
    edge in fractions of the picture's side, positive inside, so that a pen can be wider or narrower.

    Characters keep their relative sizes; each is centred across, and halfway from the capitals' line to
    its own middle upright. Raises UserError when the font is missing or lacks a character.
    """
    path = _font_file(font)
    try:
        face = ImageFont.truetype(str(path), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise UserError(f"the font {path} of matplotlib is missing: install matplotlib again") from error
    unknown = bytes(face.getmask("\ue000"))
    inside = np.zeros((len(CHARACTERS), _SOURCE, _SOURCE), dtype=bool)
    _, cap_top, _, cap_bottom = face.getbbox("H", anchor="ls")
    for index, character in enumerate(CHARACTERS):
        if bytes(face.getmask(character)) in (b"", unknown):
            raise UserError(f"the font {font} has no character {character!r}")
        left, top, right, bottom = face.getbbox(character, anchor="ls")
        middle = (top + bottom + cap_top + cap_bottom) / 4
        canvas = Image.new("L", (_SOURCE, _SOURCE), 0)
        position = ((_SOURCE - left - right) / 2, _SOURCE / 2 - middle)
        ImageDraw.Draw(canvas).text(position, character, fill=255, font=face, anchor="ls")
        inside[index] = np.asarray(canvas) > 127
    outwards, inwards = _distance(inside), _distance(~inside)
    return (inwards - outwards) / np.float32(_SOURCE)


def _smooth(knots: np.ndarray) -> np.ndarray:
    """Displacements [n, 2, knots, knots] on the fine grid, [n, 2, 56, 56], by cubic weights along each axis."""
    positions = np.linspace(0.0, _KNOTS - 1.0, _FINE)
    weights = np.clip(1.0 - np.abs(positions[:, None] - np.arange(_KNOTS)), 0.0, 1.0)
    weights = weights**2 * (3.0 - 2.0 * weights)  # 1 in sum, and without corners at the knots
    return np.einsum("yk,nckl,xl->ncyx", weights, knots, weights, optimize=True)


def _sample(fields: np.ndarray, which: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Bilinear values of ``fields[which[i]]`` at (x[i], y[i]) in pixels; beyond the border its values go on."""
    side = fields.shape[1]
    x, y = np.clip(x, 0.0, side - 1.001), np.clip(y, 0.0, side - 1.001)
    left, top = x.astype(np.int64), y.astype(np.int64)
    right_share, low_share = (x - left).astype(np.float32), (y - top).astype(np.float32)
    flat = fields.reshape(-1)
    at = (which[:, None, None] * side + top) * side + left
    upper = flat[at] * (1 - right_share) + flat[at + 1] * right_share
    lower = flat[at + side] * (1 - right_share) + flat[at + side + 1] * right_share
    return upper * (1 - low_share) + lower * low_share


def draw(style: Style, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw samples of the given classes: uint8 [n, 28, 28], dark ink on white as in LEAF's FEMNIST."""
    n, wobble = len(labels), style.wobble

    def vary(middle: float, spread: float) -> np.ndarray:
        return (middle + rng.normal(0.0, spread * wobble, n))[:, None, None]

    size = style.size * np.exp(vary(0.0, 0.05))
    aspect = np.exp(vary(np.log(style.aspect), 0.05) / 2)
    slant, turn = vary(style.slant, 0.05), vary(style.turn, 0.04)
    shift_x, shift_y = vary(style.shift[0], 0.02), vary(style.shift[1], 0.02)
    knots = style.elastic + rng.normal(0.0, 0.012 * wobble, (n, 2, _KNOTS, _KNOTS))
    pen = vary(style.pen, 0.004)

    axis = (np.arange(_FINE) + 0.5) / _FINE - 0.5
    bend = _smooth(knots)
    x = axis[None, None, :] - shift_x + bend[:, 0]
    y = axis[None, :, None] - shift_y + bend[:, 1]
    x, y = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    x = (x + slant * y) / (size * aspect)
    y = y / (size / aspect)
    field = _sample(templates(style.font), labels, (x + 0.5) * _SOURCE - 0.5, (y + 0.5) * _SOURCE - 0.5)

    ink = np.clip((field * size + pen) / style.blur + 0.5, 0.0, 1.0) * style.ink
    pixels = ink.reshape(n, SIDE, 2, SIDE, 2).mean(axis=(2, 4))
    return np.rint(255.0 * (1.0 - pixels)).astype(np.uint8)
