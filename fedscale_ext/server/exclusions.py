"""Options of a job that a method excludes, and why: data of the method's class, checked before a job begins."""

from dataclasses import dataclass
from enum import Enum


class Feature(Enum):
    """Options of a job that some methods cannot have."""

    ADAM = "client_optimizer: adam"
    CHANGES = "options that read a client's update as its start plus the change of its training"
    DROPPED_TENSORS = "options that leave tensors of a client's update out"
    EARLY_STOP = "an end of the job where its accuracy has converged"
    PRIVACY = "noise on the models' means, which cannot shield what clients send beside them"


@dataclass(frozen=True)
class Excludes:
    """A method excludes a feature; ``reason`` ends a sentence that begins with the method's name."""

    feature: Feature
    reason: str


def exclusion(method: type, feature: Feature) -> str | None:
    """Why a method's class, or a base of it, excludes a feature; None where none does."""
    for base in method.__mro__:
        for each in vars(base).get("excludes", ()):
            if each.feature is feature:
                return str(each.reason)
    return None
