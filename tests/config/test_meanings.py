"""Each hyperparameter of each method has a meaning of its own, in short sentences."""

import re
from dataclasses import dataclass
from importlib import import_module
from typing import get_args

import pytest

from fedscale_ext.cli.new_method import Kind
from fedscale_ext.config.meanings import check_meanings, introduction, meanings
from fedscale_ext.config.methods import method_class, method_names


@dataclass(frozen=True)
class Base:
    """Hyperparameters of a base.

    They concern
    ``rate`` and ``most``.

    Attributes:
        rate: Learning rate: of the server.
            With 0, it is ``still``.
        most: Most rounds.

    """

    rate: float = 0.5
    most: int = 1


@dataclass(frozen=True)
class Derived(Base):
    """Hyperparameters of a method.

    Attributes:
      most: Most rounds here.
      taps (tuple of str): Names.

    """

    taps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Without:
    rate: float = 0.5


def test_meanings_are_read_field_by_field_and_from_bases() -> None:
    assert meanings(Base) == {"rate": "Learning rate: of the server. With 0, it is `still`.", "most": "Most rounds."}
    assert meanings(Derived) == {**meanings(Base), "most": "Most rounds here.", "taps": "Names."}
    assert meanings(Without) == {"rate": ""}


def test_paragraphs_before_the_entries_are_the_introduction() -> None:
    assert introduction(Base) == "They concern `rate` and `most`."
    assert introduction(Derived) == introduction(Without) == ""


def test_a_field_without_a_meaning_and_a_meaning_without_a_field_are_refused() -> None:
    @dataclass(frozen=True)
    class Gone(Base):
        """Hyperparameters.

        Attributes:
            tapps: Names.

        """

    @dataclass(frozen=True)
    class Lacking(Base):
        taps: tuple[str, ...] = ()

    check_meanings(Derived)
    with pytest.raises(ValueError, match=r"docstring of Lacking lacks taps \(in Attributes:\)"):
        check_meanings(Lacking)
    with pytest.raises(ValueError, match="docstring of Gone describes what is no field: tapps"):
        check_meanings(Gone)


@pytest.mark.parametrize("name", [*method_names(), *get_args(Kind)])
def test_each_hyperparameter_has_a_meaning_in_short_sentences(name: str) -> None:
    if name in get_args(Kind):
        params = import_module(f"fedscale_ext.cli.skeleton.{name}.mymethod.aggregator").MyMethodParams
    else:
        params = method_class(name).Params  # type: ignore[attr-defined]
    check_meanings(params)
    for field, meaning in meanings(params).items():
        assert meaning[0] in "`" or meaning[0].isupper() or meaning[0].isdigit(), field
        assert meaning.endswith("."), field
        assert not long_sentences(meaning), field
    assert not long_sentences(introduction(params))


def long_sentences(text: str) -> list[str]:
    """Sentences of more than 25 words."""
    return [each for each in re.split(r"(?<=\.)\s+(?=[A-Z`(])", text) if len(each.split()) > 25]
