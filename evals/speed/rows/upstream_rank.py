"""One process of upstream FedScale as its wheel is: its aggregator.py or executor.py with its own command line.

    python -m evals.speed.rows.upstream_rank aggregator|executor --job_name=… …

Done before its file runs: the modules that it imports without need (wandb, TensorFlow) get stand-ins, and
the model is added to the zoo that it looks in. FedScale reads FEMNIST as three channels of 32x32; the model
takes one channel and the middle 28x28, so that its arithmetic is every other row's.
"""

import runpy
import sys

from torch import Tensor, nn

from evals.speed.task import CLASSES, SHAPE
from evals.speed.workload import module
from fedscale_ext import compat

FILES = {
    "aggregator": "fedscale.cloud.aggregation.aggregator",
    "executor": "fedscale.cloud.execution.executor",
}


class MiddleOfOneChannel(nn.Module):
    """[B, 3, 32, 32] -> what ``network`` makes of [B, 1, 28, 28]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        top, left = ((have - want) // 2 for have, want in zip(x.shape[2:], SHAPE[1:], strict=True))
        return self.network(x[:, : SHAPE[0], top : top + SHAPE[1], left : left + SHAPE[2]])


def main(role: str, arguments: list[str]) -> None:
    compat.prepare()
    import torchvision.models

    name = next(argument.partition("=")[2] for argument in arguments if argument.startswith("--model="))

    def zoo_model(num_classes: int) -> nn.Module:
        if num_classes != CLASSES:
            raise ValueError(f"asked for {num_classes} classes instead of {CLASSES}")
        return MiddleOfOneChannel(module(name, usual=True))

    setattr(torchvision.models, name, zoo_model)
    # its config_parser parses the command line when it is imported, and others keep what it found
    for known, loaded in list(sys.modules.items()):
        if known.startswith("fedscale.cloud") and getattr(loaded, "__file__", None):  # not the stand-ins
            del sys.modules[known]
    sys.argv = [FILES[role], *arguments]
    runpy.run_module(FILES[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # by its full name: FedScale pickles the model, whose class must not belong to the __main__ that its file becomes
    from evals.speed.rows import upstream_rank

    upstream_rank.main(sys.argv[1], sys.argv[2:])
