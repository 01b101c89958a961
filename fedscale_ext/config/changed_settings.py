"""Which settings differ between a run of a job and the job as it is configured now; those alone that decide results.

A job may continue only where none does: the driver compares before any process starts, the aggregator with its
checkpoint.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from fedscale_ext.config.job_config import decisive, make_config
from fedscale_ext.config.keys import RESAMPLED

_ABSENT = object()  # unlike every setting
_NAMED = 5  # settings that a sentence names at most


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The settings that decide the result and differ, in words: ``seed was 1 and is 2``; empty where none differs.

    Keys of methods that a job does not use count on neither side.
    """
    stated, current = decisive(before), decisive(now)
    keys = sorted(key for key in {**stated, **current} if stated.get(key, _ABSENT) != current.get(key, _ABSENT))
    words = [f"{key} was {_in_words(stated, key)} and is {_in_words(current, key)}" for key in keys[:_NAMED]]
    return ", ".join(words) + (f", and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a checkpoint or a header, and those that the release that wrote it had no names for, as it
    behaved: the default, but ``seed`` decided whose samples are whose, and devices in a file went by order."""
    files = {settings.get(key) for key in ("device_conf_file", "device_avail_file")} - {None, RESAMPLED}
    before = {"data_seed": settings.get("seed"), **({"device_match": "order"} if files else {})}
    return {**_defaults(), **before, **settings}


@cache
def _defaults() -> Mapping[str, Any]:
    return make_config({}, {}).decisive()


def _in_words(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "not set"
