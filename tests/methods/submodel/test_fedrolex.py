"""FedRolex's windows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from job_results import assert_equal, result
from server.test_jobs import command

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.methods.submodel.fedrolex import FedRolexAggregator
from fedscale_ext.submodels import count_mean, extract, window
from methods.harness import equal, pool_states, server, trained
from methods.trace import run


def test_windows_begin_one_channel_further_in_each_round_and_wrap() -> None:
    aggregator = server(FedRolexAggregator, "fedrolex")
    spec, layout = aggregator.pool["a"].spec, models.layout(aggregator.pool["a"].spec)
    for number in (1, 2, 9, 30):
        aggregator.assign(number, np.array([1]))
        for key, rate in zip("bcde", aggregator.rates[1:], strict=True):
            part = aggregator.pool[key].part
            for group, width in models.group_widths(spec).items():
                if group in ("input", "classes"):
                    assert group not in part.channels
                    continue
                channels = part.channels[group].tolist()
                assert channels == [(number - 1 + index) % width for index in range(len(channels))]
            cut = extract(aggregator.pool["a"].state, layout, window(spec, rate, number - 1))
            assert all(torch.equal(cut[name], value) for name, value in aggregator.pool[key].state.items())


def test_clients_are_served_the_leading_channels_or_the_whole_model() -> None:
    aggregator = server(FedRolexAggregator, "fedrolex", capacity=[1e15, 1, 1, 1, 1, 1])
    aggregator.assign(5, np.arange(1, 7))
    assert list(aggregator.evaluation_plan().serve) == ["a"] + ["e"] * 5
    assert all(torch.equal(index, torch.arange(len(index))) for index in aggregator.pool["e"].part.channels.values())
    whole = server(FedRolexAggregator, "fedrolex", serve="server", capacity=[1e15, 1, 1, 1, 1, 1])
    assert list(whole.evaluation_plan().serve) == ["a"] * 6
    beyond = "which 5 of 6 do not afford: fedrolex.serve is server"
    assert any(notice.endswith(beyond) for notice in whole.notices)
    assert not any(notice.endswith(beyond) for notice in aggregator.notices)


def test_an_entrys_mean_counts_no_earlier_rounds() -> None:
    """As the public code's weights of BatchNorm, biases and classifier do: by how often they were updated before."""
    capacity = [1e15, 1e15, 1, 1, 1, 1]
    old, young = (server(FedRolexAggregator, "fedrolex", capacity=capacity) for _ in range(2))
    run(old, 3)
    young.pool.update("a", pool_states(old)["a"])
    ends = []
    for aggregator in (old, young):
        items = aggregator.assign(4, np.arange(1, 7))
        start = aggregator.pool["a"].state
        parts = [
            (item, aggregator.pool[item.model], trained(aggregator.pool[item.model].state, 4, item.client))
            for item in items
        ]
        weighted = [(state, model.part and model.part.covered, aggregator.weight(item)) for item, model, state in parts]
        aggregator.aggregate(4, [], {"a": count_mean(start, weighted)})
        ends.append(pool_states(aggregator))
        assert [weight for _, _, weight in weighted] == [1.0] * 6
    assert all(equal(state, ends[1][key]) for key, state in ends[0].items())
    held = [state["head.linear.bias"] for _, _, state in parts]
    torch.testing.assert_close(ends[0]["a"]["head.linear.bias"], torch.stack(held).mean(0))


def test_nobody_masks_unless_asked() -> None:
    (item,) = server(FedRolexAggregator, "fedrolex").assign(1, np.array([1]))
    assert dict(item.overrides) == {"clip_norm": 1.0}


def test_a_model_larger_than_any_clients_is_trained_all_over(job_file: Path) -> None:
    """In as many rounds as there are channels, the window reaches them all; HeteroFL's leading channels never do."""
    moved = {}
    for method in ("fedrolex", "heterofl"):
        keys = {"model": "cnn_small", "rounds": 17, "eval_interval": 99, "local_steps": 1, "client_weight_decay": 0}
        fedscale_ext.run(job_file, method=method, job_name=method, **keys, **{f"{method}.rates": [0.5]})
        spec, state = result(job_file.parent / "logs" / method / "logs")["models"]["global"]
        start = models.initial_state(spec, 1)
        moved[method] = (state["conv1.bias"] != start["conv1.bias"]).tolist()
    assert all(moved["fedrolex"])
    assert any(moved["heterofl"][:8]) and not any(moved["heterofl"][8:])


@pytest.mark.parametrize("slots", [2])
def test_executors_play_no_part_in_the_result(job_file: Path, slots: int) -> None:
    keys = {"method": "fedrolex", "num_participants": 7, "rounds": 2, "cohort_size": 2}
    fedscale_ext.run(job_file, job_name="here", **keys)
    here = result(job_file.parent / "logs" / "here" / "logs")
    assert_equal(here, command(job_file, "there", **keys, worker_ips=f"localhost:[{slots}]"))
