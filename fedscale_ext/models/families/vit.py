"""Vision transformers (Dosovitskiy et al., ICLR 2021) whose blocks can be widened and deepened.

Patches -> linear embedding and learnt positions -> blocks (pre-norm: attention, then an MLP, each
added to its input) -> LayerNorm, mean over the patches, linear. The mean stands for the class token
(appendix D.3 of the paper: both do equally well).

A block is a cell. Its channel group counts *heads*: a head brings ``head_dim`` channels of queries,
keys and values and ``mlp`` hidden channels of the MLP, so that widening adds whole heads and the hidden
channels with them. The width of what is added from block to block never changes under FedTrans, and
LayerNorm sees no other, so widening is exact.

Fields of the spec: ``input_shape`` (C, H, W), ``num_classes``, ``patch`` (side), ``width``,
``head_dim``, ``mlp`` (hidden channels per head) and ``blocks``, tuples ``(cell_id, heads)``. An input
that is no multiple of the patch is padded with zeros at the bottom and on the right.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Axis, Layout, ModelSpec
from fedscale_ext.models.layers.parts import conv, linear

_SPREAD = 0.02  # standard deviation of initial weights, as in the published code


class Patches(nn.Module):
    """[B, C, H, W] -> [B, T, width]: each ``patch`` x ``patch`` pixels as one token, plus a learnt position.

    An input that is no multiple of the patch is padded with zeros at the bottom and on the right.
    """

    def __init__(self, input_shape: tuple[int, int, int], patch: int, width: int) -> None:
        super().__init__()
        channels, *sides = input_shape
        rows, columns = (-(-side // patch) for side in sides)
        self.padding = (0, columns * patch - sides[1], 0, rows * patch - sides[0])
        self.conv = nn.Conv2d(channels, width, patch, patch)
        self.position = nn.Parameter(torch.empty(rows * columns, width))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.conv(functional.pad(x, self.padding)).flatten(2).transpose(1, 2) + self.position


class Attention(nn.Module):
    """[B, T, heads * 3 * head_dim] (per head queries, keys, values) -> [B, T, heads * head_dim]."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        heads = x.unflatten(2, (self.heads, 3 * self.head_dim)).transpose(1, 2)
        q, k, v = heads.split(self.head_dim, 3)  # [B, heads, T, head_dim]
        weights = (q @ k.transpose(2, 3) * self.head_dim**-0.5).softmax(3)
        return (weights @ v).transpose(1, 2).flatten(2)


class TokenMean(nn.Module):
    """[B, T, D] -> [B, D]."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.mean(1)


class Block(nn.Module):
    """Attention and MLP on tokens [B, T, width], each behind a LayerNorm and added to its input."""

    def __init__(self, width: int, heads: int, head_dim: int, mlp: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attention = nn.Linear(width, heads * 3 * head_dim), Attention(heads, head_dim)
        self.out = nn.Linear(heads * head_dim, width)
        self.fc1, self.fc2 = nn.Linear(width, heads * mlp), nn.Linear(heads * mlp, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = x + self.out(self.attention(self.qkv(self.norm1(x))))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Network(nn.Module):
    """[B, C, H, W] -> [B, classes]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.patches = Patches(spec["input_shape"], spec["patch"], spec["width"])
        self.cells = nn.ModuleDict(
            {cell: Block(spec["width"], heads, spec["head_dim"], spec["mlp"]) for cell, heads in spec["blocks"]}
        )
        self.norm, self.mean = nn.LayerNorm(spec["width"]), TokenMean()
        self.head = nn.Linear(spec["width"], spec["num_classes"])

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.patches(x)
        for cell in self.cells.values():
            x = cell(x)
        return self.head(self.mean(self.norm(x)))


def make(
    input_shape: Sequence[int],
    num_classes: int,
    blocks: Sequence[tuple[str, int]],
    patch: int = 4,
    width: int = 64,
    head_dim: int = 16,
    mlp: int = 32,
) -> ModelSpec:
    """Spec of a network; UserError where it cannot be built."""
    spec = ModelSpec.make(
        "vit",
        input_shape=tuple(input_shape),
        num_classes=num_classes,
        blocks=tuple(tuple(block) for block in blocks),
        patch=patch,
        width=width,
        head_dim=head_dim,
        mlp=mlp,
    )
    _check(spec)
    return spec


def _check(spec: ModelSpec) -> None:
    heads = {f"the number of heads of {cell!r:.60}": heads for cell, heads in spec["blocks"]}
    for name, size in {**{name: spec[name] for name in ("patch", "width", "head_dim", "mlp")}, **heads}.items():
        if size < 1:
            raise UserError(f"vit spec: {name} is {size}; it must be at least 1")
    _, height, width = spec["input_shape"]
    if min(height, width) < 2 * spec["patch"]:
        raise UserError(
            f"a vit with patches of {spec['patch']} pixels attends to two along each side at least; "
            f"{height}x{width} is too small, use at least {2 * spec['patch']}x{2 * spec['patch']}"
        )
    ids = cell_ids(spec)
    if len(set(ids)) < len(ids) or not all(cell.isidentifier() for cell in ids):
        raise UserError(f"vit spec: the cell ids {', '.join(ids)} must be different plain names")


def small(input_shape: tuple[int, int, int], num_classes: int) -> ModelSpec:
    """Three blocks of four heads on patches of 4x4 pixels, 64 wide: a base to grow from (the paper names no sizes)."""
    return make(input_shape, num_classes, [(f"c{number}", 4) for number in range(3)])


FIELDS = ("input_shape", "num_classes", "blocks", "patch", "width", "head_dim", "mlp")
DRAWN_BY = "nothing"
NAMED = {"vit_small": small}


def build(spec: ModelSpec) -> nn.Module:
    """Build the network of a spec; weights normal (0.02), biases zero."""
    _check(spec)
    network = Network(spec)
    nn.init.normal_(network.patches.position, std=_SPREAD)
    for part in network.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=_SPREAD)
            nn.init.zeros_(part.bias)
    return network


def layout(spec: ModelSpec) -> Layout:
    """Return the axes of every tensor; groups are "width" and the heads of each block."""
    axes = conv("patches.conv", "input", "width", bias=True) | _norm("norm")
    axes["patches.position"] = (None, Axis("width", "out"))
    head_dim, mlp = spec["head_dim"], spec["mlp"]
    for cell, _ in spec["blocks"]:
        name = f"cells.{cell}"
        axes |= _norm(f"{name}.norm1") | _norm(f"{name}.norm2")
        axes |= linear(f"{name}.qkv", "width", name, writes=3 * head_dim)
        axes |= linear(f"{name}.out", name, "width", reads=head_dim)
        axes |= linear(f"{name}.fc1", "width", name, writes=mlp) | linear(f"{name}.fc2", name, "width", reads=mlp)
    return axes | linear("head", "width", "classes")


def _norm(name: str) -> Layout:
    return {f"{name}.{part}": (Axis("width", "out"),) for part in ("weight", "bias")}


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels by group (:func:`fedscale_ext.models.resized`)."""
    blocks = [(cell, widths.get(f"cells.{cell}", heads)) for cell, heads in spec["blocks"]]
    return spec.replace(width=widths.get("width", spec["width"]), blocks=blocks)


def taps(spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of the blocks, whose outputs are tokens [B, T, C]."""
    return tuple(f"cells.{cell}" for cell in cell_ids(spec))


# --- Functions of a family with cells, for FedTrans's transformer ---------------------------------------


def cell_ids(spec: ModelSpec) -> tuple[str, ...]:
    """Return the ids of the blocks in the order of the forward pass."""
    return tuple(cell for cell, _ in spec["blocks"])


def cell_group(spec: ModelSpec, cell_id: str) -> tuple[str, int]:
    """The block's group, and how many heads it has."""
    return f"cells.{cell_id}", dict(spec["blocks"])[cell_id]


def widened(spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
    """Return the spec with ``width`` heads, and their hidden channels, in the block."""
    return resized(spec, {f"cells.{cell_id}": width})


def deepened(spec: ModelSpec, cell_id: str, new_ids: Sequence[str]) -> ModelSpec:
    """Return the spec with blocks ``new_ids`` of as many heads inserted behind the block."""
    blocks: list[tuple[str, int]] = []
    for cell, heads in spec["blocks"]:
        blocks.append((cell, heads))
        if cell == cell_id:
            blocks += [(new, heads) for new in new_ids]
    return spec.replace(blocks=blocks)


def identity_zeros(spec: ModelSpec, cell_id: str) -> list[str]:
    """Return the names of tensors that make an inserted block an exact identity when zero: its output projections."""
    return [f"cells.{cell_id}.{name}.{part}" for name in ("out", "fc2") for part in ("weight", "bias")]
