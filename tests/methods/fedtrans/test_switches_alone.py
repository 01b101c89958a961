"""Every switch of FedTrans acts first where it should, and changes nothing that it should not.

What a switch's values do is tested where their mathematics is; here a run with the switch lies beside one without
(:mod:`methods.trace`). By default every cell is selected, so that weights do not decide how models grow: what changes
weights alone must leave assignment, utilities, losses, growth and its random draws bitwise as they were.
"""

import dataclasses
from functools import lru_cache
from typing import Any

import pytest

from fedscale_ext.config.method_switches import switched_off
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.methods.fedtrans.params import FedTransParams

from ..harness import server
from ..trace import Trace, departures, run

ROUNDS = 6  # children are born in rounds 2 (all cells widened), 4 (all deepened) and 6

# places that a switch may move in the end
WEIGHTS = {"weights", "activeness", "active", "children"}
MIXED = WEIGHTS | {"mixing"}
CHOICE = {"utilities", "models", "losses", "doc", "serve"}  # of models, by similarities
SHAPE = {
    "specs",
    "op",
    "cell_id",
    "inserted",
    "g",
    "s",
    "noise",
    "seed",
    "output",
    "similarity",
    "mixing",
    "selected_cells",
}
GROWTH = WEIGHTS | CHOICE | SHAPE
TIMING = GROWTH | {"lineage", "exhausted"}
STOP: dict[str, Any] = {"stop": "accuracy", "stop_rounds": 3, "eval_interval": 1}  # accuracy rises by 0.002 a round
SMALL: dict[str, Any] = {"capacity": (1.0,) * 4 + (1e15,) * 2}

# switch, its value, what both runs have beside; first round and place where it acts; all places that it may move
TABLE: list[tuple[str, Any, dict[str, Any], tuple[int, str], set[str]]] = [
    # how models share: from the first round that begins with two models
    ("sharing", "none", {}, (3, "mixing"), MIXED),
    ("eta", 0.5, {}, (3, "mixing"), MIXED),
    ("decay", "off", {}, (3, "mixing"), MIXED),
    ("decay_clock", "age", {}, (3, "mixing"), MIXED),
    ("similarity", "one", {}, (3, "mixing"), MIXED),
    ("normalise", "literal", {}, (3, "mixing"), MIXED),
    ("l2s", True, {}, (3, "mixing"), MIXED),
    ("align", "prefix", {}, (3, "weights"), WEIGHTS),
    ("sim_reduce", "sum", {}, (1, "similarity"), MIXED | CHOICE | {"similarity"}),
    # how models are chosen
    ("utility", "client_history", {}, (1, "utilities"), CHOICE | WEIGHTS),
    # when and where they grow
    ("beta", -1e9, {}, (2, "selected_cells"), TIMING),
    ("gamma", 2, {}, (2, "doc"), TIMING),
    ("delta", 2, {}, (2, "doc"), TIMING),
    ("doc_loss", "all", {}, (3, "losses"), {"losses", "doc"}),
    ("T", 1, {}, (2, "active"), {"active"}),
    ("alpha", 0.9, {}, (2, "selected_cells"), GROWTH),
    ("cell_selection", "random", {"alpha": 0.9}, (2, "selected_cells"), GROWTH),
    ("cap_quantile", 0.5, SMALL, (2, "exhausted"), TIMING),
    # how they grow
    ("transform_policy", "deepen_only", {}, (2, "specs"), GROWTH),
    ("transform_policy", "widen_only", {}, (4, "specs"), GROWTH),
    ("widen", "block", {"model": "resnet_tiny", "shape": (1, 10, 10)}, (2, "specs"), GROWTH),
    ("widen_factor", 3.0, {}, (2, "specs"), GROWTH),
    ("deepen_count", 2, {}, (4, "specs"), GROWTH),
    ("symmetry", "equal", {}, (2, "s"), WEIGHTS | {"s"}),
    ("symmetry", "equal+noise", {"symmetry": "equal"}, (2, "noise"), WEIGHTS | {"noise"}),
    ("warmup", "reinit", {}, (2, "lineage"), MIXED | CHOICE | {"lineage", "similarity"}),
    # what is composed, served and stopped
    ("server_opt", "yogi", {}, (1, "weights"), WEIGHTS),
    ("server_opt", "adam", {"server_opt": "yogi", "yogi_tau": 0.1}, (1, "weights"), WEIGHTS),
    ("yogi_eta", 0.1, {"server_opt": "yogi"}, (1, "weights"), WEIGHTS),
    ("yogi_tau", 0.1, {"server_opt": "yogi"}, (1, "weights"), WEIGHTS),
    ("yogi_beta", 0.5, {"server_opt": "yogi"}, (1, "weights"), WEIGHTS),
    ("yogi_beta2", 0.5, {"server_opt": "yogi"}, (1, "weights"), WEIGHTS),
    ("prox_mu", 0.1, {}, (1, "objective"), {"objective"}),
    ("ties", "smallest", {}, (2, "serve"), {"serve"}),
    ("serve_min_rounds", 2, {}, (2, "serve"), {"serve"}),
    ("stop", "accuracy", {"stop_rounds": 3, "eval_interval": 1}, (4, "stop"), {"stop"}),
    ("stop", "converged", {"capacity": (1.0,) * 6}, (2, "stop"), {"stop"}),
    ("stop_rounds", 4, STOP, (4, "stop"), {"stop"}),
    ("stop_gain", 0.0, STOP, (4, "stop"), {"stop"}),
]  # fmt: skip


def traced(**switches: Any) -> Trace:
    switches = {"gamma": 1, "delta": 1, "beta": 1e9, "alpha": 0.0, **switches}
    return run(server(FedTransAggregator, "fedtrans", **switches), ROUNDS)


@lru_cache(maxsize=8)
def plain(*beside: tuple[str, Any]) -> Trace:
    return traced(**dict(beside))


@pytest.mark.parametrize(("name", "value", "beside", "first", "moved"), TABLE, ids=[f"{r[0]}-{r[1]}" for r in TABLE])
def test_it_acts_first_where_it_should_and_moves_nothing_else(
    name: str, value: Any, beside: dict[str, Any], first: tuple[int, str], moved: set[str]
) -> None:
    differences = departures(plain(*beside.items()), traced(**{**beside, name: value}))
    assert differences[0] == first
    assert {what for _, what in differences} <= moved


@pytest.mark.parametrize(
    ("off", "unread"),
    [
        ({"sharing": "none", "sim_reduce": "sum"}, {"similarity": "one", "l2s": True, "normalise": "literal"}),
        ({"warmup": "reinit"}, {"sharing": "none"}),
        ({"warmup": "reinit"}, {"eta": 0.2, "decay": "off", "l2s": True, "align": "prefix", "normalise": "literal"}),
        ({"transform_policy": "deepen_only"}, {"widen_factor": 3.0, "widen": "block", "symmetry": "equal+noise"}),
        ({"eta": 1.0, "l2s": True, "sim_reduce": "sum"}, {"decay_clock": "age", "normalise": "literal"}),
        ({"alpha": 0.0}, {"cell_selection": "random"}),
    ],
)
def test_what_another_switch_leaves_unread_changes_nothing(off: dict[str, Any], unread: dict[str, Any]) -> None:
    assert all(switched_off("fedtrans", name, {**off, **unread}) for name in unread)
    assert departures(plain(*off.items()), traced(**off, **unread)) == []


def test_the_table_has_every_switch() -> None:
    assert {row[0] for row in TABLE} >= {field.name for field in dataclasses.fields(FedTransParams)}
