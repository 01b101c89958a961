"""The limit: the fastest exact recipe known for one client after another on a CPU.

Models in channels_last (they pool before the ReLU, as all of this package do), gradients as a list without
`.grad` fields, and one fused update of all parameters. No gRPC, no accounting, no evaluation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from evals.speed.rows import loops
from evals.speed.task import PROCESSES, RATE, task
from evals.speed.workload import checksum, module, samples

WARM_UP = 1


class Limit:
    """See :class:`evals.speed.rows.loops.Trainer`."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.to(memory_format=torch.channels_last)
        self.parameters = list(self.model.parameters())
        self.state = loops.tensors(self.model)
        self.places = loops.slices(self.state)

    @torch.no_grad()
    def load(self, flat: Tensor) -> None:
        for tensor, place in zip(self.state, self.places, strict=True):
            tensor.copy_(flat[place].view(tensor.shape))

    def train(self, x: Tensor, y: Tensor) -> None:
        for images, labels in loops.batches(x.contiguous(memory_format=torch.channels_last), y):
            loss = functional.cross_entropy(self.model(images), labels)
            gradients = torch.autograd.grad(loss, self.parameters)
            with torch.no_grad():
                torch._foreach_add_(self.parameters, gradients, alpha=-RATE)

    @torch.no_grad()
    def add_to(self, total: Tensor, weight: float) -> None:
        for tensor, place in zip(self.state, self.places, strict=True):
            total[place].add_(tensor.reshape(-1), alpha=weight)


def main() -> None:
    asked = task()
    x, y = map(torch.from_numpy, samples(asked.data))
    final, spans = loops.run(
        lambda: Limit(module(asked.model)), loops.flat(module(asked.model)), x, y, asked.rounds + WARM_UP, PROCESSES
    )
    spans.write(asked.out, warm_up=WARM_UP, checksum=checksum([final]))


if __name__ == "__main__":
    main()
