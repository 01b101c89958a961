"""A generator of features from class numbers and noise, which a server trains on a head (FedGen)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.method import State
from fedscale_ext.methods.personal.personal_models import floating_tensors


class Generator(nn.Module):
    """Makes features of classes: a linear layer, BatchNorm, ReLU and a linear layer.

    Args:
        noise: Numbers of noise.
        classes: Number of classes.
        hidden: Width of the hidden layer.
        width: Width of features.

    """

    def __init__(self, noise: int, classes: int, hidden: int, width: int) -> None:
        super().__init__()
        self.noise, self.classes = noise, classes
        self.hidden = nn.Linear(noise + classes, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.output = nn.Linear(hidden, width)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Return features [n, F] from noise [n, noise] and class numbers int64 [n]."""
        entries = torch.cat([noise, functional.one_hot(labels, self.classes).to(noise)], 1)
        features: Tensor = self.output(functional.relu(self.norm(self.hidden(entries))))
        return features

    @property
    def macs(self) -> int:
        """MACs of a forward pass of one sample; those of BatchNorm are left out, as they are in models."""
        return self.hidden.weight.numel() + self.output.weight.numel()


def drawn_generator(noise: int, classes: int, hidden: int, width: int, generator: torch.Generator) -> State:
    """Draw a generator's tensors as torch draws those of linear layers, from a stream of one's own."""
    state = floating_tensors(Generator(noise, classes, hidden, width).state_dict())
    for name, inputs in (("hidden", noise + classes), ("output", hidden)):
        for tensor in (f"{name}.weight", f"{name}.bias"):
            state[tensor] = (2.0 * torch.rand(state[tensor].shape, generator=generator) - 1.0) / inputs**0.5
    return {name: tensor.clone() for name, tensor in state.items()}


def loaded_generator(state: Mapping[str, Tensor], classes: int) -> Generator:
    """Return the generator of a state, in evaluation; its tensors are the state's sizes."""
    hidden, entries = state["hidden.weight"].shape
    module = Generator(entries - classes, classes, hidden, len(state["output.bias"]))
    module.load_state_dict(dict(state), strict=False)  # but for BatchNorm's count of batches
    return module.to(state["output.bias"].device).eval()


def drawn_labels(counts: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw class numbers, int64 [number], in proportion to numbers of samples [classes]."""
    return torch.multinomial(counts.double(), number, replacement=True, generator=generator)


def diversity_loss(noise: Tensor, features: Tensor) -> Tensor:
    """Return exp(-mean of |e_i - e_j|^2 / E times |z_i - z_j|_1 / F): low where other noise gives other features.

    Args:
        noise: Noise e, [n, E].
        features: The features z that it gave, [n, F].

    """
    apart = (noise[:, None] - noise).square().mean(2) * (features[:, None] - features).abs().mean(2)
    return torch.exp(-apart.mean())


def trained_generator(
    state: State,
    head: State,
    counts: Tensor,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    diversity: float,
    generator: torch.Generator,
) -> State:
    """Train a generator by Adam, so that a head tells its classes.

    Args:
        state: The generator's tensors.
        head: Weight [classes, F] and perhaps bias of the head, which stays as it is.
        counts: Samples of each class, [classes], by which classes are drawn.
        steps: Number of steps.
        batch_size: Features of a step; more than one, because of BatchNorm.
        lr: Learning rate.
        diversity: Weight of :func:`diversity_loss`.
        generator: Draws classes and noise.

    Returns:
        The tensors after training.

    Raises:
        FloatingPointError: The tensors are not finite.

    """
    module = loaded_generator(state, len(counts)).train()
    adam = torch.optim.Adam(module.parameters(), lr=lr)
    for _ in range(steps):
        labels = drawn_labels(counts, batch_size, generator)
        noise = torch.randn(batch_size, module.noise, generator=generator)
        features = module(noise, labels)
        logits = functional.linear(features, head["weight"], head.get("bias"))
        loss = functional.cross_entropy(logits, labels) + diversity * diversity_loss(noise, features)
        adam.zero_grad()
        loss.backward()
        adam.step()
    result = {name: tensor.detach().clone() for name, tensor in floating_tensors(module.state_dict()).items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in result.values()):
        raise FloatingPointError("the generator's training diverged")
    return result
