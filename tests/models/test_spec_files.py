"""A configuration's model as a file: read within bounds, and refused in one sentence where it is no good."""

import json
from pathlib import Path
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.models import registry as registry_of_models
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.families.nasbench201 import BASE_GENOTYPE
from fedscale_ext.models.families.network_pair import FEATURES, pair_spec

SHAPE, CLASSES = (1, 28, 28), 62
SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)


def written(folder: Path, content: Any) -> str:
    path = folder / "m5.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def with_fields(**fields: Any) -> dict[str, Any]:
    data = SPEC.to_json()
    return {**data, "fields": {**data["fields"], **fields}}


def test_a_saved_spec_is_the_spec_and_a_name_is_a_name(tmp_path: Path) -> None:
    assert models.configured_spec(written(tmp_path, SPEC.to_json()), SHAPE, CLASSES) == SPEC
    assert models.configured_spec("nasbench201_base", SHAPE, CLASSES) == SPEC


@pytest.mark.parametrize(("content", "why"), [
    ("{", "no model spec"),
    ([], "no model spec"),
    ({"family": "cnn"}, "no model spec"),
    ({"family": "cnn", "fields": [1]}, "no model spec"),
    ("[" * 40 + "]" * 40, "no model spec"),
    ({"family": "nasbench", "fields": {}}, "no family of models 'nasbench'; did you mean 'nasbench201'"),
    (with_fields(num_classes=10), "num_classes 10, but this data set has num_classes 62"),
    (with_fields(input_shape=[3, 32, 32]), r"input_shape \(3, 32, 32\), but this data set has"),
    (with_fields(stem=-1), "stem has width -1; give a whole number above 0"),
    (with_fields(stem="eight"), "stem has width 'eight'; give a whole number"),
    (with_fields(stages=[["x"]]), "'x' is no cell; give .id, genotype, width, adapter."),
    (with_fields(stages=[[["c0", BASE_GENOTYPE]], []]), "is no cell"),
    (with_fields(stages=[[["c0", BASE_GENOTYPE, "8", False]], []]), "cell 'c0' has width '8'; give a whole number"),
    (with_fields(stages=[], reductions=[]), "has no stages"),
    (with_fields(stem={"a": 1}), "cannot be built"),
    ({"family": "cnn", "fields": {"input_shape": SHAPE, "num_classes": CLASSES, "widths": [10**5, 10**5],
                                  "kernels": [5, 5], "hidden": 8}}, "bytes; a message can carry"),
])  # fmt: skip
def test_what_is_no_spec_of_this_task_is_refused_in_a_sentence(tmp_path: Path, content: Any, why: str) -> None:
    with pytest.raises(UserError, match=why) as error:
        models.configured_spec(written(tmp_path, content), SHAPE, CLASSES)
    assert "m5.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("model", ["m2.safetensors", "logs/job/run/models/m2", "models/"])
def test_weights_and_folders_are_no_specs(model: str) -> None:
    with pytest.raises(UserError, match=r"is no spec: give a file that ends in \.json, as models/KEY\.json of a job"):
        models.configured_spec(model, SHAPE, CLASSES)


FAMILIES = ("nasbench201_base", "resnet18_speech", "mobilenetv2", "mobilenetv3_small", "vit_small", "cnn_small",
            "multi_exit_cnn3", "torchvision_resnet18", "cnn_tiny", "rnn")  # fmt: skip


def named(name: str) -> models.ModelSpec:
    return models.named_spec(name, (3, 96, 96), CLASSES)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bad_value_in_any_field_of_any_family_is_refused(tmp_path: Path, name: str) -> None:
    shape = (1, 20, 20)
    spec = models.named_spec(name, shape, 5)
    assert models.configured_spec(written(tmp_path, spec.to_json()), shape, 5) == spec
    for field in {field for field, _ in spec.fields} - {
        "pool",
        "pools",
        "dense",
    }:  # any value of these is true or false
        for value in (None, -3, "no", [["a", "b"]]):
            with pytest.raises(UserError, match=r"m5\.json"):
                models.configured_spec(written(tmp_path, spec.replace(**{field: value}).to_json()), shape, 5)


@pytest.mark.parametrize("fields", [
    *({name: value} for name in ("patch", "width", "head_dim", "mlp") for value in (0, -2)),
    {"blocks": [["c0", 0]]}, {"blocks": [["c0", 2], ["c1", -1]]},
    {"blocks": [["c0", -1]], "head_dim": -2, "mlp": -2},  # whose products are positive
])  # fmt: skip
def test_a_vit_of_nothing_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    spec = models.named_spec("vit_small", (1, 20, 20), 5).replace(**fields)
    with pytest.raises(UserError, match=r"m5\.json cannot be built .* vit spec: .* must be at least 1$"):
        models.configured_spec(written(tmp_path, spec.to_json()), (1, 20, 20), 5)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_that_the_family_does_not_have_is_refused_with_the_one_that_was_meant(
    tmp_path: Path, name: str
) -> None:
    spec = models.named_spec(name, SHAPE, CLASSES)
    for field, _ in spec.fields:
        typed = field[0] + field[2:]  # the second letter was missed
        fields = {typed if key == field else key: value for key, value in spec.to_json()["fields"].items()}
        why = f"m5.json: a spec of the family '{spec.family}' has no field '{typed}'; did you mean '{field}'?"
        for content in ({"family": spec.family, "fields": fields}, spec.replace(**{typed: 1}).to_json()):
            with pytest.raises(UserError) as error:
                models.configured_spec(written(tmp_path, content), SHAPE, CLASSES)
            assert str(error.value) == f"{tmp_path}/{why}"


def test_what_belongs_to_no_spec_is_refused(tmp_path: Path) -> None:
    cases = {
        r"'nasbench201' has no field 'zzz'; there are .*input_shape, num_classes, .*, stem$": with_fields(zzz=1),
        r"'nasbench201' has no field 'x{50,60}": with_fields(**{"x" * 900_000: 1}),
        r"m5\.json: a model spec has no 'feilds'; did you mean 'fields'\?": {"family": "cnn", "feilds": {}},
        r"m5\.json: a model spec has no 'weights'; there are family, fields": {**SPEC.to_json(), "weights": []},
    }
    for why, content in cases.items():
        with pytest.raises(UserError, match=why) as error:
            models.configured_spec(written(tmp_path, content), SHAPE, CLASSES)
        assert len(str(error.value)) < 400


def test_families_name_the_fields_of_their_specs() -> None:
    # headed networks and pairs are made of others, by a method, and a network of one's own has any name
    pair = pair_spec(named("cnn_small"), named("lenet_6k"), joined=FEATURES)
    unnamed = {"headed": headed(named("cnn_small"), 8), "paired": pair, "custom_module": named("torchvision:alexnet")}
    assert {each.family for each in map(named, FAMILIES)} == registry_of_models._families().keys() - unnamed.keys()
    for name, family in registry_of_models._families().items():
        specs = [unnamed[name]] if name in unnamed else [named(each) for each in family.NAMED]
        specs += [scaled for spec in specs if (scaled := models.scaled(spec, 0.5)) is not None]
        # what a short declaration says instead of `ops`, and what two methods say of the networks that they make
        optional = {"operators", "mixed"} if name == "supernet" else set()
        assert set(family.FIELDS) - optional == {field for spec in specs for field, _ in spec.fields}, name


def test_a_level_with_a_scaler_is_read(tmp_path: Path) -> None:
    level = models.scaled(models.named_spec("cnn_small", SHAPE, CLASSES), 0.5)
    assert level is not None and models.configured_spec(written(tmp_path, level.to_json()), SHAPE, CLASSES) == level


def test_a_family_of_another_package_may_say_nothing_of_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fedscale_ext.models.families.nasbench201.FIELDS")
    spec = SPEC.replace(zzz=1)
    assert models.configured_spec(written(tmp_path, spec.to_json()), SHAPE, CLASSES) == spec


@pytest.mark.parametrize("family", ["headed", "paired"])
def test_a_spec_without_its_networks_is_refused(tmp_path: Path, family: str) -> None:
    fields = {"input_shape": list(SHAPE), "num_classes": CLASSES}
    with pytest.raises(UserError, match=f"cannot be built as a model of the family '{family}'"):
        models.configured_spec(written(tmp_path, {"family": family, "fields": fields}), SHAPE, CLASSES, text=False)


def test_a_missing_file_a_folder_and_a_huge_one(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "huge.json").write_bytes(b" " * (1 << 21))
    for name in ("gone.json", "folder.json", "huge.json"):
        with pytest.raises(UserError, match="cannot be read"):
            models.configured_spec(str(tmp_path / name), SHAPE, CLASSES)


def test_a_baseline_trains_the_largest_model_of_a_finished_job(job_file: Path) -> None:
    grow = {"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9}
    done = fedscale_ext.run(job_file, method="fedtrans", job_name="grown", rounds=3, **grow)
    largest = done["models"][-1]
    assert largest["key"] != "m0"
    path = Path(done["log_dir"], "models", f"{largest['key']}.json")
    baseline = fedscale_ext.run(job_file, job_name="given", model=str(path), rounds=1)
    assert baseline["models"][0]["spec"] == largest["spec"]
    assert baseline["models"][0]["cost"] == largest["cost"]


def test_a_job_given_a_large_model_has_the_devices_of_the_job_with_the_small_one(job_file: Path) -> None:
    seen = {}
    plain = FedAvgAggregator.init_state

    def init_state(self: FedAvgAggregator, population: Any, task: Any) -> None:
        plain(self, population, task)
        seen[self.args.job_name] = self.capacity.tolist()

    for name, keys in {
        "small": {"model": "nasbench201_base"},
        "large": {"model": "cnn_small", "capacity_model": "nasbench201_base"},
        "other": {"model": "cnn_small"},
    }.items():
        config = with_values(load_config(job_file), rounds=1, job_name=name, **keys)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FedAvgAggregator, "init_state", init_state)
            run_in_process(config)
    assert seen["small"] == seen["large"] != seen["other"]
