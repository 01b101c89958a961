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
    """Draw TL and TD (float32).

    Args:
        teacher: Shapes (C, H, W) of the teacher's layers.
        students: Number N of the student's layers.
        layers: Layers of each meta-network.
        generator: Draws the values.

    Returns:
        phi by name; the tensors of all n lie in one.

    """
    phi: dict[str, Tensor] = {}
    for m, (channels, _, _) in enumerate(teacher):
        for kind, outputs in (("location", 1), ("degree", channels)):
            for layer in range(layers):
                rows, name = (outputs if layer == layers - 1 else channels), f"{kind}.{m}.{layer}"
                phi[f"{name}.weight"] = _uniform((students, rows, channels), channels, generator)  # [N, rows, C_m]
                phi[f"{name}.bias"] = _uniform((students, rows), channels, generator)  # [N, rows]
        last = layers - 1
        phi[f"location.{m}.{last}.bias"].fill_(1.0)
        phi[f"degree.{m}.{last}.weight"].zero_()
        phi[f"degree.{m}.{last}.bias"].zero_()
    return phi


def projections(teacher: Sequence[Shape], student: Sequence[Shape], generator: torch.Generator) -> dict[str, Tensor]:
    """Draw r for each layer of the student (float32).

    Args:
        teacher: Shapes (C, H, W) of the teacher's layers.
        student: Shapes of the student's layers.
        generator: Draws the values.

    Returns:
        ``project.n`` [sum of C_m, C_n + 1] by name.

    """
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
        # x [B, C_m] at first, then [N, B, C_m] -> [N, B, rows]
        x = x @ meta[f"{name}.{layer}.weight"].mT + meta[f"{name}.{layer}.bias"][:, None]
        layer += 1
    return x


def pair_weights(meta: Mapping[str, Tensor], means: Sequence[Tensor]) -> Tensor:
    """Loc * Deg of all pairs [N, B, sum of C_m], from the channels' means by m [B, C_m]."""
    return torch.cat([location(meta, m, x)[..., None] * degree(meta, m, x) for m, x in enumerate(means)], 2)


@dataclass(frozen=True)
class MapTargets:
    """What a student's layers are compared with on samples B: all of Eq. 7 that the student cannot change.

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
    def of(maps: Sequence[Tensor], student: Sequence[Shape]) -> "MapTargets":
        """Prepare the teacher's maps [B, C_m, H, W] for a student whose layers have these shapes (C, H, W)."""
        small: list[Tensor | None] = []
        full: list[tuple[Tensor, ...]] = []
        squares: list[Tensor | None] = []
        for channels, height, width in student:
            resized = [_resized(each, height, width).flatten(2) for each in maps]  # by m: [B, C_m, P_n]
            products = channels + 1 < height * width
            small.append(None if products else torch.cat(resized, 1))
            squares.append(torch.cat([(each * each).sum(2) for each in resized], 1) if products else None)
            pairs = zip(maps, resized, strict=True)
            full.append(tuple(s.flatten(2) if _fits(s, height, width) else new for s, new in pairs if products))
        shapes = tuple((each.shape[1], each.shape[2], each.shape[3]) for each in maps)
        return MapTargets(tuple(small), tuple(full), tuple(squares), tuple(student), shapes)

    def __getitem__(self, rows: Tensor) -> "MapTargets":
        """The targets of the samples at ``rows`` int64 [rows] only."""
        known: dict[int, Tensor] = {}

        def cut(each: Tensor | None) -> Tensor | None:
            if each is None:
                return None
            if each.data_ptr() not in known:  # layers share the teacher's maps
                known[each.data_ptr()] = each[rows]
            return known[each.data_ptr()]

        maps = tuple(tuple(cut(each) for each in some) for some in self.maps)
        small, squares = tuple(map(cut, self.small)), tuple(map(cut, self.squares))
        return MapTargets(small, maps, squares, self.student, self.teacher)  # type: ignore[arg-type]


def _fits(maps: Tensor, height: int, width: int) -> bool:
    """Whether maps [B, C, H, W] are no larger than ``height`` x ``width``."""
    return maps.shape[2] <= height and maps.shape[3] <= width


def _resized(maps: Tensor, height: int, width: int) -> Tensor:
    """[B, C, H, W] -> [B, C, height, width]."""
    if maps.shape[2:] == (height, width):
        return maps
    return functional.interpolate(maps, (height, width), mode="bilinear", align_corners=False)


def _spread(length: int, to: int, like: Tensor) -> Tensor:
    """Bilinear interpolation along one axis as a matrix [to, length]."""
    unit = torch.eye(length, dtype=like.dtype, device=like.device)[:, None]
    return functional.interpolate(unit[..., None], (to, 1), mode="bilinear", align_corners=False)[:, 0, :, 0].T


def errors(project: Mapping[str, Tensor], maps: Sequence[Tensor], targets: MapTargets) -> Tensor:
    """E of Eq. 7 for all pairs [N, B, sum of C_m], from the student's ``maps`` by n [B, C_n, H, W].

    With r = R and T_n with a row of ones as matrices per sample, sum over positions of (R T - U S)^2 is

        R (T T') R' - 2 <R, S (T U)'> + |U S|^2

    row by row, U the interpolation. Where T_n has more positions than channels, this takes fewer operations than the
    difference itself, and nothing of the size [sum of C_m, positions] is made, nor kept for derivatives.
    """
    return torch.stack([_error(project[f"project.{n}"], each, targets, n) for n, each in enumerate(maps)])


def _error(r: Tensor, maps: Tensor, targets: MapTargets, n: int) -> Tensor:
    """E [B, sum of C_m] of the student's layer n, from its ``maps`` [B, C_n, H, W] and r [sum of C_m, C_n + 1]."""
    positions = maps.shape[2] * maps.shape[3]
    t = _with_ones(maps)  # [B, C_n + 1, P]
    small, squares = targets.small[n], targets.squares[n]
    if small is not None:
        return (r @ t - small).square().sum(2) / positions  # [B, sum of C_m, P] -> [B, sum of C_m]
    assert squares is not None
    inner = r @ (t @ t.mT) - 2 * _crossed(t, maps, targets, n)  # [B, sum of C_m, C_n + 1]
    return ((inner * r).sum(2) + squares) / positions


def _with_ones(maps: Tensor) -> Tensor:
    """T_n with a row of ones as matrices per sample: [B, C_n, H, W] -> [B, C_n + 1, P]."""
    return torch.cat([maps.flatten(2), maps.new_ones(maps.shape[0], 1, maps.shape[2] * maps.shape[3])], 1)


def _crossed(t: Tensor, maps: Tensor, targets: MapTargets, n: int) -> Tensor:
    """U S T' [B, sum of C_m, C_n + 1], from T = ``t`` of the student's ``maps`` [B, C_n, H, W]; U interpolates S."""
    small = targets.small[n]
    if small is not None:
        return small @ t.mT
    height, width = maps.shape[2:]
    crossed = []
    shrunk: dict[tuple[int, int], Tensor] = {(height, width): t}
    for s, (_, rows, columns) in zip(targets.maps[n], targets.teacher, strict=True):
        size = (rows, columns) if rows <= height and columns <= width else (height, width)
        if size not in shrunk:
            down, across = _spread(rows, height, t), _spread(columns, width, t)  # [H, rows], [W, columns]
            shrunk[size] = (down.T @ t.unflatten(2, (height, width)) @ across).flatten(2)
        crossed.append(s @ shrunk[size].mT)  # [B, C_m, P] and [B, P, C_n + 1] -> [B, C_m, C_n + 1]
    return torch.cat(crossed, 1)


def solved_projections(maps: Sequence[Tensor], targets: MapTargets) -> dict[str, Tensor]:
    """r of the least matching error: the sum of E over samples, channels and positions, by least squares.

    Args:
        maps: The student's maps [B, C_n, H, W] by n, of all samples of ``targets``.
        targets: The teacher's side of the error.

    Returns:
        The shortest solution by name, ``project.n`` [sum of C_m, C_n + 1]; float64 is used inside.

    """
    solved = {}
    for n, layer in enumerate(maps):
        t = _with_ones(layer)  # [B, C_n + 1, P]
        gram = (t.double() @ t.double().mT).sum(0)  # [C_n + 1, C_n + 1]
        crossed = _crossed(t, layer, targets, n).double().sum(0)  # [sum of C_m, C_n + 1]
        solved[f"project.{n}"] = (crossed @ torch.linalg.pinv(gram, rtol=_RANK, hermitian=True)).to(layer.dtype)
    return solved
