"""WIRE's loss on pairs of layers (Moss, IMWUT 2025, section 3.4, Eqs. 4-7), for all pairs at once.

A pair (m, n) is a tapped layer m of the teacher S and one n of the student T; all pairs are matched. For a sample

    Loc = TL(S_m) >= 0,  Deg = TD(S_m), weights of the C_m channels that sum to one        (Eqs. 4, 6)
    E_c = mean over positions of (r(T_n)_c - S_m,c)^2,  loss = Loc * sum over c of Deg_c E_c    (Eqs. 5, 7)

with the networks of L2T-ww (Jang et al., ICML 2019), whose equations these are: TL and TD read the channels' means; TL
is linear and ends in ReLU6, its bias begins at 1; TD is linear and ends in a softmax, it begins with zeros, so with
equal weights; r is a 1x1 convolution with bias; where maps differ in size, S_m is interpolated to T_n's.

With ``layers`` 2 each meta-network has a hidden layer as wide as its input, with ReLU. Tensors of all n lie in one:
``location.m.0.weight`` [N, 1, C_m], ``degree.m.0.weight`` [N, C_m, C_m], and those of all m: ``project.n`` [sum of C_m,
C_n + 1], the bias last.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Shape = tuple[int, int, int]
_RANK = 1e-8  # singular values below it, in parts of the largest, are none


def meta_networks(
    teacher: Sequence[Shape], students: int, layers: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Initial TL and TD (float32) for a teacher's layers (C, H, W) and so many layers of the student."""
    made: dict[str, Tensor] = {}
    for m, (channels, _, _) in enumerate(teacher):
        for kind, outputs in (("location", 1), ("degree", channels)):
            for layer in range(layers):
                rows, name = (outputs if layer == layers - 1 else channels), f"{kind}.{m}.{layer}"
                made[f"{name}.weight"] = _uniform((students, rows, channels), channels, generator)
                made[f"{name}.bias"] = _uniform((students, rows), channels, generator)
        last = layers - 1
        made[f"location.{m}.{last}.bias"].fill_(1.0)
        made[f"degree.{m}.{last}.weight"].zero_()
        made[f"degree.{m}.{last}.bias"].zero_()
    return made


def projections(teacher: Sequence[Shape], student: Sequence[Shape], generator: torch.Generator) -> dict[str, Tensor]:
    """Initial r for each layer of the student (float32)."""
    rows = sum(channels for channels, _, _ in teacher)
    return {f"project.{n}": _uniform((rows, each[0] + 1), each[0], generator) for n, each in enumerate(student)}


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator) -> Tensor:
    bound = 1 / math.sqrt(inputs)  # torch's own for linear layers and convolutions
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def location(meta: Mapping[str, Tensor], m: int, means: Tensor) -> Tensor:
    """Loc of the pairs of teacher's layer m (Eq. 4): channels' means [B, C_m] -> [N, B]."""
    return functional.relu6(_apply(meta, f"location.{m}", means))[..., 0]


def degree(meta: Mapping[str, Tensor], m: int, means: Tensor) -> Tensor:
    """Deg of the pairs of teacher's layer m (Eq. 6): channels' means [B, C_m] -> [N, B, C_m], sums of one."""
    return _apply(meta, f"degree.{m}", means).softmax(-1)


def _apply(meta: Mapping[str, Tensor], name: str, means: Tensor) -> Tensor:
    x, layer = means, 0
    while f"{name}.{layer}.weight" in meta:
        x = functional.relu(x) if layer else x
        x = x @ meta[f"{name}.{layer}.weight"].mT + meta[f"{name}.{layer}.bias"][:, None]
        layer += 1
    return x


def pair_weights(meta: Mapping[str, Tensor], means: Sequence[Tensor]) -> Tensor:
    """Loc * Deg of all pairs [N, B, sum of C_m]."""
    return torch.cat([location(meta, m, x)[..., None] * degree(meta, m, x) for m, x in enumerate(means)], 2)


@dataclass(frozen=True)
class Wanted:
    """What a student's layers are compared with, for some samples B; everything that the student cannot change.

    ``small``: per n the teacher's maps in T_n's size [B, sum of C_m, P_n], None where products are used;
    ``maps``: per n and m then S_m [B, C_m, P] in its own size or, if that is larger, in T_n's;
    ``squares``: per n then the sums over positions of S_m^2 in T_n's size [B, sum of C_m].
    """

    small: tuple[Tensor | None, ...]
    maps: tuple[tuple[Tensor, ...], ...]
    squares: tuple[Tensor | None, ...]
    student: tuple[Shape, ...]
    teacher: tuple[Shape, ...]

    @staticmethod
    def of(maps: Sequence[Tensor], student: Sequence[Shape]) -> "Wanted":
        """From the teacher's maps [B, C_m, H, W], for a student whose layers have these shapes."""
        small: list[Tensor | None] = []
        kept: list[tuple[Tensor, ...]] = []
        squares: list[Tensor | None] = []
        for channels, height, width in student:
            resized = [_resized(each, height, width).flatten(2) for each in maps]
            products = channels + 1 < height * width
            small.append(None if products else torch.cat(resized, 1))
            squares.append(torch.cat([(each * each).sum(2) for each in resized], 1) if products else None)
            pairs = zip(maps, resized, strict=True)
            kept.append(tuple(own.flatten(2) if _fits(own, height, width) else new for own, new in pairs if products))
        shapes = tuple((each.shape[1], each.shape[2], each.shape[3]) for each in maps)
        return Wanted(tuple(small), tuple(kept), tuple(squares), tuple(student), shapes)

    def __getitem__(self, rows: Tensor) -> "Wanted":
        """Of these samples only."""
        known: dict[int, Tensor] = {}

        def cut(each: Tensor | None) -> Tensor | None:
            if each is None:
                return None
            if each.data_ptr() not in known:  # layers share the teacher's maps
                known[each.data_ptr()] = each[rows]
            return known[each.data_ptr()]

        maps = tuple(tuple(cut(each) for each in some) for some in self.maps)
        small, squares = tuple(map(cut, self.small)), tuple(map(cut, self.squares))
        return Wanted(small, maps, squares, self.student, self.teacher)  # type: ignore[arg-type]


def _fits(own: Tensor, height: int, width: int) -> bool:
    return own.shape[2] <= height and own.shape[3] <= width


def _resized(maps: Tensor, height: int, width: int) -> Tensor:
    if maps.shape[2:] == (height, width):
        return maps
    return functional.interpolate(maps, (height, width), mode="bilinear", align_corners=False)


def _spread(length: int, to: int, like: Tensor) -> Tensor:
    """Bilinear interpolation along one axis as a matrix [to, length]."""
    unit = torch.eye(length, dtype=like.dtype, device=like.device)[:, None]
    return functional.interpolate(unit[..., None], (to, 1), mode="bilinear", align_corners=False)[:, 0, :, 0].T


def errors(project: Mapping[str, Tensor], found: Sequence[Tensor], wanted: Wanted) -> Tensor:
    """E of Eq. 7 for all pairs [N, B, sum of C_m], from the student's maps [B, C_n, H, W].

    With r = R and T_n with a row of ones as matrices per sample, sum over positions of (R T - U S)^2 is

        R (T T') R' - 2 <R, S (T U)'> + |U S|^2

    row by row, U the interpolation. Where T_n has more positions than channels, this takes fewer operations than the
    difference itself, and nothing of the size [sum of C_m, positions] is made, nor kept for derivatives.
    """
    return torch.stack([_error(project[f"project.{n}"], each, wanted, n) for n, each in enumerate(found)])


def _error(r: Tensor, found: Tensor, wanted: Wanted, n: int) -> Tensor:
    positions = found.shape[2] * found.shape[3]
    t = _with_ones(found)
    small, squares = wanted.small[n], wanted.squares[n]
    if small is not None:
        return (r @ t - small).square().sum(2) / positions
    assert squares is not None
    inner = r @ (t @ t.mT) - 2 * _crossed(t, found, wanted, n)
    return ((inner * r).sum(2) + squares) / positions


def _with_ones(found: Tensor) -> Tensor:
    """T_n with a row of ones as matrices per sample: [B, C_n, H, W] -> [B, C_n + 1, P]."""
    return torch.cat([found.flatten(2), found.new_ones(found.shape[0], 1, found.shape[2] * found.shape[3])], 1)


def _crossed(t: Tensor, found: Tensor, wanted: Wanted, n: int) -> Tensor:
    """U S T' [B, sum of C_m, C_n + 1], with S interpolated by U, from T = ``t`` of the maps ``found``."""
    small = wanted.small[n]
    if small is not None:
        return small @ t.mT
    height, width = found.shape[2:]
    crossed = []
    shrunk: dict[tuple[int, int], Tensor] = {(height, width): t}
    for own, (_, rows, columns) in zip(wanted.maps[n], wanted.teacher, strict=True):
        size = (rows, columns) if rows <= height and columns <= width else (height, width)
        if size not in shrunk:
            down, across = _spread(rows, height, t), _spread(columns, width, t)
            shrunk[size] = (down.T @ t.unflatten(2, (height, width)) @ across).flatten(2)
        crossed.append(own @ shrunk[size].mT)
    return torch.cat(crossed, 1)


def solved_projections(found: Sequence[Tensor], wanted: Wanted) -> dict[str, Tensor]:
    """r for each layer of the student where the sum of E over samples, channels and positions is least, of the
    shortest such: from the student's maps [B, C_n, H, W] of all samples that ``wanted`` has. In float64 within."""
    solved = {}
    for n, maps in enumerate(found):
        t = _with_ones(maps)
        gram = (t.double() @ t.double().mT).sum(0)
        crossed = _crossed(t, maps, wanted, n).double().sum(0)
        solved[f"project.{n}"] = (crossed @ torch.linalg.pinv(gram, rtol=_RANK, hermitian=True)).to(maps.dtype)
    return solved
