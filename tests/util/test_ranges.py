"""Ranges of keys: what they hold, how they are told, and that every hyperparameter's default lies in its own."""

import dataclasses
import math
from typing import Annotated, Literal, get_type_hints

import pytest

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.ranges import (
    Count,
    CountOrZero,
    Fraction,
    FractionBelowOne,
    NotNegative,
    OpenFraction,
    Positive,
    PositiveFraction,
    Range,
    check_ranges,
    values,
)


@dataclasses.dataclass(frozen=True)
class Params:
    lr: Positive = 0.1
    steps: Count | Literal["all"] = 1
    clip: Positive | None = None
    any: Annotated[float, Range()] = 0.0
    free: float = 0.0
    most: float = math.inf
    several: tuple[float, ...] = ()


@pytest.mark.parametrize(
    ("hint", "words", "inside", "outside"),
    [
        (Positive, "number above 0", [1e-9, 1e9], [0, -1]),
        (NotNegative, "number at least 0", [0, 3], [-1e-9]),
        (Fraction, "number from 0 to 1", [0, 1], [-0.1, 1.1]),
        (PositiveFraction, "number above 0 and at most 1", [0.1, 1], [0, 1.1]),
        (OpenFraction, "number above 0 and below 1", [0.5], [0, 1]),
        (FractionBelowOne, "number at least 0 and below 1", [0, 0.99], [1, -0.1]),
        (Count, "whole number at least 1", [1, 10**9], [0]),
        (CountOrZero, "whole number at least 0", [0, 10**9], [-1]),
        (Annotated[int, Range(1, 2**63)], "whole number from 1 to 2^63", [2**63], [0]),
    ],
)
def test_a_range_holds_what_its_words_say(hint, words, inside, outside):
    range_ = hint.__metadata__[0]
    assert values(hint) == words
    assert all(range_.holds(value) for value in inside)
    assert not any(range_.holds(value) for value in [*outside, math.inf, -math.inf, math.nan])


def test_words_of_other_types():
    assert values(Positive | None) == "number above 0 or null"
    assert values(Count | Literal["all"]) == "whole number at least 1 or all"
    assert values(tuple[float, ...]) == "list of numbers" and values(tuple[tuple[str, ...], ...]) == "list of lists"
    assert values(bool) == "true, false" and values(str) == "text"
    fields = JobKeys.model_fields  # pydantic's constraints, and a sentence where a function checks
    assert values(fields["test_split"].annotation, fields["test_split"].metadata) == "number at least 0 and below 1"
    assert values(fields["seed"].annotation, fields["seed"].metadata) == "whole number at least 0 and below 2^63"
    assert values(fields["cohort_size"].annotation, fields["cohort_size"].metadata) == "auto, or a whole number from 1"


def test_what_lies_outside_is_named_and_none_lies_inside():
    check_ranges(Params(steps="all"), "m")
    for keys, sentence in (
        ({"lr": 0}, "m.lr is 0; it must be above 0"),
        ({"steps": 0}, "m.steps is 0; it must be at least 1"),
        ({"clip": -1.0}, "m.clip is -1.0; it must be above 0"),
        ({"any": math.inf}, "m.any is inf; it must be a finite number"),
        ({"lr": math.inf}, "m.lr is inf; it must be a finite number"),
        ({"free": math.nan}, "m.free is nan; it must be a finite number"),
        ({"most": -math.inf}, "m.most is -inf; it must be a finite number"),
        ({"several": (1, math.inf)}, "m.several[1] is inf; it must be a finite number"),
    ):
        with pytest.raises(UserError) as error:
            check_ranges(Params(**keys), "m")
        assert str(error.value) == sentence


@pytest.mark.parametrize("method", method_names())
def test_every_number_of_a_method_has_a_range_that_its_default_lies_in(method):
    params = method_class(method).Params
    hints = get_type_hints(params, include_extras=True)
    for field in dataclasses.fields(params):
        if any(hint in (int, float, float | None, int | None) for hint in (hints[field.name],)):
            raise AssertionError(f"{method}.{field.name} tells no range: Range() says any number")
    check_ranges(params(), method)
