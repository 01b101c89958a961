"""Characters as a made-up writer draws them: a font, distorted in the writer's own style.

Everything is drawn at 4 times the size of the result and sampled down, all of a writer's samples at once.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedscale_ext.data.registry import CHARACTERS
from fedscale_ext.errors import UserError
from fedscale_ext.streams import stream

SIDE = 28
_SOURCE = 112  # side of the canvas that a font draws on
_FINE = 56  # side of the grid that is sampled, 2 x 2 places to a pixel
_FONT_SIZE = 80  # a capital is about 58 of 112 high
_KNOTS = 4  # elastic displacements are free at 4 x 4 places and smooth in between

# The text fonts among those that ship with matplotlib; the others hold symbols.
FONTS = (
    *(f"DejaVu{family}{style}" for family in ("Sans", "SansMono") for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    "cmb10", "cmr10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How a writer draws. Lengths are fractions of the picture's side, angles radians.

    ``pen`` is the width added to (or taken from) the font's strokes, ``elastic`` [2, knots, knots] the
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
    """The style of a writer (1, 2, …); it does not depend on how many other writers there are."""
    rng = stream(seed, 0, writer, "glyph style")
    font = FONTS[int(rng.integers(len(FONTS)))]
    bold = "Bol" in font or font == "cmb10"
    leans = any(mark in font for mark in ("Italic", "Ita", "Oblique", "cmti"))
    return Style(
        font=font,
        size=float(rng.uniform(0.78, 1.22)),
        aspect=float(np.exp(rng.normal(0.0, 0.14))),
        slant=float(np.clip(rng.normal(-0.05 if leans else 0.1, 0.18), -0.4, 0.45)),
        turn=float(rng.normal(0.0, 0.07)),
        shift=(float(rng.normal(0.0, 0.035)), float(rng.normal(0.0, 0.035))),
        pen=float(rng.uniform(-0.022, 0.012) if bold else rng.uniform(-0.002, 0.05)),
        ink=float(rng.uniform(0.75, 1.0)),
        blur=float(rng.uniform(0.02, 0.05)),
        elastic=rng.normal(0.0, rng.uniform(0.015, 0.045), (2, _KNOTS, _KNOTS)),
        wobble=float(rng.uniform(0.5, 1.5)),
    )


def _font_file(name: str) -> Path:
    import matplotlib  # here, because it is slow to import and only synthesis needs it

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@lru_cache(maxsize=len(FONTS))
def templates(font: str) -> np.ndarray:
    """The 62 characters as a font has them: float32 [62, 112, 112], signed so that larger is further inside
    a stroke (0 at its edge, in fractions of the picture's side), which lets a pen be wider or narrower.

    The capitals' middle is at the picture's middle for every font; widths are centred one by one. Raises
    UserError when the font is missing or lacks a character.
    """
    path = _font_file(font)
    try:
        face = ImageFont.truetype(str(path), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise UserError(f"the font {path} of matplotlib is missing: install matplotlib again") from error
    unknown = bytes(face.getmask("\ue000"))
    top, bottom = face.getbbox("H", anchor="ls")[1::2]
    fields = []
    for character in CHARACTERS:
        if bytes(face.getmask(character)) in (b"", unknown):
            raise UserError(f"the font {font} has no character {character!r}")
        left, _, right, _ = face.getbbox(character, anchor="ls")
        canvas = Image.new("L", (_SOURCE, _SOURCE), 0)
        place = ((_SOURCE - left - right) / 2, (_SOURCE - top - bottom) / 2)
        ImageDraw.Draw(canvas).text(place, character, fill=255, font=face, anchor="ls")
        fields.append(_distance(np.asarray(canvas) > 127))
    return np.stack(fields)


def _distance(inside: np.ndarray) -> np.ndarray:
    """Signed distance to the edge of a shape, up to 9 pixels, as a fraction of the side: float32 like
    ``inside`` (bool [side, side]); positive inside."""
    reach = 9
    steps = [(dy, dx) for dy in range(-reach, reach + 1) for dx in range(-reach, reach + 1)]
    far = np.full(inside.shape, float(reach), dtype=np.float32)
    side = inside.shape[0]
    padded = np.pad(inside, reach)
    edge = inside ^ _grown(inside)  # the first ring of pixels outside
    padded_edge = np.pad(edge, reach)
    for dy, dx in steps:
        length = np.float32(np.hypot(dy, dx))
        if length < reach:
            window = padded_edge[reach + dy : reach + dy + side, reach + dx : reach + dx + side]
            np.minimum(far, np.where(window, length, reach), out=far)
    del padded
    return np.where(inside, far - 0.5, -far - 0.5).astype(np.float32) / side


def _grown(inside: np.ndarray) -> np.ndarray:
    padded = np.pad(inside, 1)
    return inside | padded[2:, 1:-1] | padded[:-2, 1:-1] | padded[1:-1, 2:] | padded[1:-1, :-2]
