"""Large linear layers of a cohort whose clients share one copy of the weights that they started from.

Under SGD such a layer's weights stay in the span of their start and of the steps' gradients, each of
which is the product of the layer's input x_s [B, in] and its output's gradient g_s [B, out]:

    W_t = a_t W_0 + sum_{s <= t} c_ts g_s^T x_s

Momentum, weight decay and the prox term only change the scalars a and c. While the rows of all
steps are few beside the layer's size, it is less work to keep x and g than to write W_t: no client has
weights of its own, W_0 is read once for the whole cohort, and the sum of the clients' changes,
which is all that a round's mean needs, is one product of large matrices.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedscale_ext.models.stacked.network import Mapped, Stacked
from fedscale_ext.training.fused_linear import LARGE
from fedscale_ext.training.sgd import Sgd

_BLOCK = 1 << 20  # entries of the clients' summed change that are there at once


def factorable(network: Stacked | Mapped, module: nn.Module) -> list[str]:
    """State names of a network's weights for which it pays."""
    if isinstance(network, Mapped):
        return []
    parameters = dict(module.named_parameters())
    large = [name for name in network.sharable() if name in parameters and parameters[name].numel() >= LARGE]
    return [name for name in large if parameters[name].requires_grad]


class Coefficients:
    """The scalars a_t and c_ts of :class:`Sgd` (without clipping), step by step."""

    def __init__(self, sgd: Sgd) -> None:
        if sgd.clip_norm is not None:
            raise ValueError("a clipped gradient's scale differs between clients")
        self._sgd = sgd
        self._velocity: tuple[float, list[float]] = (0.0, [])  # of W_0 and of each step's gradient
        self.after: list[tuple[float, list[float]]] = [(1.0, [])]  # a_t and c_t1 .. c_tt for t = 0, 1, ...

    def advance(self) -> None:
        """One step: v <- momentum v + g + mu (w - w_0) + weight_decay w, w <- w - lr v."""
        sgd, (start, past) = self._sgd, self.after[-1]
        pull = sgd.mu + sgd.weight_decay
        moved, velocity = self._velocity
        moved = sgd.momentum * moved + pull * start - sgd.mu
        velocity = [sgd.momentum * v + pull * c for v, c in zip(velocity, past, strict=True)] + [1.0]
        self._velocity = moved, velocity
        new = [c - sgd.lr * v for c, v in zip([*past, 0.0], velocity, strict=True)]
        self.after.append((start - sgd.lr * moved, new))


class FactoredWeight:
    """The weights [out, in] of several clients that all start from one tensor."""

    def __init__(self) -> None:
        self._inputs = self._gradients = torch.empty(0)
        self._begun: tuple[Tensor, Coefficients] | None = None

    def begin(self, start: Tensor, sgd: Sgd, clients: int, steps: int, batch: int) -> None:
        """Let ``clients`` clients start from ``start``, for at most ``steps`` steps of ``batch`` samples."""
        rows = steps * batch
        if len(self._inputs) < clients or self._inputs.shape[1] != rows:
            self._inputs = self._gradients = start.new_empty(0)  # the old ones go first
            self._inputs = start.new_empty(clients, rows, start.shape[1])
            self._gradients = start.new_empty(clients, rows, start.shape[0])
        self._batch = batch
        self._begun = start, Coefficients(sgd)

    @property
    def _start(self) -> Tensor:
        assert self._begun is not None, "begin comes first"
        return self._begun[0]

    @property
    def _coefficients(self) -> Coefficients:
        assert self._begun is not None, "begin comes first"
        return self._begun[1]

    def linear(self, x: Tensor, bias: Tensor) -> Tensor:
        """The layer of the first clients on x [K, B, in], bias [K, out] -> [K, B, out]; once in a step."""
        output: Tensor = _Linear.apply(x, bias, self)
        return output

    def advance(self) -> None:
        """The step whose forward and backward pass were the last is taken."""
        self._coefficients.advance()

    def multiplied(self, x: Tensor, *, transposed: bool) -> Tensor:
        """x W_t^T for x [K, B, in], or x W_t for [K, B, out]."""
        share, past = self._coefficients.after[-1]
        weight = self._start.t() if transposed else self._start
        shared = (x.flatten(0, 1) @ weight).view(*x.shape[:2], -1)
        if share != 1.0:
            shared *= share
        if not past:
            return shared
        rows = slice(0, len(past) * self._batch)
        inputs, gradients = self._inputs[: len(x), rows], self._gradients[: len(x), rows]
        read, write = (inputs, gradients) if transposed else (gradients, inputs)
        met = torch.bmm(x, read.transpose(1, 2)).mul_(self._per_row(past))
        return shared.baddbmm_(met, write)

    def remember(self, x: Tensor, gradient: Tensor) -> None:
        """The step's input [K, B, in] and output gradient [K, B, out] of the first clients."""
        begin = (len(self._coefficients.after) - 1) * self._batch
        rows, rest = slice(begin, begin + x.shape[1]), slice(begin + x.shape[1], begin + self._batch)
        for kept, new in ((self._inputs, x), (self._gradients, gradient)):
            kept[: len(x), rows] = new
            kept[: len(x), rest] = 0.0  # of a smaller batch

    def _per_row(self, values: Sequence[float]) -> Tensor:
        return self._start.new_tensor(values).repeat_interleave(self._batch)

    def trained(self, steps: Sequence[int]) -> "FactoredWeights":
        """The first clients' weights after their ``steps``; overwritten when the next cohort begins."""
        after = [self._coefficients.after[number] for number in steps]
        return FactoredWeights(
            self._start,
            [share for share, _ in after],
            [self._inputs[place, : len(past) * self._batch] for place, (_, past) in enumerate(after)],
            [self._gradients[place, : len(past) * self._batch] for place, (_, past) in enumerate(after)],
            [self._per_row(past) for _, past in after],
        )


class FactoredWeights:
    """Trained weights of K clients: W_k = share_k W_0 + gradients_k^T diag(scale_k) inputs_k."""

    def __init__(
        self, start: Tensor, shares: list[float], inputs: list[Tensor], gradients: list[Tensor], scales: list[Tensor]
    ) -> None:
        self._start, self._shares = start, shares
        self._inputs, self._gradients, self._scales = inputs, gradients, scales

    def __getitem__(self, place: int) -> Tensor:
        """One client's weights [out, in]."""
        scaled = self._gradients[place] * self._scales[place][:, None]
        return (self._start * self._shares[place]).addmm_(scaled.t(), self._inputs[place])

    def checksums(self) -> Tensor:
        """A figure for each client, float64 [K], that is finite if and only if its weights are (short of overflow)."""
        pairs = zip(self._inputs, self._gradients, strict=True)
        return torch.stack([x.sum().double() + gradient.sum().double() for x, gradient in pairs])

    def add_changes(self, total: Tensor, good: Sequence[tuple[int, float]]) -> None:
        """total += sum of weight * (W_place - W_0) over ``good``, (place, weight); total [out, in]."""
        pull = sum(weight * (self._shares[place] - 1.0) for place, weight in good)
        rows = max(1, _BLOCK // total.shape[1])
        for begin in range(0, len(total), rows):
            block = slice(begin, begin + rows)
            change = self._start[block] * pull
            for place, weight in good:
                scaled = self._gradients[place][:, block] * (self._scales[place] * weight)[:, None]
                change.addmm_(scaled.t(), self._inputs[place])
            total[block].add_(change)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, weight: FactoredWeight) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        return weight.multiplied(x, transposed=True).add_(bias.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        weight: FactoredWeight = ctx.weight
        passed = weight.multiplied(gradient, transposed=False) if ctx.needs_input_grad[0] else None
        weight.remember(x, gradient)
        return passed, gradient.sum(1), None
