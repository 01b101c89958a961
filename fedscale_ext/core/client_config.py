"""The configuration of one client's local training in one round: typed and frozen.

It has three sources. The job's keys give a value to each field. A work item overrides some of them
(:attr:`fedscale_ext.core.types.WorkItem.overrides`) and adds what only its method reads (``objective``). The unit's
message brings tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """One client's local training in one round.

    Fields without a comment have the meaning of the job's key of that name (docs/configuration.md).
    """

    client_id: int
    round: int | str  #: keys the client's random streams; a text for a phase that has streams of its own
    seed: int
    model_key: str  #: of the trained model in the aggregator's model pool
    task: str = "cv"
    use_cuda: bool = False
    cuda_device: torch.device = torch.device("cpu")  # noqa: RUF009  # immutable

    batch_size: int
    test_bsz: int = 256
    local_steps: int  #: steps of the round; under ``local_epochs`` those of all epochs
    local_epochs: int | None = None
    learning_rate: float  #: of this round
    client_optimizer: str = "sgd"
    client_momentum: float = 0.9
    client_weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_eps: float = 1e-8
    clip_norm: float | None = None
    prox_mu: float = 0.0
    group_lasso: float = 0.0  #: weight of the group lasso
    held_out: float = 0.0  #: share of the training samples that the client keeps for validation
    own_classes: bool = False
    loss_decay: float = 0.2
    max_update_norm: float | None = None
    augment: str = "none"
    precision: str = "float32"

    objective: Mapping[str, Any] = field(default_factory=dict)  #: of the work item: JSON for the method's client

    # tensors that came with the unit, on the training device
    gradient_offset: Tensors | None = None  #: SCAFFOLD's c - c_i or FedDyn's -h_i by parameter; None: no variates
    client_state: Tensors | None = None  #: as the client last returned it, at first empty; None: clients have no state
    shared_tensors: Tensors | None = None  #: alike for all clients of the round; None: there are none
    received_tensors: Tensors | None = None  #: only of this client; None: the server sends none
    returns_tensors: bool = False  #: whether the result also has ``returned`` tensors

    mask: Tensors | None = None  #: which entries of each parameter train, bool; set by clients that train parts


FIELDS = frozenset(each.name for each in fields(ClientConfig))

#: Fields that a work item may override.
OVERRIDABLE = frozenset(
    {
        "batch_size",
        "local_steps",
        "local_epochs",
        "learning_rate",
        "client_momentum",
        "client_weight_decay",
        "clip_norm",
        "augment",
        "prox_mu",
        "group_lasso",
        "held_out",
        "own_classes",
    }
)
