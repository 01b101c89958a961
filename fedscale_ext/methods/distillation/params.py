"""Checks of the distillation methods' hyperparameters, each told in one sentence."""

from typing import Any

from fedscale_ext.errors import UserError


def at_least_one(params: Any, *names: str) -> None:
    """UserError unless these are 1 or more."""
    _check(params, names, lambda value: value >= 1, "at least 1")


def positive(params: Any, *names: str) -> None:
    """UserError unless these are above zero and finite."""
    _check(params, names, lambda value: 0 < value < float("inf"), "positive")


def not_negative(params: Any, *names: str) -> None:
    """UserError unless these are zero or more, and finite."""
    _check(params, names, lambda value: 0 <= value < float("inf"), "at least 0")


def share(params: Any, *names: str) -> None:
    """UserError unless these are from 0 to 1."""
    _check(params, names, lambda value: 0 <= value <= 1, "from 0 to 1")


def _check(params: Any, names: tuple[str, ...], allowed: Any, words: str) -> None:
    for name in names:
        value = getattr(params, name)
        if not allowed(value):
            raise UserError(f"{params.method}.{name} is {value}; it must be {words}")
