"""The choice of the clients' optimizer, by the key ``client_optimizer``."""

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.training.optimizers.adam import Adam, AdamSteps
from fedscale_ext.training.optimizers.sgd import Sgd, Steps

Optimizer = Sgd | Adam
Running = Steps | AdamSteps  # the result of an optimizer's ``begin``


def optimizer_of(conf: ClientConfig) -> Optimizer:
    """Return the optimizer of a client's settings."""
    return Adam.of(conf) if conf.client_optimizer == "adam" else Sgd.of(conf)
