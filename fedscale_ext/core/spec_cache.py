"""Caches by spec, which are emptied together: the spec of a custom model names a class, which its user may edit."""

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_caches: list["_lru_cache_wrapper[Any]"] = []


def cached_by_spec(maxsize: int) -> Callable[[Callable[..., _Value]], "_lru_cache_wrapper[_Value]"]:
    """Cache what follows from a spec and other hashable arguments, as ``lru_cache`` does."""

    def decorate(function: Callable[..., _Value]) -> "_lru_cache_wrapper[_Value]":
        cached = lru_cache(maxsize=maxsize)(function)
        _caches.append(cached)
        return cached

    return decorate


def forget_specs() -> None:
    """Empty all these caches: a class may have been loaded anew under its name."""
    for cache in _caches:
        cache.cache_clear()
