"""Feature shift: clients see the same classes in another way, by a rotation or by noise of their own.

- ``rotation``: client number c (from 0 on) sees its pictures turned by the c-th of ``angles``, which go round. Ghosh et
  al. (IFCA, NeurIPS 2020) turn MNIST by 0, 90, 180 and 270 degrees.
- ``noise``: Gaussian noise is added to the samples of client i of N (from 1 on), once for all. It has the variance
  ``level`` i / N, of pixels in 0..1 or of normalised values. It is the noise-based feature imbalance of Li et al.
  (NIID-Bench, ICDE 2022). Their public code takes it as the standard deviation, and draws each time a sample is read.
- ``domains``: the source has domains in the place of clients, such as photos and sketches, and each client gets samples
  of one of them. Samples stay as they are.

Training and test samples of a client are shifted alike. Draws are keyed by the sample, so that they depend on no other.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.decoding.sample_files import VALUES
from fedscale_ext.data.registry import KnownDataSet

ROTATION, NOISE, DOMAINS = KINDS = ("rotation", "noise", "domains")
ANGLES = (0.0, 90.0, 180.0, 270.0)


@dataclass(frozen=True)
class Shift:
    """How each client's samples differ from those of others.

    Attributes:
        kind: One of :data:`KINDS`.
        angles: Degrees of rotations, counter-clockwise.
        level: Variance of the noise of the last client.

    """

    kind: str
    angles: tuple[float, ...] = ANGLES
    level: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"there is no feature shift {self.kind!r}: choose one of {', '.join(KINDS)}")
        if not self.angles or not all(math.isfinite(angle) for angle in self.angles):
            raise UserError("angles of a rotation are numbers of degrees, as in 0,90,180,270")
        if not (math.isfinite(self.level) and 0 < self.level <= 1):
            raise UserError(f"the level of noise must be above 0 and at most 1, not {self.level}")

    @property
    def by_domain(self) -> bool:
        """Whether clients differ by the domain of their samples, which the source has."""
        return self.kind == DOMAINS

    def check(self, entry: KnownDataSet | None) -> None:
        """Raise UserError where the samples of a data set cannot be shifted so."""
        if self.by_domain:
            return
        if entry is not None and entry.by_name:
            raise UserError(f"a feature shift is for pictures and values; samples of {entry.name} are sounds")
        if entry is not None and entry.text:
            raise UserError(f"a feature shift is for pictures and values; samples of {entry.name} are texts")
        if self.kind == ROTATION and entry is not None and entry.values:
            raise UserError(f"a rotation is for pictures; samples of {entry.name} are values, so take noise")

    def settings(self) -> dict[str, Any]:
        """Return the fields for dataset.json."""
        fields: dict[str, dict[str, Any]] = {
            ROTATION: {"angles": list(self.angles)},
            NOISE: {"level": self.level},
            DOMAINS: {},
        }
        return {"kind": self.kind, **fields[self.kind]}

    def amount(self, client: int, clients: int) -> float:
        """Return a client's degrees, or the variance of its noise; ``client`` is its index, from 0 on."""
        if self.kind == ROTATION:
            return self.angles[client % len(self.angles)]
        return self.level * (client + 1) / clients

    def changes(self, client: int, clients: int) -> bool:
        """Whether a client's samples are other ones than without the shift."""
        return not self.by_domain and (self.kind == NOISE or self.amount(client, clients) % 360 != 0)

    def apply(
        self, x: np.ndarray, client: int, clients: int, entry: KnownDataSet | None, seed: int, row: int
    ) -> np.ndarray:
        """Shift a sample.

        Args:
            x: uint8 pixels or float16 values, [C, H, W].
            client: Index of its client, from 0 on.
            clients: Number of clients.
            entry: The data set, if it is a known one.
            seed: Seed of all draws.
            row: Number of the sample, which keys its draw.

        Returns:
            The sample in the same form.

        """
        amount = self.amount(client, clients)
        if self.kind == ROTATION:
            return rotated(x, amount)
        noise = math.sqrt(amount) * stream(seed, "shift", row).standard_normal(x.shape)
        if x.dtype == np.uint8:
            return np.clip(np.rint(x + 255.0 * noise), 0, 255).astype(np.uint8)
        scale = np.array(entry.std if entry is not None else (1.0,)).reshape(-1, 1, 1)
        return (x.astype(np.float64) + scale * noise).astype(VALUES)


def rotated(x: np.ndarray, degrees: float) -> np.ndarray:
    """Turn pixels uint8 [C, H, W] counter-clockwise about their centre.

    Quarter turns of square pictures only move pixels. Other turns interpolate linearly, and what comes from outside
    is black.
    """
    turns, rest = divmod(degrees % 360, 90)
    if rest == 0 and (turns % 2 == 0 or x.shape[1] == x.shape[2]):
        return np.ascontiguousarray(np.rot90(x, int(turns), axes=(1, 2)))
    planes = [Image.fromarray(plane).rotate(degrees, Image.Resampling.BILINEAR) for plane in x]
    return np.stack([np.asarray(plane) for plane in planes])


def shift_words(settings: dict[str, Any]) -> str:
    """Describe the shift of a dataset.json, which :meth:`Shift.settings` wrote."""
    if settings.get("kind") == ROTATION:
        angles = ", ".join(f"{angle:g}" for angle in settings.get("angles", ()) if isinstance(angle, int | float))
        return f"clients see pictures turned by {angles} degrees, one angle after another"
    if settings.get("kind") == NOISE:
        return f"samples of client i of N have Gaussian noise of variance {settings.get('level')} i / N"
    return "each client has samples of one domain, which begins its name"
