"""Values of job keys that are known only when a job begins, and the digests that tell jobs apart.

Such values are parameters of data sets and models of other arms' jobs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from evals.paper import jobs
from evals.paper.engine import effective_keys, job_keys
from evals.paper.experiment import Arm, Run
from evals.paper.job_keys import Keys, ModelOf, Parameter, WeightsOf, recorded, resolved, with_models
from evals.paper.papers import DataSet, Paper

NETWORK, COUNT = Parameter("network"), Parameter("count")


def test_parameters_are_put_in_whole_within_texts_and_in_lists() -> None:
    keys: Keys = {
        NETWORK: "vgg",
        COUNT: 3,
        "model": NETWORK.formatted("multi_{}"),
        "num_participants": COUNT,
        "groups": [COUNT, 1, NETWORK.formatted("{}_small")],
        "rounds": 7,
    }
    assert resolved(keys) == {
        "model": "multi_vgg", "num_participants": 3, "groups": [3, 1, "vgg_small"], "rounds": 7
    }  # fmt: skip


def test_the_last_of_several_mappings_decides_on_a_parameter() -> None:
    of_data: Keys = {NETWORK: "vgg", "model": NETWORK}
    assert resolved({**of_data, NETWORK: "resnet"}) == {"model": "resnet"}


def test_none_takes_a_key_away() -> None:
    assert resolved({"local_epochs": None, "local_steps": 4}) == {"local_steps": 4}


@pytest.mark.parametrize("value", [COUNT, COUNT.formatted("{}"), [COUNT]])
def test_a_parameter_without_a_value_is_an_error(value: Any) -> None:
    with pytest.raises(KeyError):
        resolved({NETWORK: "vgg", "rounds": value})


def test_models_and_weights_of_jobs_become_files() -> None:
    requested = []

    def file(model: ModelOf) -> str:
        requested.append(model)
        return f"/logs/{model.arm}/{model.which}.json"

    keys: Keys = {NETWORK: "vgg", "model": ModelOf("A", 0), "initial_weights": WeightsOf(ModelOf("A", 0)), "rounds": 7}
    assert with_models(keys, file) == {
        NETWORK: "vgg", "model": "/logs/A/0.json", "initial_weights": "/logs/A/0.safetensors", "rounds": 7
    }  # fmt: skip
    assert requested == [ModelOf("A", 0)] * 2
    assert resolved({"model": ModelOf("A")}) == {"model": ModelOf("A")}  # not before the job is there


def test_recorded_keys_name_what_is_not_resolved_yet() -> None:
    keys: Keys = {
        NETWORK: "vgg",
        "model": NETWORK.formatted("multi_{}"),
        "taps": [NETWORK, "a"],
        "largest": ModelOf("Fed, A"),
        "second": ModelOf("B", 1),
        "initial_weights": WeightsOf(ModelOf("B", 1)),
        "rounds": 7,
    }
    assert recorded(keys) == {
        "$network": "vgg",
        "model": "multi_$network",
        "taps": ["$network", "a"],
        "largest": "@largest:Fed, A",
        "second": "@1:B",
        "initial_weights": "@",
        "rounds": 7,
    }


PAPER = Paper(
    name="none",
    folder=Path("/none"),
    data={"har": DataSet("uci_har", keys={NETWORK: "resnet18_speech", "fedtrans.beta": 1.0}),
          "cifar": DataSet("cifar10", keys={"model": "lenet"})},
    sizes={"small": {"rounds": 9}},
    stands_for={},
    base_model="base",
)  # fmt: skip
MODELS = ["m0", "m1", "m2"]


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Jobs of an arm on two data sets, with three models each."""
    models = [{"key": key, "cost": {"forward_macs": macs}} for macs, key in zip((5, 6, 9), MODELS, strict=True)]
    monkeypatch.setattr(jobs, "summary", lambda log_dir: {"models": models[::-1]})
    arm = Arm("Grown", {"method": "fedtrans"})
    return [
        Run(arm, "har", 1, None, failed="broken"),
        *(Run(arm, data, 2, Path(f"/logs/grown_{data}/run")) for data in ("har", "cifar")),
    ]


def keys_of(arm: Arm, done: list[Run], data: str = "har", **more: str) -> dict[str, Any]:
    return job_keys(effective_keys(PAPER, arm, data, 2, done, "small", more), data, 2, done)


@pytest.mark.parametrize(("which", "file"), [("largest", "m2"), ("middle", "m1"), (0, "m0"), (2, "m2")])
def test_an_arm_trains_a_model_of_another_arms_job(finished: list[Run], which: Any, file: str) -> None:
    model = ModelOf("Grown", which)
    keys = keys_of(Arm("B", {"method": "fedavg", "model": model, "initial_weights": WeightsOf(model)}), finished)
    assert keys["model"] == f"/logs/grown_har/run/models/{file}.json"
    assert keys["initial_weights"] == f"/logs/grown_har/run/models/{file}.safetensors"


def test_its_devices_are_those_of_the_other_arms_job(finished: list[Run]) -> None:
    arm = Arm("B", {"method": "fedavg", "model": ModelOf("Grown")})
    assert keys_of(arm, finished)["capacity_model"] == "base"
    assert keys_of(arm, finished, "cifar")["capacity_model"] == "lenet"
    named = [Run(Arm("Grown", {"method": "fedtrans", "model": NETWORK}), "har", 2, Path("/logs/named/run"))]
    assert keys_of(arm, named)["capacity_model"] == "resnet18_speech"


def test_a_model_for_all_jobs_is_for_the_job_that_others_have_theirs_from(finished: list[Run]) -> None:
    keys = keys_of(Arm("B", {"method": "fedavg", "model": ModelOf("Grown")}), finished, model="wide", rounds="5")
    assert keys["model"].endswith("m2.json") and (keys["capacity_model"], keys["rounds"]) == ("wide", "5")
    assert keys_of(Arm("C", {"method": "fedavg"}), finished, model="wide")["model"] == "wide"


def test_a_job_without_its_model_fails_in_one_sentence(finished: list[Run]) -> None:
    arm = Arm("B", {"method": "fedavg", "model": ModelOf("Grown")})
    with pytest.raises(jobs.Failed, match="there is no finished job 'Grown' to take the model from"):
        effective_keys(PAPER, arm, "har", 1, finished, "small", {})
    with pytest.raises(jobs.Failed, match="grown_har has 3 models, not 4"):
        keys_of(Arm("B", {"method": "fedavg", "model": ModelOf("Grown", 3)}), finished)


def test_keys_of_another_method_are_left_out(finished: list[Run]) -> None:
    assert keys_of(Arm("B", {"method": "fedavg"}), finished) == {
        "data_set": "uci_har", "rounds": 9, "method": "fedavg"
    }  # fmt: skip
    assert keys_of(Arm("B", {"method": "fedtrans"}), finished)["fedtrans.beta"] == 1.0


@pytest.mark.parametrize("key", ["model", "capacity_model"])
def test_a_job_is_the_same_wherever_its_models_file_is(tmp_path: Path, key: str) -> None:
    names = []
    for folder, stem in (("a", 2), ("b", 2), ("c", 4)):
        file = tmp_path / folder / "one.json"
        file.parent.mkdir()
        file.write_text(json.dumps({"stem": stem}))
        names.append(jobs.digest({key: str(file), "rounds": 3, "data_dir": folder}))
    assert names[0] == names[1] != names[2]


def test_jobs_from_other_weights_are_other_jobs(tmp_path: Path) -> None:
    names = []
    for name, held in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / f"{name}.safetensors").write_bytes(held)
        names.append(jobs.digest({"initial_weights": str(tmp_path / f"{name}.safetensors")}))
    assert names[0] == names[1] != names[2]
