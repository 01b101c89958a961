"""Hyperparameters that another one switches off change nothing: pairs of jobs with equal results, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, run_job, states

from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import load_config, with_values
from methods import small_space

EXITS: dict[str, Any] = {"model": "multi_exit_cnn3", "num_participants": 7}
SCALED: dict[str, Any] = {
    **EXITS, "scalefl.widths": [0.5, 0.75, 1.0], "scalefl.exits": [1, 2, 3], "scalefl.groups": [3, 2, 2]
}  # fmt: skip
GROUPS = {"depthfl.groups": [3, 2, 2], "depthfl.inclusive": True}
TRAINED = {"hypemefed.groups": [3, 2, 2], "hypemefed.missing": "trained"}
HYPER = {"hypemefed.groups": [3, 2, 2], "hypemefed.epochs": 2, "hypemefed.hidden": 8}
STUDENTS = {"feddf.types": ["cnn_small"], "feddf.groups": [7], "feddf.steps": 0, "public_samples": 30}
PROXIES = {
    "model": "lenet_6k", "moss.types": ["vit_small", "lenet_6k"], "moss.ranges": ["1-4", "5-7"], "moss.epochs": 1,
    "moss.wire": "ce", "public_samples": 8, "num_participants": 7,
}  # fmt: skip
SEARCH = {
    "fedoras.brackets": [0.12, 0.25], "fedoras.supernet_rounds": 2, "fedoras.finetune_rounds": 0,
    "fedoras.evaluations": 4, "fedoras.population": 3, "fedoras.parents": 2, "fedoras.val_ratio": 0.2,
    "num_participants": 6, "rounds": 3,
}  # fmt: skip
RATES = {"model": "cnn_small", "sample_mode": "oort", "num_participants": 3, "rounds": 3, "decay_round": 4}


@pytest.mark.parametrize(
    ("method", "beside", "unread"),
    [
        ("scalefl", SCALED, {"scalefl.gamma": 0.9, "scalefl.temperature": 1.0, "scalefl.kd_after": 0.0}),
        ("depthfl", {**EXITS, **GROUPS}, {"depthfl.kd": False, "depthfl.ramp_up": 1.0}),
        ("hypemefed", {**EXITS, **TRAINED}, {"hypemefed.k": 2, "hypemefed.generated_weight": 0.1}),
        ("feddf", {**STUDENTS, "count_server_macs": True},
         {"feddf.lr": 0.5, "feddf.batch_size": 4, "feddf.patience": 2, "feddf.validation": 0.99}),
        ("hermes", {"hermes.match_params": ["cnn_small"], "model": "cnn_small", "hermes.groups": [7]},
         {"hermes.param_ratio": [0.5]}),
        ("hermes", {"model": "cnn_small", "hermes.start": "type", "hermes.groups": [3, 2, 2]},
         {"hermes.threshold": 0.0, "hermes.step": 0.5}),
        ("hypemefed", {**EXITS, **HYPER, "hypemefed.variant": "naive"},
         {"hypemefed.k": 3, "hypemefed.loss": "factors"}),
        ("scalefl", {**SCALED, "scalefl.self_kd": True, "scalefl.kd_after": 1},
         {"scalefl.gamma": 0.9, "scalefl.temperature": 1.0, "scalefl.detach": True}),
        ("zerofl", {"model": "cnn_small", "zerofl.sparsity": 0},
         {"zerofl.upload": "top_k_diff", "zerofl.mask_ratio": 0.5, "zerofl.skips_zeros": False}),
        # its dropout draws from the stream that also orders the public samples
        ("moss", PROXIES,
         {"moss.meta_layers": 2, "moss.persistent": False, "moss.projection_start": "least_squares"}),
        ("fedavg", RATES, {"decay_factor": 0.1, "blacklist_max_len": 0.9}),
    ],
)  # fmt: skip
def test_a_job_with_other_values_is_the_same_job(
    method: str, beside: dict[str, Any], unread: dict[str, Any], job_file: Path
) -> None:
    settings = {"method": method, "rounds": 2, **beside}
    note = idle_keys(with_values(load_config(job_file), **settings, **unread))
    assert note is not None and all(key in note for key in unread)
    plain = run_job(job_file, "plain", True, **settings)
    assert_equal(plain, run_job(job_file, "other", True, **settings, **unread))
    folders = [job_file.parent / "logs" / name / "logs" for name in ("plain", "other")]
    assert states(folders[0]) == states(folders[1])


def test_operators_go_to_all_participants_alike_under_opa(job_file: Path) -> None:
    space = small_space.written(job_file.parent, small_space.space(2, 1))
    settings = {"method": "fedoras", "model": str(space), **SEARCH}
    plain = run_job(job_file, "plain", True, **settings)
    # what stage 3 reads, without any round of it
    tuned = {"fedoras.finetune_epochs": 2, "fedoras.finetune_schedule": "steps", "fedoras.finetune_augment": "flip"}
    assert_equal(plain, run_job(job_file, "other", True, **settings, **tuned, **{"fedoras.mean_over": "holders"}))


@pytest.mark.parametrize(
    ("beside", "read"),
    [
        ({"heterofl.clip_norm": None}, {"clip_norm": 0.01}),
        ({"heterofl.clip_norm": 1.0, "personalise_epochs": 1}, {"clip_norm": 0.01}),
        ({"personalise_epochs": 1}, {"own_classes": True}),
    ],
)
def test_a_job_reads_its_own_key_where_the_methods_does_not_cover_it(
    beside: dict[str, Any], read: dict[str, Any], job_file: Path
) -> None:
    settings = {"method": "heterofl", "model": "cnn_small", **beside}
    assert idle_keys(with_values(load_config(job_file), **settings, **read)) is None
    plain = run_job(job_file, "plain", True, **settings)
    with pytest.raises(AssertionError):
        assert_equal(plain, run_job(job_file, "other", True, **settings, **read))
