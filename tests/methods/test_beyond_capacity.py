"""Every method counts the clients that train what their devices do not afford: the mark ``beyond capacity``."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.data.public import PublicData
from methods.distillation import public
from methods.harness import server
from methods.small_space import written

AMPLE = 1e15
EXITS = {"model": "multi_exit_cnn3"}
TYPES = {"model": "cnn_small", "types": public.TYPES, "ranges": ["1-4", "5-6"]}
TYPED = [name for name in method_names() if "types" in {field.name for field in fields(method_class(name).Params)}]
PRUNED = {"param_ratio": (1.0, 0.25), "groups": (3, 3)}
SUPERNETS = ("fednas", "spider")
KEYS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("depthfl", "hypemefed"), EXITS),
    "scalefl": {**EXITS, "widths": (0.5, 0.75, 1.0), "exits": (1, 2, 3)},
    **dict.fromkeys(TYPED, TYPES),
    **{key: {**TYPES, "representation": 6} for key in ("fedgen", "fedgh", "fedl2g", "fedproto", "fedtgp", "lgfedavg")},
    "fedmrl": {**TYPES, "width": 6},
    **dict.fromkeys(("fedmask", "fedskel", "hermes", "tailorfl"), PRUNED),
}
ELSEWHERE = {"fedoras"}  # tests/methods/fedoras/test_aggregator.py


def new_aggregator(method: str, folder: Path, capacity: list[float], **keys: Any) -> Any:
    class WithData(method_class(method)):  # type: ignore[misc]
        def public_data(self) -> PublicData:
            return public.samples()

    if method in SUPERNETS:
        keys |= {"model": str(written(folder)), "shape": (1, 16, 16)}
    return server(WithData, method, capacity=capacity, **{**KEYS.get(method, {}), **keys})


def whole_macs(method: str, folder: Path, **keys: Any) -> float:
    """MACs per sample of the largest model of a method's first pool."""
    return float(max(model.cost.forward_macs for model in new_aggregator(method, folder, [AMPLE] * 6, **keys).pool))


@pytest.mark.parametrize("method", sorted(set(method_names()) - ELSEWHERE))
def test_devices_that_afford_next_to_nothing_are_counted_under_every_method(method: str, tmp_path: Path) -> None:
    assert new_aggregator(method, tmp_path, [AMPLE] * 6).beyond_capacity == 0
    assert new_aggregator(method, tmp_path, [1.0, AMPLE, 2.0, AMPLE, AMPLE, 1.0]).beyond_capacity == 3


@pytest.mark.parametrize(
    ("method", "keys", "beyond"),
    [
        # one network, which each client trains whole
        ("fedavg", {}, 3),
        ("fednas", {}, 3),
        ("fedtrans", {}, 3),
        # masks of single weights save no MACs
        ("lotteryfl", {}, 3),
        ("lotteryfl", PRUNED, 0),  # clients train their types' leading channels from the start
        # devices skip zeros, or compute them
        ("zerofl", {"sparsity": 0.9}, 0),
        ("zerofl", {"sparsity": 0.2}, 3),
        ("zerofl", {"sparsity": 0.9, "skips_zeros": False}, 3),
        # the forward pass is whole, and so is training while a skeleton is set
        ("fedskel", {}, 3),
        # clients choose their type's part after they trained the whole
        ("fedmask", {}, 3),
        ("tailorfl", {}, 3),
        ("hermes", {"start": "whole"}, 3),
        ("hermes", {"start": "type"}, 0),
        # a level for each of them
        ("heterofl", {"rates": (1.0, 0.5)}, 0),
    ],
)
def test_half_of_the_whole_model_affords_what_a_method_trains_of_it(
    method: str, keys: dict[str, Any], beyond: int, tmp_path: Path
) -> None:
    whole = whole_macs(method, tmp_path, **keys)
    assert new_aggregator(method, tmp_path, [whole / 2] * 3 + [whole] * 3, **keys).beyond_capacity == beyond


def test_a_client_of_spider_trains_two_networks(tmp_path: Path) -> None:
    whole = whole_macs("spider", tmp_path)
    aggregator = new_aggregator("spider", tmp_path, [whole] * 2 + [2 * whole - 1] + [2 * whole] * 3)
    assert aggregator.beyond_capacity == 3
    assert any(f"less than the {2 * whole:,.0f} MACs" in notice for notice in aggregator.notices)


@pytest.mark.parametrize("method", TYPED)
def test_types_are_counted_by_what_their_own_models_take(method: str, tmp_path: Path) -> None:
    costs = new_aggregator(method, tmp_path, [AMPLE] * 6).costs
    first, second = (float(cost.forward_macs) for cost in costs)
    assert first != second
    assert new_aggregator(method, tmp_path, [first] * 4 + [second] * 2).beyond_capacity == 0
    assert new_aggregator(method, tmp_path, [first - 1] + [first] * 3 + [second - 1] * 2).beyond_capacity == 3


def test_types_of_lotteryfl_that_devices_do_not_afford_are_counted_and_told(tmp_path: Path) -> None:
    whole = whole_macs("lotteryfl", tmp_path)
    aggregator = new_aggregator("lotteryfl", tmp_path, [whole / 2] * 6, **PRUNED)
    assert aggregator.beyond_capacity == 3
    assert [event["message"] for event in aggregator.events] == [
        "3 clients have a type that is beyond their capacity: lotteryfl.groups deals types whatever devices afford"
    ]
