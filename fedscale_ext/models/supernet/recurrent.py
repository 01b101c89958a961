"""Candidate operators of supernets on sequences: [B, T, C] -> [B, T, width] (FedorAS, section 4.1; public code)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.models.supernet.operators import Maker


class Recurrent(nn.Module):
    """torch's LSTM or GRU of one layer."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], in_width: int, width: int) -> None:
        super().__init__()
        self.rnn = kind(in_width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        output: Tensor = self.rnn(x)[0]
        return output


class LiGRU(nn.Module):
    """GRU with an update gate only (Ravanelli et al., IEEE TETCI 2018).

    As in the public code, it has tanh, and neither biases nor BatchNorm.
    """

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(in_width, 2 * width, bias=False)
        self.hidden = nn.Linear(width, 2 * width, bias=False)
        nn.init.orthogonal_(self.hidden.weight)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        inputs, states = self.input(x), []
        state = inputs.new_zeros(len(x), self.hidden.in_features)
        for step_input in inputs.unbind(1):
            candidate, gate = (step_input + self.hidden(state)).chunk(2, 1)
            candidate = candidate.tanh()
            state = candidate + gate.sigmoid() * (state - candidate)
            states.append(state)
        return torch.stack(states, 1)


class QRNN(nn.Module):
    """Quasi-recurrent layer with forget and output gates of the present input (Bradbury et al., ICLR 2017)."""

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        values, forget, out = self.linear(x).chunk(3, 2)
        forget = forget.sigmoid()
        states: list[Tensor] = []
        for new, keep in zip((forget * values.tanh()).unbind(1), (1 - forget).unbind(1), strict=True):
            states.append(new + keep * states[-1] if states else new)
        return out.sigmoid() * torch.stack(states, 1)


class Affine(nn.Module):
    """Linear layer and sigmoid at each position."""

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_width, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.linear(x).sigmoid()


class CausalConv(nn.Module):
    """Convolution over the present and the four positions before it, and sigmoid."""

    def __init__(self, in_width: int, width: int, kernel: int = 5) -> None:
        super().__init__()
        self.before = kernel - 1
        self.conv = nn.Conv1d(in_width, width, kernel)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.conv(functional.pad(x.transpose(1, 2), (self.before, 0))).sigmoid().transpose(1, 2)


class Zero(nn.Module):
    """Returns zeros."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.new_zeros(*x.shape[:2], self.width)


OPERATORS: dict[str, Maker] = {
    "lstm": lambda layer: Recurrent(nn.LSTM, layer.shape[1], layer.width),
    "gru": lambda layer: Recurrent(nn.GRU, layer.shape[1], layer.width),
    "ligru": lambda layer: LiGRU(layer.shape[1], layer.width),
    "qrnn": lambda layer: QRNN(layer.shape[1], layer.width),
    "linear": lambda layer: Affine(layer.shape[1], layer.width),
    "causal_conv": lambda layer: CausalConv(layer.shape[1], layer.width),
    "identity": lambda layer: nn.Identity(),
    "zero": lambda layer: Zero(layer.width),
}
