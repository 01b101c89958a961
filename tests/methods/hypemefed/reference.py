"""The hypernetwork as the paper's equations read, through autograd and torch's own Adam; and small models."""

import torch

from fedscale_ext.methods.hypemefed.mlp import Mlp


def module(part: Mlp, flat: torch.Tensor) -> torch.nn.Sequential:
    """The same network as torch's own layers."""
    first, second = torch.nn.Linear(part.inputs, part.hidden), torch.nn.Linear(part.hidden, part.outputs)
    net = torch.nn.Sequential(first, torch.nn.ReLU(), second).to(flat.dtype)
    with torch.no_grad():
        for tensor, value in zip(net.parameters(), part.layers(flat), strict=True):
            tensor.copy_(value)
    return net


def flat(nets: list[torch.nn.Sequential]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for net in nets for tensor in net.parameters()])


def train(nets, samples, epochs, lr):
    """Plain training on (P, Q, whole target weight as a matrix); the mean loss of each epoch."""
    optimizer = torch.optim.Adam([tensor for net in nets for tensor in net.parameters()], lr)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for p, q, target in samples:
            loss = torch.nn.functional.mse_loss(nets[0](p.T).T @ nets[1](q), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total / len(samples))
    return losses


WIDTHS = (4, 6, 8, 10)


def shapes(exits: int = 3, classes: int = 5) -> dict[str, tuple[int, ...]]:
    """A VGG-like multi-exit model's state: two convolutions and norms per block, a linear layer per exit."""
    tensors: dict[str, tuple[int, ...]] = {"common.conv1.weight": (WIDTHS[0], 3, 3, 3)}
    for block in range(1, exits + 1):
        inputs, outputs = WIDTHS[block - 1], WIDTHS[block]
        for j, channels in ((1, inputs), (2, outputs)):
            tensors[f"block{block}.conv{j}.weight"] = (outputs, channels, 3, 3)
            for leaf in ("weight", "bias", "running_mean", "running_var"):
                tensors[f"block{block}.bn{j}.{leaf}"] = (outputs,)
            tensors[f"block{block}.bn{j}.num_batches_tracked"] = ()
        tensors[f"exit{block}.linear.weight"] = (classes, outputs * 4)
        tensors[f"exit{block}.linear.bias"] = (classes,)
    return tensors


def state(exits: int, seed: int, near: float = 0.05) -> dict[str, torch.Tensor]:
    """A client's state: what all have in common and a little of its own."""
    shared, personal = torch.Generator().manual_seed(7), torch.Generator().manual_seed(seed)
    full = {}
    for name, shape in shapes(3).items():
        value = torch.randn(shape, generator=shared) * 0.3 + near * torch.randn(shape, generator=personal)
        full[name] = value.abs() + 0.1 if name.endswith("running_var") else value
    return {name: full[name] for name in shapes(exits)}
