"""Every switch of the baselines acts first where it should, and changes nothing that it should not.

As tests/methods/fedtrans/test_switches_alone.py; what the values do is tested in each method's own file.
"""

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from fedscale_ext import models
from fedscale_ext.config.methods import method_class
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.population.population import Population
from fedscale_ext.submodels import narrowed

from .harness import CLASSES, SHAPE, server
from .trace import Trace, departures, run

ROUNDS = 6
SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)
# clients that afford rates 1, 1/2, 1/4, 1/8, 1/16 and more than the whole
CAPACITY = (*(float(models.cost(narrowed(SPEC, 0.5**level)).forward_macs) for level in range(5)), 1e15)
SPECS = {"specs", "start", "notices", "parts", "models", "objective", "compute", "weights", "serve"}
FIX: dict[str, Any] = {"levels": "fix"}
TIME: dict[str, Any] = {"rates": "time"}
DROPPED = {"thresholds", "invariant", "parts", "weights"}

# two clients that afford each level of networks with three exits
EXITS: dict[str, Any] = {
    "model": "multi_exit_cnn3",
    "capacity": tuple(
        float(models.cost(prefix(models.named_spec("multi_exit_cnn3", SHAPE, CLASSES), exits)).forward_macs)
        for exits in (1, 1, 2, 2, 3, 3)
    ),
    "rounds": 8,
}
SCALED: dict[str, Any] = {**EXITS, "widths": (0.5, 0.75, 1.0), "exits": (1, 2, 3)}
KD: dict[str, Any] = {**SCALED, "self_kd": True}
LEVELS = {"notices", "models", "objective", "weights", "serve"}

# method, switch, its value, what both runs have beside; first round and place where it acts; all that it may move
TABLE: list[tuple[str, str, Any, dict[str, Any], tuple[int, str], set[str]]] = [
    ("fedprox", "mu", 0.7, {}, (1, "objective"), {"objective"}),
    *((method, name, 0.05, {}, (1, "weights"), {"weights"})
      for method in ("fedyogi", "fedadam") for name in ("eta", "tau", "beta", "beta2")),
    ("qfedavg", "q", 0.2, {}, (1, "weights"), {"weights"}),
    ("qfedavg", "L", 3.0, {}, (1, "weights"), {"weights"}),
    ("heterofl", "rates", (1.0, 0.5), {}, (0, "specs"), SPECS),
    # the widest level, which nobody draws, is told of
    ("heterofl", "levels", "fix", {}, (0, "notices"), {"notices", "models", "weights", "serve"}),
    ("heterofl", "levels", "dynamic", {}, (0, "notices"), {"notices", "models", "weights"}),
    ("heterofl", "shares", (0.1, 0.1, 0.1, 0.1, 0.6), FIX, (0, "notices"), {"notices", "models", "weights", "serve"}),
    *((method, "groups", sizes, {}, first, {"models", "weights", "serve"} | more)
      for method in ("heterofl", "fedrolex")
      for sizes, first, more in (
          ((2, 1, 1, 1, 1), (0, "notices"), {"notices"}),
          ((0, 0, 0, 0, 6), (0, "notices"), {"notices"}),  # of levels beyond what clients afford
      )),
    ("heterofl", "scaler", False, {"model": "cnn_small"}, (0, "specs"), {"specs"}),
    ("heterofl", "mask", False, {}, (1, "objective"), {"objective"}),
    ("heterofl", "clip_norm", None, {}, (1, "objective"), {"objective"}),
    ("heterofl", "weighted", True, {}, (1, "weight"), {"weight", "weights"}),
    ("fedrolex", "serve", "server", {}, (0, "notices"), {"notices", "serve"}),
    ("fjord", "p", (0.5, 1.0), {}, (0, "specs"), SPECS),
    ("fjord", "levels", "fix", {}, (0, "notices"), {"notices", "models", "objective", "compute", "weights", "serve"}),
    ("fjord", "shares", (0.1, 0.1, 0.1, 0.1, 0.6), FIX, (0, "notices"),
     {"notices", "models", "objective", "compute", "weights", "serve"}),
    ("fjord", "groups", (0, 0, 0, 0, 6), {}, (0, "notices"),
     {"notices", "models", "objective", "compute", "weights", "serve"}),
    ("fjord", "distil", True, {}, (1, "objective"), {"objective", "compute"}),
    ("fjord", "each_width", True, {}, (1, "serve"), {"serve"}),
    ("splitmix", "r", 0.25, {}, (0, "specs"), SPECS | {"weight"}),
    ("splitmix", "rescale_init", False, {}, (0, "start"), {"start", "weights"}),
    ("fluid", "p", (0.9, 0.25), {}, (0, "specs"), SPECS | DROPPED),
    ("fluid", "vote", 0.5, {}, (3, "invariant"), DROPPED),  # round 2 looks for the one least change
    ("fluid", "increment", 0.4, {}, (5, "thresholds"), DROPPED),  # the fourth round that is looked at
    ("fluid", "every", 3, {}, (4, "thresholds"), DROPPED),  # the third
    ("fluid", "rates", "time", {}, (0, "specs"), SPECS | DROPPED),
    ("fluid", "inference", "global", {}, (1, "serve"), {"serve"}),
    ("fluid", "share", 0.34, TIME, (2, "models"), DROPPED | {"models"}),
    ("fluid", "hysteresis", 2.0, TIME, (2, "models"), DROPPED | {"models"}),
    *((method, name, value, {**beside, **more}, (number, what), LEVELS)
      for method, beside in (("scalefl", SCALED), ("depthfl", EXITS))
      for name, value, more, number, what in (
          ("levels", "fix", {}, 0, "notices"),  # of levels that nobody drew
          ("groups", (3, 2, 1), {}, 0, "notices"),
          ("shares", (0.8, 0.1, 0.1), FIX, 0, "notices"),
      )),
    ("scalefl", "widths", (0.25, 0.75, 1.0), SCALED, (0, "specs"), SPECS),
    ("scalefl", "exits", (2, 3), {**SCALED, "widths": (0.5, 1.0), "exits": (1, 3)}, (0, "specs"), SPECS),
    ("scalefl", "self_kd", True, SCALED, (3, "objective"), {"objective"}),
    ("scalefl", "gamma", 0.5, KD, (3, "objective"), {"objective"}),
    ("scalefl", "temperature", 1.0, KD, (3, "objective"), {"objective"}),
    ("scalefl", "kd_after", 0.5, KD, (3, "objective"), {"objective"}),
    ("scalefl", "detach", True, KD, (3, "objective"), {"objective"}),
    ("scalefl", "weighted", True, SCALED, (1, "weight"), {"weight", "weights"}),
    ("depthfl", "kd", False, {**EXITS, "ramp_up": 2.0}, (1, "objective"), {"objective"}),
    ("depthfl", "ramp_up", 1.5, {**EXITS, "ramp_up": 2.0}, (2, "objective"), {"objective"}),
    ("depthfl", "alpha", 0.5, EXITS, (1, "objective"), {"objective"}),
    ("depthfl", "inclusive", True, EXITS, (0, "specs"), SPECS),
    ("depthfl", "weighted", True, EXITS, (1, "weight"), {"weight", "weights"}),
]  # fmt: skip


def traced(method: str, **switches: Any) -> Trace:
    aggregator = server(method_class(method), method, **{"capacity": CAPACITY, **switches})
    aggregator.population = Population(np.array([10.0, 10, 20, 10, 16, 10]), np.full(6, 1e9), None, "test")
    return run(aggregator, ROUNDS)


@lru_cache(maxsize=4)
def plain(method: str, *beside: tuple[str, Any]) -> Trace:
    return traced(method, **dict(beside))


@pytest.mark.parametrize(
    ("method", "name", "value", "beside", "first", "moved"), TABLE, ids=[f"{r[0]}-{r[1]}-{r[2]}" for r in TABLE]
)
def test_it_acts_first_where_it_should_and_moves_nothing_else(
    method: str, name: str, value: Any, beside: dict[str, Any], first: tuple[int, str], moved: set[str]
) -> None:
    differences = departures(plain(method, *beside.items()), traced(method, **{**beside, name: value}))
    assert differences[0] == first
    assert {what for _, what in differences} <= moved


def test_a_scaler_under_batchnorm_changes_nothing() -> None:
    assert departures(plain("heterofl"), traced("heterofl", scaler=False)) == []


@pytest.mark.parametrize(
    ("method", "off", "unread"),
    [
        ("splitmix", {"r": 1.0}, {"rescale_init": False}),
        ("fluid", {"increment": 0.0}, {"every": 1}),
    ],
)
def test_what_another_switch_leaves_unread_changes_nothing(
    method: str, off: dict[str, Any], unread: dict[str, Any]
) -> None:
    assert departures(traced(method, **off), traced(method, **off, **unread)) == []


def test_fedrolex_departs_from_heterofl_by_its_windows_from_the_second_round_on() -> None:
    _, *differences = departures(
        traced("heterofl", mask=False), plain("fedrolex")
    )  # the first: notices name the method
    assert differences[0] == (2, "parts")
    assert {what for _, what in differences} == {"parts", "weights"}


@pytest.mark.parametrize("method", ["heterofl", "fedrolex"])
def test_groups_as_large_as_capacity_makes_them_change_only_whom_participants_are_taken_from(method: str) -> None:
    assert departures(plain(method), traced(method, groups=(1, 1, 1, 1, 2))) == []
    aggregator = server(method_class(method), method, capacity=CAPACITY, groups=(1, 1, 1, 1, 2))
    assert aggregator.selection_groups().tolist() == [0, 1, 2, 3, 4, 0]
    assert server(method_class(method), method, capacity=CAPACITY).selection_groups() is None


def test_the_table_has_every_switch() -> None:
    for method in {row[0] for row in TABLE}:
        names = {row[1] for row in TABLE if row[0] == method}
        fields = {field.name for field in dataclasses.fields(method_class(method).Params)}
        inherited = {row[1] for row in TABLE if row[0] == "heterofl"} if method == "fedrolex" else set()
        # dense needs another family: see test_heterofl and test_splitmix; mask_test acts where clients are tested alone
        assert names | inherited == fields - {"dense", "mask_test"}, method
