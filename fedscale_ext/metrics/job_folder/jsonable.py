"""Anything that a job wants to write down, as plain JSON values."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

_READY = {bool, int, str, type(None)}  # JSON values as they are


def plain(value: Any) -> Any:
    """``value`` as JSON values: numpy, torch, tuples, sets, paths, dataclasses and objects with ``to_json``.

    NaN becomes None and the infinities the strings "inf" and "-inf" (which ``float`` reads), because
    JSON has no such numbers. Other floats keep every digit; float32 numbers get their exact value.
    Keys become text; a key of several parts, such as ("a", "b"), becomes "a,b". Raises TypeError
    for anything else, and ValueError where two keys become the same text.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else int(value)
    if isinstance(value, float | np.floating):
        return _number(float(value))
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            value = value.detach().to(torch.float64)  # NumPy has no bfloat16
        return plain(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        finite = np.isfinite(value) if value.dtype.kind == "f" else None
        if value.dtype.kind in "iub" or (finite is not None and finite.all()):
            return value.tolist()  # twenty times as fast as number by number
        if finite is not None and value.ndim:
            objects = value.astype(object)
            objects[~finite] = [_number(float(number)) for number in value[~finite]]
            return objects.tolist()
        return plain(value.tolist())
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        result = {_key(key): plain(item) for key, item in value.items()}
        if len(result) != len(value):
            raise ValueError(f"two keys of {sorted(map(repr, value))[:6]} have the same text")
        return result
    if isinstance(value, list | tuple):
        kinds = set(map(type, value))  # thousands of one kind are common
        if kinds <= _READY or (kinds == {float} and all(map(math.isfinite, value))):
            return list(value)
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def line(value: Any) -> str:
    """``value`` as one compact line of strict JSON, without the newline."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def _key(key: Any) -> str:
    return ",".join(map(_key, key)) if isinstance(key, tuple) else str(key)
