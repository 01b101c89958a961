"""The plain loop, written tightly: one client after another, `backward` into one flat gradient, one update.

What a careful person writes first, without changing the layout of pictures or weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from evals.speed.rows import loops
from evals.speed.task import PROCESSES, RATE, task
from evals.speed.workload import checksum, module, samples

WARM_UP = 1


class Tight:
    """See :class:`evals.speed.rows.loops.Trainer`; the model's tensors are views of ``weights``."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.weights = loops.flat(model)
        places = iter(loops.slices(loops.tensors(model)))
        trained = sum(parameter.numel() for parameter in model.parameters())
        self.trained = self.weights[:trained]
        self.gradient = torch.zeros_like(self.trained)
        for parameter in model.parameters():
            place = next(places)
            parameter.data = self.weights[place].view_as(parameter)
            parameter.grad = self.gradient[place].view_as(parameter)
        for part in model.modules():
            for name, buffer in part.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    setattr(part, name, self.weights[next(places)].view_as(buffer))

    def load(self, flat: Tensor) -> None:
        self.weights.copy_(flat)

    def train(self, x: Tensor, y: Tensor) -> None:
        for images, labels in loops.batches(x, y):
            self.gradient.zero_()
            functional.cross_entropy(self.model(images), labels).backward()
            self.trained.add_(self.gradient, alpha=-RATE)

    def add_to(self, total: Tensor, weight: float) -> None:
        total.add_(self.weights, alpha=weight)


def main() -> None:
    asked = task()
    x, y = map(torch.from_numpy, samples(asked.data))
    final, spans = loops.run(
        lambda: Tight(module(asked.model, usual=True)),
        loops.flat(module(asked.model)),
        x,
        y,
        asked.rounds + WARM_UP,
        PROCESSES,
    )
    spans.write(asked.out, warm_up=WARM_UP, checksum=checksum([final]))


if __name__ == "__main__":
    main()
