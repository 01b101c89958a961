"""Hyperparameters that another one switches off: the table fits the methods, and notes and sweeps use it."""

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from fedscale_ext.config.idle_settings import idle_keys, read_settings
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_pages import with_hyperparameters
from fedscale_ext.config.method_switches import SWITCHES, ReadWith, read_only_with
from fedscale_ext.config.methods import method_class

ROWS = [
    (method, each)
    for method, rows in SWITCHES.items()
    for row in rows
    for each in (row, row.alternative)
    if each is not None
]


@pytest.mark.parametrize(("method", "row"), ROWS, ids=lambda each: each if isinstance(each, str) else each.switch)
def test_rows_name_keys_defaults_and_values_of_the_method(method: str, row: ReadWith) -> None:
    params: Any = method_class(method).Params  # type: ignore[attr-defined]
    defaults = {field.name: field.default for field in dataclasses.fields(params)}
    assert {*row.keys, row.switch} <= defaults.keys() and row.switch not in row.keys
    assert defaults[row.switch] == row.default and type(defaults[row.switch]) is type(row.default)
    if isinstance(row.values, tuple):
        hint = get_type_hints(params)[row.switch]
        assert get_origin(hint) is Literal and set(row.values) < set(get_args(hint))


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"scalefl.gamma": 0.5}, "scalefl.gamma does nothing: scalefl.self_kd is false"),
        ({"scalefl.gamma": 0.5, "scalefl.detach": True},
         "scalefl.gamma, scalefl.detach do nothing: scalefl.self_kd is false"),
        ({"scalefl.gamma": 0.5, "scalefl.self_kd": True}, None),
        ({"fluid.share": 0.5}, "fluid.share does nothing: fluid.rates is capacity"),
        ({"fluid.share": 0.5, "fluid.rates": "time"}, None),
        ({"depthfl.kd": False, "depthfl.inclusive": True}, "depthfl.kd does nothing: depthfl.inclusive is true"),
        ({"depthfl.kd": False, "depthfl.ramp_up": 3}, "depthfl.ramp_up does nothing: depthfl.kd is false"),
        ({"depthfl.ramp_up": 3}, None),
        ({"hypemefed.k": 3, "hypemefed.missing": "trained"},
         "hypemefed.k does nothing: hypemefed.missing is trained"),
        ({"hypemefed.generated_weight": 0.3, "hypemefed.missing": "random"}, None),
        ({"hermes.param_ratio": [1, 0.5], "hermes.match_params": ["a", "b"]},
         "hermes.param_ratio does nothing: hermes.match_params is [a, b]"),
        ({"hermes.param_ratio": [1, 0.5], "hermes.match_params": []}, None),
        ({"fedmd.digest_batch": 8, "fedmd.digest_epochs": 0},
         "fedmd.digest_batch does nothing: fedmd.digest_epochs is 0"),
        ({"fedtrans.decay_clock": "age", "fedtrans.decay": "off"},
         "fedtrans.decay_clock does nothing: fedtrans.decay is off"),
        ({"fedtrans.decay_clock": "age", "fedtrans.decay": True}, None),  # as YAML reads on
        ({"fedtrans.align": "lift", "fedtrans.sharing": "none"},
         "fedtrans.align does nothing: fedtrans.sharing is none"),
        ({"fedtrans.deepen_count": 2, "fedtrans.transform_policy": "deepen_only"}, None),
        ({"zerofl.mask_ratio": 0.2, "zerofl.sparsity": 0}, "zerofl.mask_ratio does nothing: zerofl.sparsity is 0"),
        ({"fedtrans.l2s": True, "fedtrans.sharing": None}, "fedtrans.l2s does nothing: fedtrans.sharing is none"),
        ({"feddf.validation": 0.5, "feddf.steps": 0}, "feddf.validation does nothing: feddf.steps is 0"),
        ({"fedoras.mean_over": "holders"},
         "fedoras.mean_over does nothing: fedoras.aggregation is opa and fedoras.opa_scope is all"),
        ({"fedoras.mean_over": "holders", "fedoras.opa_scope": "buffers_only"}, None),
        ({"fedoras.mean_over": "holders", "fedoras.aggregation": "plain"}, None),
        ({"fedoras.mean_over": "holders", "fedoras.aggregation": "plain", "fedoras.opa_scope": "buffers_only"},
         "fedoras.opa_scope does nothing: fedoras.aggregation is plain"),
        ({"fedoras.val_fraction": 0.5, "fedoras.evaluation": "federated"},
         "fedoras.val_fraction does nothing: fedoras.evaluation is federated and fedoras.compare_rankings is false"),
        ({"fedoras.val_fraction": 0.5, "fedoras.evaluation": "federated", "fedoras.compare_rankings": True}, None),
        ({"fedoras.finetune_epochs": 2, "fedoras.finetune_augment": "flip", "fedoras.finetune_rounds": 0},
         "fedoras.finetune_epochs, fedoras.finetune_augment do nothing: "
         "fedoras.finetune_rounds is 0 and fedoras.twin_rounds is 0"),
        ({"fedoras.finetune_epochs": 2, "fedoras.finetune_rounds": 0, "fedoras.twin_rounds": 5}, None),
        ({"fedtrans.symmetry": "equal", "fedtrans.widen_factor": 3.0, "fedtrans.transform_policy": "deepen_only"},
         "fedtrans.symmetry, fedtrans.widen_factor do nothing: fedtrans.transform_policy is deepen_only"),
        ({"fedtrans.similarity": "one", "fedtrans.sharing": "none"},
         "fedtrans.similarity does nothing: fedtrans.sharing is none"),
        ({"fedtrans.align": "prefix", "fedtrans.warmup": "reinit"},
         "fedtrans.align does nothing: fedtrans.warmup is reinit and fedtrans.similarity is lineage"),
        ({"fedtrans.align": "prefix", "fedtrans.warmup": "reinit", "fedtrans.similarity": "one"}, None),
        ({"fedtrans.decay_clock": "age", "fedtrans.eta": 1}, "fedtrans.decay_clock does nothing: fedtrans.eta is 1"),
        ({"fedtrans.cell_selection": "random", "fedtrans.alpha": 0},
         "fedtrans.cell_selection does nothing: fedtrans.alpha is 0"),
        ({"fluid.every": 3, "fluid.increment": 0}, "fluid.every does nothing: fluid.increment is 0"),
        ({"hermes.step": 0.1, "hermes.start": "type"}, "hermes.step does nothing: hermes.start is type"),
        ({"hermes.validation": 0.3, "hermes.start": "type"}, None),
        ({"hypemefed.k": 3, "hypemefed.loss": "factors", "hypemefed.variant": "naive"},
         "hypemefed.k, hypemefed.loss do nothing: hypemefed.variant is naive"),
        ({"hypemefed.rescale": True, "hypemefed.warmup": 1.0},
         "hypemefed.rescale does nothing: hypemefed.warmup is 1.0"),
        ({"moss.meta_layers": 2, "moss.persistent": False, "moss.projection_start": "least_squares",
          "moss.taps": ["a"], "moss.wire": "ce"},
         "moss.meta_layers, moss.persistent, moss.projection_start, moss.taps do nothing: moss.wire is ce"),
        ({"moss.meta_layers": 2, "moss.wire": "ce+mse"}, None),
        ({"scalefl.gamma": 0.5, "scalefl.self_kd": True, "scalefl.kd_after": 1},
         "scalefl.gamma does nothing: scalefl.kd_after is 1"),
        ({"splitmix.rescale_init": False, "splitmix.r": 1.0},
         "splitmix.rescale_init does nothing: splitmix.r is 1.0"),
        ({"splitmix.rescale_init": False, "splitmix.r": 0.5}, None),
        ({"splitmix.rescale_init": False, "splitmix.r": "wide"}, None),  # refused where it is read
        ({"zerofl.upload": "top_k_diff", "zerofl.skips_zeros": False, "zerofl.sparsity": 0.0},
         "zerofl.upload, zerofl.skips_zeros do nothing: zerofl.sparsity is 0.0"),
    ],
)  # fmt: skip
def test_a_key_that_another_one_of_the_method_switches_off_is_told(keys: dict[str, Any], note: str | None) -> None:
    method = next(iter(keys)).partition(".")[0]
    assert idle_keys(make_config({}, {"method": method, **keys})) == note


def test_a_key_that_is_not_given_is_never_told() -> None:
    for method in SWITCHES:
        assert idle_keys(make_config({}, {"method": method})) is None


def test_jobs_that_differ_in_a_switched_off_key_read_the_same() -> None:
    off = [read_settings(make_config({}, {"method": "scalefl", "scalefl.gamma": gamma})) for gamma in (0.1, 0.2)]
    assert off[0] == off[1]
    on = [
        read_settings(make_config({}, {"method": "scalefl", "scalefl.gamma": gamma, "scalefl.self_kd": True}))
        for gamma in (0.1, 0.2)
    ]
    assert on[0] != on[1]


def test_pages_say_with_what_a_key_is_read() -> None:
    page = "<!-- hyperparameters of scalefl: written by x -->\n<!-- end of hyperparameters -->"
    assert with_hyperparameters(page).count("Read only with `self_kd: true`") == 4
    assert read_only_with("scalefl", "gamma") == "Read only with `self_kd: true`, and with `kd_after` below 1."
    assert read_only_with("depthfl", "ramp_up") == "Read only with `inclusive: false`, and with `kd: true`."
    assert read_only_with("hermes", "param_ratio") == "Read only without `match_params`."
    assert read_only_with("feddf", "lr") == "Read only with `steps` above 0."
    assert read_only_with("hypemefed", "warmup") == "Read only with `missing: generated`, `stale` or `random`."
    assert read_only_with("scalefl", "widths") == "" == read_only_with("fedavg", "x")
    assert read_only_with("splitmix", "rescale_init") == "Read only with `r` below 1."
    assert read_only_with("fedoras", "mean_over") == (
        "Read only with `aggregation: fedavg`, `plain` or `opa_scope: buffers_only`."
    )
    assert read_only_with("fedoras", "finetune_batch") == (
        "Read only with `finetune_rounds` above 0 or `twin_rounds` above 0."
    )
