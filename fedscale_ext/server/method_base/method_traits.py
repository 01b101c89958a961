"""What a method says of itself by class attributes, before any job: its family, and what its jobs can have."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.executor.executor import MultiModelExecutor
from fedscale_ext.training.local_training import MultiModelClient


class Feature(Enum):
    """Options of a job that some methods cannot have."""

    ADAM = "client_optimizer: adam"
    CHANGES = "options that read a client's update as the model that it received, changed by its training alone"
    DROPPED_TENSORS = "options that leave tensors of a client's update out"
    EARLY_STOP = "an end of the job by its accuracy or cost"
    PRIVACY = "noise on the models' means, which cannot shield what clients send beside them"


@dataclass(frozen=True)
class About:
    """A method in the list of methods.

    Args:
        family: What makes clients' models differ, as "width" or "distillation".
        year: Year of the paper.
        needs: What a job must have in addition to clients' samples and a plain model, as "public samples".

    """

    family: str = ""
    year: int | None = None
    needs: str = ""


@dataclass(frozen=True)
class Excludes:
    """A method excludes a feature; ``reason`` ends a sentence that begins with the method's name."""

    feature: Feature
    reason: str


class MethodTraits:
    """Class attributes by which a method describes itself."""

    #: The method's hyperparameters, a frozen dataclass.
    Params: ClassVar[type]
    #: Creates a client from ``(conf, bench)``: a subclass of ``MultiModelClient``, or a static method that chooses one.
    Client: ClassVar[Any] = MultiModelClient
    #: The executor: a subclass of ``MultiModelExecutor`` for a method with kinds of work of its own.
    Executor: ClassVar[type] = MultiModelExecutor

    #: The method's line in the list of methods. Subclasses do not inherit it there: they are other methods.
    about: ClassVar[About] = About()

    #: Executors add up the clients' states per model, weighted by :meth:`weight`, and hand back the sums.
    #: A method that must see each client's state sets it to False and gets them in :meth:`collect`.
    reduces: ClassVar[bool] = True
    #: Whether the server learns from states of clients' models. If not, executors return none, and ``means`` is empty.
    needs_states: ClassVar[bool] = True
    #: What :meth:`aggregate` learns of clients in addition to the means, if it uses any: noise does not cover it.
    unprotected: ClassVar[str] = ""

    #: Options of a job that the method cannot have, and why; a subclass adds to those of its base.
    excludes: ClassVar[tuple[Excludes, ...]] = ()

    #: Whether clients and server exchange the models that clients train.
    exchanges_models: ClassVar[bool] = True

    #: Whether clients that keep something of their models keep weights from the beginning. If not, as with masks, a
    #: client that never trained is served the server's weights.
    keeps_weights: ClassVar[bool] = True

    #: Whether BatchNorm's statistics are re-estimated before models are tested, unless the configuration says.
    reestimates_by_default: ClassVar[bool] = False

    #: Whether its clients choose a path through the model for each batch, so that ``model`` may be a supernet.
    chooses_paths: ClassVar[bool] = False

    #: Whether its clients train all exits of a network, so that ``model`` may have several.
    trains_exits: ClassVar[bool] = False

    #: The hyperparameter that is the weight of FedProx's term in place of the job's ``prox_mu``, where there is one.
    prox_param: ClassVar[str] = ""


def reestimates_statistics(method: type[MethodTraits], config: JobConfig) -> bool:
    """Whether a job re-estimates BatchNorm's statistics before models are tested."""
    setting = config.job.bn_statistics
    return method.reestimates_by_default if setting == "auto" else setting == "federated"


def untrained_weights(method: type[MethodTraits]) -> str:
    """Say which weights clients are served that never trained, where each client is served a personal model."""
    if method.keeps_weights:
        return "what clients keep of their models has its initial weights"
    return "the weights are those of the global model"


def exclusion(method: type, feature: Feature) -> str | None:
    """Why a method's class, or a base of it, excludes a feature; None where none does."""
    for base in method.__mro__:
        for each in vars(base).get("excludes", ()):
            if each.feature is feature:
                return str(each.reason)
    return None
