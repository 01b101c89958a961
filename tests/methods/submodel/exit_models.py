"""Small networks with several exits, and losses of exits by plain loops."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.models.multi_exit import family as multi_exit

SHAPE = (1, 8, 8)


def network(backbone: str = "cnn") -> models.ModelSpec:
    """Three exits, of 4 classes."""
    widths = {"cnn": [(4,), (3,), (5,)], "mlp": [(6,), (5,), (4,), (7,)]}[backbone]
    return multi_exit.make(
        backbone, SHAPE, 4, widths, common=backbone == "mlp", pools=None if backbone == "mlp" else (True, False, True)
    )


def logits(exits: int, clients: int = 2, batch: int = 5, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Of a cohort: float64 [clients, batch, exits, classes] that ask for gradients, and labels [clients, batch]."""
    generator = torch.Generator().manual_seed(exits)
    output = 2 * torch.randn(clients, batch, exits, classes, generator=generator, dtype=torch.float64)
    return output.requires_grad_(), torch.randint(classes, (clients, batch), generator=generator)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of two distributions [classes]."""
    return sum(p[c] * (torch.log(p[c]) - torch.log(q[c])) for c in range(len(p)))


def looped(output: Tensor, labels: Tensor, of_sample: Callable[[Tensor, Callable[[int], Tensor]], Tensor]) -> Tensor:
    """[clients, batch] of ``of_sample``(logits [exits, classes], cross-entropy by exit)."""
    rows = []
    for each, label in zip(output.flatten(0, 1), labels.flatten(), strict=True):

        def entropy(exit: int, each: Tensor = each, label: Tensor = label) -> Tensor:
            return functional.cross_entropy(each[exit][None], label[None])

        rows.append(of_sample(each, entropy))
    return torch.stack(rows).view(labels.shape)
