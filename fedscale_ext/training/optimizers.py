"""Which optimiser the clients step with: the key ``client_optimizer``."""

from argparse import Namespace

from fedscale_ext.training.adam import Adam, AdamSteps
from fedscale_ext.training.sgd import Sgd, Steps

Optimizer = Sgd | Adam
Running = Steps | AdamSteps  # what ``begin`` of an optimiser gives


def optimizer_of(conf: Namespace) -> Optimizer:
    """From a client's settings."""
    return Adam.of(conf) if conf.client_optimizer == "adam" else Sgd.of(conf)
