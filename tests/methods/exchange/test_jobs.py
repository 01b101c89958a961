"""Methods that exchange tensors, as jobs: by the real command, resumed, and equal wherever they run."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, result
from server.test_jobs import command

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.tensor_files import read_tensors

JOB: dict[str, Any] = {"num_participants": 5, "eval_interval": 1}
# keys of a method, and the loss on clients' test samples that was recorded
METHODS: dict[str, tuple[dict[str, Any], float]] = {
    "fedproto": ({"representation": 8}, 3.1465),
    "fd": ({}, 3.6356),
    "lgfedavg": ({"representation": 8}, 3.9447),
    "fedgh": ({"representation": 8}, 3.9044),
    "fml": ({"alpha": 0.4, "beta": 0.7}, 3.7822),
    "fedkd": ({"start_energy": 0.9, "end_energy": 0.9}, 3.6346),  # a job of fewer rounds has another schedule
    "fedtgp": ({"representation": 8, "epochs": 5}, 4.0547),
    "fedmrl": ({"width": 6}, 4.1614),
    "fedgen": ({"representation": 8, "steps": 5}, 3.9087),
    "fedl2g": ({"representation": 8, "warm_up": 1}, 3.9491),
}


def keys_of(method: str, **more: Any) -> dict[str, Any]:
    params = {"types": ["single_exit_mlp", "cnn_small"], "ranges": ["1-4", "5-7"], **METHODS[method][0], **more}
    return {**JOB, "method": method, **{f"{method}.{name}": value for name, value in params.items()}}


def here(job_file: Path, name: str, **keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    summary = fedscale_ext.run(job_file, job_name=name, **keys)
    return summary, result(job_file.parent / "logs" / name / "logs")


@pytest.mark.parametrize("method", METHODS)
def test_a_job_resumes_and_equals_itself_wherever_it_runs(method: str, job_file: Path) -> None:
    keys = keys_of(method)
    summary, unbroken = here(job_file, "unbroken", **keys, cohort_size=2)
    here(job_file, "broken", **keys, cohort_size=2, rounds=1)
    assert_equal(unbroken, here(job_file, "broken", **keys, cohort_size=2, resume=True)[1])
    text = {key: str(value).replace("'", "").replace(" ", "") for key, value in keys.items()}
    there = command(job_file, "there", **text, cohort_size=2, worker_ips="localhost:[2]")
    assert_equal(unbroken, there)
    assert summary["loss"]["test"] == pytest.approx(METHODS[method][1], abs=0.02)  # rounding differs between machines
    assert [one["type"] for one in summary["results"]["types"]] == ["single_exit_mlp", "cnn_small", "all"]


@pytest.mark.parametrize("method", METHODS)
def test_a_job_passes_all_tests_at_its_end(method: str, job_file: Path) -> None:
    more = {"personalise_epochs": 1, "test_on_all": True, "test_around_training": True}
    summary, result = here(job_file, "tested", **keys_of(method), **more, rounds=2)
    assert summary["before_training"]["per_client"] == summary["accuracy"]["per_client"]  # the same model and message
    last = result["rounds"][-1]
    for name in ("personalised", "on_all", "after_training"):
        assert last[name]
    # a model or a generator travels, or small tensors do
    share = 0.5 if method in ("fml", "fedkd", "fedmrl", "fedgen") else 0.1
    assert summary["cost"]["network_total_mb"] < share * summary["cost"]["storage_suite_mb"]


@pytest.mark.parametrize("method", [*METHODS, "local", "fedmd"])
def test_what_clients_keep_is_counted_to_the_byte(method: str, job_file: Path) -> None:
    types = ["nasbench201_base", "cnn_small"]  # the first has BatchNorm
    ranges, more = ["1-4", "5-7"], {"fedl2g": {"warm_up": 0}}.get(method, {})
    if method in METHODS:
        keys = keys_of(method, types=types, **more)
    else:
        keys = {**JOB, "method": method, f"{method}.types": types, f"{method}.ranges": ranges}
    if method == "fedmd":
        keys["public_samples"] = 4
    summary, _ = here(job_file, "kept", **{**keys, "num_participants": 3}, rounds=2)
    newest = {}  # of each client
    for path in sorted((job_file.parent / "logs/kept/logs/client_state").rglob("*.safetensors")):
        newest[path.stem.partition("-")[0]] = sum(tensor.nbytes for tensor in read_tensors(path)[0].values())
    assert len(newest) == summary["cost"]["client_models"] and len(set(newest.values())) == 2
    sizes = {model["key"]: model["cost"]["bytes"] for model in summary["models"]}
    pool = sum(sizes.values()) - 2 * sizes.get("shared", 0)  # the initial pairs have the shared model, too
    assert summary["cost"]["storage_suite_mb"] * 1e6 == pytest.approx(pool + sum(newest.values()), abs=0.5)
    if method not in ("fml", "fedkd", "fedmrl"):  # these are tested with another part of the pair
        mean = (4 * sizes["nasbench201_base"] + 3 * sizes["cnn_small"]) / 7
        assert summary["cost"]["mean_model_mb"] * 1e6 == pytest.approx(mean, abs=0.5)


def test_predictions_differ_by_rule_alone(job_file: Path) -> None:
    nearest, result = here(job_file, "nearest", **keys_of("fedproto"))
    head, other = here(job_file, "head", **keys_of("fedproto", predict="head"))
    assert [each["train_loss"] for each in result["rounds"]] == [each["train_loss"] for each in other["rounds"]]
    assert nearest["loss"]["test"] != head["loss"]["test"]


def test_classes_that_a_client_lacks_are_masked_by_the_nearest_prototype_too(job_file: Path) -> None:
    masked, _ = here(job_file, "masked", **keys_of("fedproto"), mask_test=True)
    plain, _ = here(job_file, "plain", **keys_of("fedproto"))
    assert masked["accuracy"]["mean"] >= plain["accuracy"]["mean"]  # fewer classes to confuse


def test_without_types_a_job_is_refused_and_public_samples_are_not_asked_for(job_file: Path) -> None:
    with pytest.raises(UserError, match=r"lacks fedproto.types \(the types' models, as in \[\w+, \w+\]\)$"):
        here(job_file, "none", method="fedproto")
