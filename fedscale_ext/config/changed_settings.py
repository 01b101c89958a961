"""Which settings differ between a run of a job and the job as it is configured now; only those that decide results.

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
    """Describe the settings that decide the result and differ: ``seed was 1 and is 2``; empty where none differs.

    Keys of methods that a job does not use count on neither side.
    """
    stated, current = decisive(before), decisive(now)
    keys = sorted(key for key in {**stated, **current} if stated.get(key, _ABSENT) != current.get(key, _ABSENT))
    words = [f"{key} was {_in_words(stated, key)} and is {_in_words(current, key)}" for key in keys[:_NAMED]]
    return ", ".join(words) + (f", and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the settings of a checkpoint or a header with keys that the release behind it did not have.

    They get their defaults, with two exceptions. ``data_seed`` is ``seed``. ``device_match`` is ``order`` where files
    describe devices.
    """
    files = {settings.get(key) for key in ("device_conf_file", "device_avail_file")} - {None, RESAMPLED}
    before = {"data_seed": settings.get("seed"), **({"device_match": "order"} if files else {})}
    return {**_defaults(), **before, **settings}


@cache
def _defaults() -> Mapping[str, Any]:
    return make_config({}, {}).decisive()


def _in_words(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "not set"
