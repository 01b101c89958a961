"""Large linear layers of a cohort whose clients share one copy of their initial weights.

Under SGD such a layer's weights stay in the span of their start and of the steps' gradients. Each gradient is the
product of the layer's input x_s [B, in] and its output's gradient g_s [B, out]:

    W_t = a_t W_0 + sum_{s <= t} c_ts g_s^T x_s

Momentum, weight decay and the prox term only change the scalars a and c. While the rows of all steps are few compared
with the layer's size, storing x and g is less work than writing W_t. No client has a copy of the weights, and W_0 is
read once for the whole cohort. A round's mean needs only the sum of the clients' changes, which is one product of large
matrices.

Shapes use K for clients, B for the samples of a step, R = steps * B for the rows of all steps.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedscale_ext.models.stacked.network import Mapped, Stacked
from fedscale_ext.training.fused_linear import LARGE
from fedscale_ext.training.optimizers.sgd import Sgd

_BLOCK = 1 << 20  # entries of the clients' summed change in memory at once


def factorable(network: Stacked | Mapped, module: nn.Module, tap: str | None = None) -> list[str]:
    """Return the state names of the weights that are large enough to be worth it.

    Args:
        network: The stacked form of ``module``; a mapped one has none.
        module: The network of one client.
        tap: Name of the layer that the clients' loss may call a second time in a step.

    """
    if isinstance(network, Mapped):
        return []
    parameters = dict(module.train().named_parameters())  # a network's train() may set which of them train
    large = [name for name in network.sharable(tap) if name in parameters and parameters[name].numel() >= LARGE]
    return [name for name in large if parameters[name].requires_grad]


class Coefficients:
    """The scalars a_t and c_ts of :class:`Sgd`, step by step.

    Attributes:
        after: For t = 0, 1, ...: a_t and the list c_t1 .. c_tt.

    Raises:
        ValueError: If gradients are clipped, since their scale then differs between clients.

    """

    def __init__(self, sgd: Sgd) -> None:
        if sgd.clip_norm is not None:
            raise ValueError("a clipped gradient's scale differs between clients")
        self._sgd = sgd
        self._velocity: tuple[float, list[float]] = (0.0, [])  # of W_0 and of each step's gradient
        self.after: list[tuple[float, list[float]]] = [(1.0, [])]  # a_t and c_t1 .. c_tt for t = 0, 1, ...

    def advance(self) -> None:
        """Take a step: v <- momentum v + g + mu (w - w_0) + weight_decay w, w <- w - lr v."""
        sgd, (start, past) = self._sgd, self.after[-1]
        pull = sgd.mu + sgd.weight_decay
        moved, velocity = self._velocity
        moved = sgd.momentum * moved + pull * start - sgd.mu
        velocity = [sgd.momentum * v + pull * c for v, c in zip(velocity, past, strict=True)] + [1.0]
        self._velocity = moved, velocity
        new = [c - sgd.lr * v for c, v in zip([*past, 0.0], velocity, strict=True)]
        self.after.append((start - sgd.lr * moved, new))


class FactoredWeight:
    """Weights [out, in] of several clients that all start from one tensor."""

    def __init__(self) -> None:
        self._inputs = self._gradients = torch.empty(0)  # [K, R, in], [K, R, out]
        self._begun: tuple[Tensor, Coefficients] | None = None
        self.reached = False  # whether a backward pass came to the layer in this step

    def begin(self, start: Tensor, sgd: Sgd, clients: int, steps: int, batch: int) -> None:
        """Start training, in reused memory.

        Args:
            start: The common initial weights [out, in].
            sgd: The optimizer, without clipping.
            clients: Number of clients, K.
            steps: Largest number of steps.
            batch: Largest number of samples of a step, B.

        """
        rows = steps * batch
        if len(self._inputs) < clients or self._inputs.shape[1] != rows:
            self._inputs = self._gradients = start.new_empty(0)  # free the old buffers before allocating
            self._inputs = start.new_empty(clients, rows, start.shape[1])
            self._gradients = start.new_empty(clients, rows, start.shape[0])
        self._batch = batch
        self._begun = start, Coefficients(sgd)
        self.reached = False

    @property
    def _start(self) -> Tensor:
        assert self._begun is not None, "begin comes first"
        return self._begun[0]

    @property
    def _coefficients(self) -> Coefficients:
        assert self._begun is not None, "begin comes first"
        return self._begun[1]

    def linear(self, x: Tensor, bias: Tensor) -> Tensor:
        """Apply the layer for the first clients; call it once per step.

        Args:
            x: Inputs [K, B, in].
            bias: [K, out].

        Returns:
            Outputs [K, B, out].

        """
        output: Tensor = _Linear.apply(x, bias, self)
        return output

    def advance(self) -> None:
        """Count the step whose forward and backward pass were the last."""
        self._coefficients.advance()
        self.reached = False

    def multiplied(self, x: Tensor, *, transposed: bool) -> Tensor:
        """Return x W_t^T [K, B, out] for x [K, B, in] if ``transposed``, else x W_t [K, B, in] for x [K, B, out]."""
        share, past = self._coefficients.after[-1]
        weight = self._start.t() if transposed else self._start  # [in, out] or [out, in]
        shared = (x.flatten(0, 1) @ weight).view(*x.shape[:2], -1)  # one product for all clients
        if share != 1.0:
            shared *= share
        if not past:
            return shared
        rows = slice(0, len(past) * self._batch)
        inputs, gradients = self._inputs[: len(x), rows], self._gradients[: len(x), rows]  # [K, t * B, in or out]
        read, write = (inputs, gradients) if transposed else (gradients, inputs)
        products = torch.bmm(x, read.transpose(1, 2)).mul_(self._per_row(past))  # [K, B, t * B]
        return shared.baddbmm_(products, write)

    def remember(self, x: Tensor, gradient: Tensor) -> None:
        """Store the first clients' input [K, B, in] and output gradient [K, B, out] of this step.

        Raises:
            RuntimeError: If the layer was called more than once in this step.

        """
        if self.reached:
            raise RuntimeError("a layer whose weights are kept as factors was called twice in a step")
        self.reached = True
        begin = (len(self._coefficients.after) - 1) * self._batch
        rows, rest = slice(begin, begin + x.shape[1]), slice(begin + x.shape[1], begin + self._batch)
        for buffer, new in ((self._inputs, x), (self._gradients, gradient)):
            buffer[: len(x), rows] = new
            buffer[: len(x), rest] = 0.0  # where the batch is smaller

    def _per_row(self, values: Sequence[float]) -> Tensor:
        return self._start.new_tensor(values).repeat_interleave(self._batch)

    def trained(self, steps: Sequence[int]) -> "FactoredWeights":
        """Return the first clients' weights after ``steps`` steps each; the next cohort overwrites them."""
        after = [self._coefficients.after[number] for number in steps]
        return FactoredWeights(
            self._start,
            [share for share, _ in after],
            [self._inputs[index, : len(past) * self._batch] for index, (_, past) in enumerate(after)],
            [self._gradients[index, : len(past) * self._batch] for index, (_, past) in enumerate(after)],
            [self._per_row(past) for _, past in after],
        )


class FactoredWeights:
    """Trained weights of K clients: W_k = share_k W_0 + gradients_k^T diag(scale_k) inputs_k.

    Args:
        start: W_0 [out, in].
        shares: Of each client, the scalar a_t after its last step.
        inputs: Of each client [t * B, in].
        gradients: Of each client [t * B, out].
        scales: Of each client [t * B], c_ts for each row of step s.

    """

    def __init__(
        self, start: Tensor, shares: list[float], inputs: list[Tensor], gradients: list[Tensor], scales: list[Tensor]
    ) -> None:
        self._start, self._shares = start, shares
        self._inputs, self._gradients, self._scales = inputs, gradients, scales

    def __getitem__(self, index: int) -> Tensor:
        """Return one client's weights [out, in]."""
        scaled = self._gradients[index] * self._scales[index][:, None]  # [t * B, out]
        return (self._start * self._shares[index]).addmm_(scaled.t(), self._inputs[index])

    def checksums(self) -> Tensor:
        """Return a number per client, float64 [K]; barring overflow, it is finite if and only if its weights are."""
        pairs = zip(self._inputs, self._gradients, strict=True)
        return torch.stack([x.sum().double() + gradient.sum().double() for x, gradient in pairs])

    def add_changes(self, total: Tensor, weighted: Sequence[tuple[int, float]]) -> None:
        """Add the weighted sum of the clients' changes W_k - W_0, in place.

        Args:
            total: The sum [out, in] to add to.
            weighted: Pairs of a client's index and weight.

        """
        pull = sum(weight * (self._shares[index] - 1.0) for index, weight in weighted)
        rows = max(1, _BLOCK // total.shape[1])
        for begin in range(0, len(total), rows):
            block = slice(begin, begin + rows)
            change = self._start[block] * pull  # [block, in]
            for index, weight in weighted:
                scaled = self._gradients[index][:, block] * (self._scales[index] * weight)[:, None]
                change.addmm_(scaled.t(), self._inputs[index])
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
