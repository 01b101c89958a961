"""The distillation methods as jobs: by the real command, resumed, and equal wherever they run."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal
from server.test_jobs import command

from fedscale_ext.core.errors import UserError
from methods.exchange.test_jobs import here

JOB: dict[str, Any] = {"model": "lenet_6k", "public_samples": 8, "num_participants": 5, "eval_interval": 1}
# keys of a method, and the loss on clients' test samples that was recorded
METHODS: dict[str, tuple[dict[str, Any], float]] = {
    "fedmd": ({"pretrain_epochs": 1, "private_epochs": 2, "digest_batch": 4}, 2.7346),
    "dsfl": ({"epochs": 1, "samples": 6}, 3.9745),
    "fedgems": ({"server_epochs": 2}, 3.9587),
    "feddf": ({"steps": 6, "patience": 4}, 3.7825),
    "fedet": ({"steps": 4, "representation": 8}, 4.0392),
}  # fmt: skip


def keys_of(method: str) -> dict[str, Any]:
    params = {"types": ["single_exit_mlp", "lenet_6k"], "ranges": ["1-4", "5-7"], **METHODS[method][0]}
    return {**JOB, "method": method, **{f"{method}.{name}": value for name, value in params.items()}}


# the others share their machinery with these two
_SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in METHODS if method not in ("fedmd", "fedet")]


@pytest.mark.parametrize("method", ["fedmd", "fedet", *_SLOW])
def test_a_job_resumes_and_equals_itself_wherever_it_runs(method: str, job_file: Path) -> None:
    keys = keys_of(method)
    summary, unbroken = here(job_file, "unbroken", **keys, cohort_size=2)
    here(job_file, "broken", **keys, cohort_size=2, rounds=1)
    assert_equal(unbroken, here(job_file, "broken", **keys, cohort_size=2, resume=True)[1])
    text = {key: str(value).replace("'", "").replace(" ", "") for key, value in keys.items()}
    there = command(job_file, "there", **text, cohort_size=2, worker_ips="localhost:[2]")
    assert_equal(unbroken, there)
    assert summary["loss"]["test"] == pytest.approx(METHODS[method][1], abs=0.02)  # rounding differs between machines
    results = summary["results"]
    assert [one["type"] for one in results["types"]] == ["single_exit_mlp", "lenet_6k", "all"]
    assert results["public_data"].startswith("8 samples of tiny generated")


def test_the_table_of_types_has_the_traffic_of_the_first_round(job_file: Path) -> None:
    summary, _ = here(job_file, "traffic", **{**keys_of("fedmd"), "rounds": 1, "num_participants": 7})
    *_, every = summary["results"]["types"]
    assert every["traffic_mb"] == pytest.approx(summary["cost"]["network_total_mb"])


def test_fine_tuning_begins_with_what_a_client_keeps(job_file: Path) -> None:
    summary, _ = here(job_file, "tuned", **keys_of("dsfl"), personalise_epochs=1)
    assert summary["personalised"]["mean"] >= summary["accuracy"]["mean"] - 0.2


def test_clients_that_digest_nothing_learn_of_nobody(job_file: Path) -> None:
    alone = {f"fedmd.{name}": 0 for name in ("digest_epochs", "pretrain_epochs", "private_epochs")}

    def loss(name: str, **more: Any) -> float:  # with half of the public samples, everybody is told other things
        summary, _ = here(job_file, name, **{**keys_of("fedmd"), "num_participants": 7, **more})
        return float(summary["loss"]["test"])

    assert loss("alone", **alone) == loss("alone_half", **alone, public_fraction=0.5)
    assert loss("told") != loss("told_half", public_fraction=0.5)


def test_public_samples_must_fit_into_a_message(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.server.round.dispatcher._HEADERS", 2**20 - 20_000)
    with pytest.raises(UserError, match=r"the further tensors of one client do not fit .*: raise max_message_mb"):
        here(job_file, "large", **keys_of("fedmd"), max_message_mb=1)


def test_public_data_that_there_are_not(job_file: Path) -> None:
    with pytest.raises(UserError, match="a job of method feddf lacks public_samples"):
        here(job_file, "none", **{**keys_of("feddf"), "public_samples": 0})
