"""Parts of models in the pool, and the mean over clients of all parts."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.architectures import CLASSES, FAMILIES

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.submodels import count_mean, coverage, extract, insert, narrowed, window
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.reduction import ModelMean
from fedscale_ext.training.label_mask import class_axes, class_rows

SPEC = models.named_spec("nasbench201_base", (1, 8, 8), 5)


def pool_with_parts() -> ModelPool:
    pool = ModelPool()
    pool.add("whole", SPEC, models.initial_state(SPEC, 1))
    pool.add_part("half", "whole", narrowed(SPEC, 0.5), window(SPEC, 0.5))
    pool.add("other", SPEC, models.initial_state(SPEC, 2))
    return pool


def is_cut(pool: ModelPool, start: int = 0) -> bool:
    cut = extract(pool["whole"].state, models.layout(SPEC), window(SPEC, 0.5, start))
    return all(torch.equal(cut[name], value) for name, value in pool["half"].state.items())


def test_a_part_follows_its_reference_and_nothing_else() -> None:
    pool = pool_with_parts()
    assert is_cut(pool) and pool["half"].cost == models.cost(narrowed(SPEC, 0.5))
    assert (pool["half"].whole, pool["whole"].whole) == ("whole", "whole")
    version = pool["half"].version
    pool.update("other", models.initial_state(SPEC, 3))
    assert pool["half"].version == version
    pool.update("whole", models.initial_state(SPEC, 4))
    assert is_cut(pool) and pool["half"].version == version + 1
    assert all(torch.equal(value, models.initial_state(SPEC, 3)[name]) for name, value in pool["other"].state.items())


def test_a_part_can_be_moved_and_amended_until_its_reference_changes() -> None:
    pool = pool_with_parts()
    pool.set_channels("half", "whole", window(SPEC, 0.5, 3))
    assert is_cut(pool, 3) and not is_cut(pool)
    amended = {name: value + 1 for name, value in pool["half"].state.items()}
    pool.amend("half", amended)
    assert pool["half"].state is amended
    before = dict(amended)
    pool.amend("whole", models.initial_state(SPEC, 5))  # statistics of the whole alone: parts have their own
    assert all(pool["half"].state[name] is value for name, value in before.items())
    pool.update("whole", models.initial_state(SPEC, 6))
    assert is_cut(pool, 3)


def test_channels_that_are_not_there_are_refused() -> None:
    pool = pool_with_parts()
    for channels in ({"nothing": torch.arange(2)}, {"stem": torch.tensor([1, 1])}):
        with pytest.raises(ValueError, match="group"):
            pool.set_channels("half", "whole", channels)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mean_over_units_of_parts_is_count_mean_over_their_clients(family: str) -> None:
    """``rows``: clients in units of two, each with classes of its own or all of them."""

    @given(spec=FAMILIES[family], seed=st.integers(0, 10_000), partial=st.booleans())
    @settings(deadline=None, derandomize=True, max_examples=15)
    def check(spec: ModelSpec, seed: int, partial: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        start = {name: value.double() for name, value in models.initial_state(spec, seed).items()}
        layout = models.layout(spec)
        mean, updates = ModelMean(start), []
        for unit, rate in enumerate((1.0, 0.5, 0.3, 0.5)):
            channels = window(spec, rate, unit)
            covered = None if rate == 1.0 else coverage(layout, channels)
            base = extract(start, layout, channels)
            change = {name: torch.zeros_like(value) for name, value in base.items()}
            weights, per_class = [2.0 + unit, 1.0], torch.zeros(CLASSES, dtype=torch.float64)
            for weight in weights:
                there = (
                    torch.rand(CLASSES, generator=generator) < 0.5 if partial else torch.ones(CLASSES, dtype=torch.bool)
                )
                per_class += weight * there
                rows = class_rows(spec, there)
                noise = {n: torch.randn(v.shape, generator=generator, dtype=torch.float64) for n, v in base.items()}
                for name in noise:
                    change[name] += weight * torch.where(rows.get(name, torch.tensor(True)), noise[name], 0.0)
                moved = {name: base[name] + noise[name] for name in base}
                updates.append(by_mask(spec, start, moved, channels, there, weight))
            mean.add(change, sum(weights), covered, class_rows(spec, per_class) if partial else None)
        expected = count_mean(start, updates)
        for name, value in mean.state().items():
            torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-12)

    check()


def by_mask(spec: ModelSpec, start: State, state: State, channels, there, weight):
    """An update as count_mean takes one whose coverage is any set of entries."""
    covered = coverage(models.layout(spec), channels)
    ones = {name: torch.ones_like(value) for name, value in state.items()}
    mask = insert({name: torch.zeros_like(value) for name, value in start.items()}, ones, covered)
    rows = class_rows(spec, there)
    masks = {name: (value > 0) & rows.get(name, torch.tensor(True)) for name, value in mask.items()}
    assert set(rows) == set(class_axes(spec)) and rows
    return insert(start, state, covered), masks, weight


def test_a_checkpoint_keeps_parts(job_file: Path) -> None:
    import fedscale_ext
    from fedscale_ext.metrics.job_folder.model_files import load_model

    keys = {"method": "fedrolex", "local_steps": 1, "job_name": "parts", "num_participants": 7}
    fedscale_ext.run(job_file, **keys, rounds=1)
    fedscale_ext.run(job_file, **keys, rounds=2, resume=True)
    saved = {path.stem: load_model(path) for path in (job_file.parent / "logs/parts/logs/models").glob("*.safetensors")}
    spec, whole = saved["a"]
    assert {"b", "c", "d", "e"} < set(saved)
    cut = extract(whole, models.layout(spec), window(spec, 0.5))
    names = models.parameter_names(spec)  # statistics are measured for each
    assert all(torch.equal(cut[name], saved["b"][1][name]) for name in names)


DEEP = models.named_spec("multi_exit_vgg_small", (9, 1, 16), 5)


def pool_by_depth() -> ModelPool:
    """Parts of one exit, of the last exit alone, and of two exits at half the width."""
    pool = ModelPool()
    pool.add("whole", DEEP, models.initial_state(DEEP, 1))
    two = multi_exit.prefix(DEEP, 2)
    pool.add_part("one", "whole", multi_exit.prefix(DEEP, 1), {})
    pool.add_part("last", "whole", DEEP.replace(heads="last"), {})
    pool.add_part("narrow", "whole", narrowed(two, 0.5), window(two, 0.5))
    return pool


def test_parts_by_depth_and_width_follow_the_tensors_that_they_hold() -> None:
    pool = pool_by_depth()
    for seed in (2, 3):
        whole = models.initial_state(DEEP, seed)
        pool.update("whole", whole)
        for key in ("one", "last"):
            assert pool[key].state.keys() == models.layout(pool[key].spec).keys() < whole.keys()
            assert all(torch.equal(value, whole[name]) for name, value in pool[key].state.items())
        narrow = pool["narrow"].state
        assert narrow.keys() == models.layout(multi_exit.prefix(DEEP, 2)).keys()
        assert torch.equal(narrow["block2.conv1.weight"], whole["block2.conv1.weight"][:32, :16])
        for model in pool:
            models.build(model.spec).load_state_dict(model.state, strict=True)
            if model.part is not None:
                assert model.part.covered.keys() == model.state.keys()
    channels = {group: index for group, index in window(DEEP, 0.5).items() if group in models.group_widths(DEEP)}
    pool.set_channels("narrow", "whole", channels)  # groups beyond its depth are of no matter
    assert all(torch.equal(value, narrow[name]) for name, value in pool["narrow"].state.items())


def test_what_is_deeper_than_its_reference_is_no_part_of_it() -> None:
    pool = ModelPool()
    shallow = multi_exit.prefix(DEEP, 2)
    pool.add("whole", shallow, models.initial_state(shallow, 1))
    for spec, first in ((DEEP, "block3"), (multi_exit.prefix(DEEP, 3).replace(heads="last"), "block3")):
        with pytest.raises(ValueError, match=f"no tensor '{first}"):
            pool.add_part("deep", "whole", spec, {})
    assert "deep" not in pool


def test_the_mean_over_parts_by_depth_is_count_mean_over_those_who_hold_a_tensor() -> None:
    pool, weights = pool_by_depth(), {"one": 3.0, "narrow": 2.0, "last": 1.0}
    start = {name: value.double() for name, value in pool["whole"].state.items()}
    mean, updates = ModelMean(start), []
    for seed, (key, weight) in enumerate(weights.items()):
        part = pool[key].part
        assert part is not None
        generator = torch.Generator().manual_seed(seed)
        noise = {n: torch.randn(v.shape, generator=generator, dtype=torch.float64) for n, v in pool[key].state.items()}
        mean.add({name: weight * value for name, value in noise.items()}, weight, part.covered)
        moved = {name: pool[key].state[name].double() + value for name, value in noise.items()}
        updates.append((moved, part.covered, weight))
    expected, state = count_mean(start, updates), mean.state()
    for name, value in state.items():
        torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-12)
    assert torch.equal(state["exit3.linear.weight"], updates[2][0]["exit3.linear.weight"])  # one holder
    one = (3 * updates[0][0]["exit1.linear.bias"] + 2 * updates[1][0]["exit1.linear.bias"]) / 5
    torch.testing.assert_close(state["exit1.linear.bias"], one)  # the last exit's holder has no first one
