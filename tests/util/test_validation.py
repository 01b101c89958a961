"""What a user reads of a value of a wrong kind."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedscale_ext.util.validation import first_fault


class Below(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None


class Keys(BaseModel):
    switch: bool = True
    count: int = Field(1, ge=1, le=9)
    rate: float = Field(1.0, gt=0)
    word: str = ""
    groups: tuple[int, ...] = ()
    choice: Literal["A", "b"] = "A"
    k: int | Literal["all"] = 1
    pair: tuple[int, int] | tuple[str, ...] = ()
    few: tuple[int, ...] = Field((), max_length=1)
    below: Below = Below()


@pytest.mark.parametrize(
    ("values", "key", "value", "said"),
    [
        ({"switch": "perhaps"}, "switch", "perhaps", "it must be True or False"),
        ({"count": "x"}, "count", "x", "it must be a whole number"),
        ({"count": 1.5}, "count", 1.5, "it must be a whole number"),
        ({"count": 0}, "count", 0, "it must be greater than or equal to 1"),
        ({"rate": "x"}, "rate", "x", "it must be a number"),
        ({"word": 3}, "word", 3, "it must be text"),
        ({"groups": 17}, "groups", 17, "it must be a list, as in [1, 2]"),
        ({"groups": [17, "x"]}, "groups[1]", "x", "it must be a whole number"),
        ({"choice": "a"}, "choice", "a", "it must be 'A' or 'b'"),
        ({"k": "some"}, "k", "some", "it must be a whole number or 'all'"),
        ({"pair": 17}, "pair", 17, "it must be a list, as in [1, 2]"),  # what two kinds ask for is told once
        ({"few": (1, 2)}, "few", (1, 2), "tuple should have at most 1 item after validation, not 2"),
        ({"count": "x", "rate": "x"}, "count", "x", "it must be a whole number"),  # of one key alone
        ({"below": {"nam": "x"}}, "below.nam", "x", "there is no such key"),
        ({"below": 3}, "below", 3, "it must be keys with values"),
        ({"below": {"name": 3}}, "below.name", 3, "it must be text"),
    ],
)
def test_the_first_fault_tells_key_value_and_what_it_must_be(
    values: dict[str, object], key: str, value: object, said: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        Keys(**values)  # type: ignore[arg-type]
    assert first_fault(refused.value) == (key, value, said)
