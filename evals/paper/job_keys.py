"""Values of an arm's job_conf keys that are known only when its job begins, and how they are resolved.

Scripts write an arm's keys once for all data sets and scales. Where a value differs between these, it is a
:class:`Parameter`, which the settings of a data set or a scale give a value::

    BACKBONE = Parameter("backbone")
    {BACKBONE: "vgg_small"}                                 # of a data set
    Arm("FedAvg", {"model": BACKBONE.formatted("single_exit_{}")})

A model of another arm's job is a :class:`ModelOf`, its weights are :class:`WeightsOf`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Parameter:
    """A value that data sets and scales choose, and that is no key of a job.

    As a key of a mapping it is given its value, as a value it stands for that.

    Args:
        name: what it is called in results files.
    """

    name: str

    def formatted(self, text: str) -> "TextWith":
        """Return the value as a part of a text, which has it in the place of ``{}``."""
        return TextWith(text, self)

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True)
class TextWith:
    """A text that contains the value of a parameter.

    Args:
        text: the text, with ``{}`` for the value.
        parameter: whose value.
    """

    text: str
    parameter: Parameter

    def __str__(self) -> str:
        return self.text.format(self.parameter)


@dataclass(frozen=True)
class ModelOf:
    """A model of another arm's finished job, on the same data and with the same seed.

    Args:
        arm: label of the other arm. It has to stand before the arms that take its model.
        which: ``largest`` or ``middle`` by MACs, or the place of the model among all, smallest first.
    """

    arm: str
    which: Literal["largest", "middle"] | int = "largest"

    def __str__(self) -> str:
        return f"@{self.which}:{self.arm}"


@dataclass(frozen=True)
class WeightsOf:
    """The weights that a model of another arm's job has at the end.

    Args:
        model: the model.
    """

    model: ModelOf

    def __str__(self) -> str:
        return "@"


Keys = Mapping[Any, Any]  # of str | Parameter; a Mapping is invariant in the type of its keys, so that none fits both


def resolved(keys: Keys) -> dict[str, Any]:
    """Return the keys of a job: parameters replaced by their values, and without keys whose value is None.

    Models and weights of other jobs stay as they are (:func:`with_models`).

    Args:
        keys: job_conf keys and parameters. A later mapping's None takes a key of an earlier one away.

    Raises:
        KeyError: a parameter has no value.
    """

    def put_in(value: Any) -> Any:
        if isinstance(value, list):
            return [put_in(each) for each in value]
        if isinstance(value, TextWith):
            return value.text.format(keys[value.parameter])
        return keys[value] if isinstance(value, Parameter) else value

    return {key: put_in(value) for key, value in keys.items() if isinstance(key, str) and value is not None}


def with_models(keys: Keys, model_file: Callable[[ModelOf], str]) -> dict[Any, Any]:
    """Return the keys with files in place of models and weights of other arms' jobs.

    Args:
        keys: job_conf keys and parameters.
        model_file: the file of a model's spec; the file of its weights lies beside it.
    """

    def file(value: Any) -> Any:
        if isinstance(value, ModelOf):
            return model_file(value)
        if isinstance(value, WeightsOf):
            return str(Path(model_file(value.model)).with_suffix(".safetensors"))
        return value

    return {key: file(value) for key, value in keys.items()}


def recorded(keys: Keys) -> dict[str, Any]:
    """Return the keys as results files have them: JSON values, where parameters and models of jobs are short texts."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        return str(value) if isinstance(value, Parameter | TextWith | ModelOf | WeightsOf) else value

    return {str(key): plain(value) for key, value in keys.items()}
