"""Presets: any method composes with any data set to a valid configuration, and what is shown is what is started."""

from functools import cache
from pathlib import Path

import pytest
import yaml

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config import methods, presets
from fedscale_ext.config.job_config import ConfFile, JobConfig, load_config, origin
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import Shape
from fedscale_ext.data.registry import KNOWN, known
from fedscale_ext.server.method_base.requirements import check_trained

METHODS = presets.startable_methods()
DATA = list(presets.data_presets())


@cache
def configuration(method: str, data: str) -> JobConfig:
    return load_config(f"{method} --on {data}")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_composes_with_each_data_set(method: str) -> None:
    for data in DATA:
        config = configuration(method, data)  # UserError for an unknown key, or a value of a wrong type
        make_params(method_class(config.job.method).Params, config)
        assert all(key.startswith(f"{config.job.method}.") for key in config.params), data
        assert not [value for value in config.given.values() if str(value).startswith("$")], data


def test_each_registered_method_has_a_preset() -> None:
    assert {preset.method or name for name, preset in presets.method_presets().items()} == set(method_names())


EXCHANGING = ("fedproto", "fedtgp", "fd", "lgfedavg", "fedgh", "fml", "fedkd", "fedmrl", "fedgen", "fedl2g")
DISTILLING = ("moss", "fedmd", "feddf", "dsfl", "fedgems", "fedet")
WITH_EXITS = ("hypemefed", "depthfl", "scalefl")
# methods for pictures, on text and on series that one row holds: `driver check` says so
UNFIT = {(method, "uci_har_small") for method in (*DISTILLING, *EXCHANGING, "fedtrans")} | {
    (method, data)
    for method in (*DISTILLING, *EXCHANGING, *WITH_EXITS, "fedtrans")
    for data in ("shakespeare", "shakespeare_small")
}


def test_the_models_of_a_pair_take_the_data_and_the_weakest_affords_the_smaller() -> None:
    @cache
    def macs(name: str, shape: Shape, classes: int, text: bool) -> int | None:
        try:
            return models.cost(models.named_spec(name, shape, classes, text=text)).forward_macs
        except UserError:
            return None

    unfit = set()
    for method in METHODS:
        for data in DATA:
            config = configuration(method, data)
            kind = known(config.fedscale.data_set)
            assert kind is not None
            shape = config.job.sample_shape or kind.shape
            weakest = config.job.capacity_model or config.fedscale.model
            names = (config.fedscale.model, weakest, *config.method_params().get("types", ()))
            largest, *costs = (macs(name, shape, kind.classes, kind.text) for name in names)
            if largest is None or None in costs:
                unfit.add((method, data))
            else:
                assert costs[0] is not None and costs[0] <= largest, (method, data)
    assert unfit == UNFIT


def test_clients_of_a_method_can_train_the_model_of_its_preset() -> None:
    for method in METHODS:
        for data in DATA:
            config = configuration(method, data)
            kind = known(config.fedscale.data_set)
            assert kind is not None
            if (method, data) not in UNFIT:
                spec = models.named_spec(config.fedscale.model, config.job.sample_shape or kind.shape, kind.classes)
                check_trained(config.fedscale.model, spec, config, method_class(config.job.method))


def test_no_exception_or_note_is_of_a_setting_or_data_set_that_does_not_exist() -> None:
    tags = {tag for data in DATA for tag in presets.compose_chain(data)}
    for name, method in presets.method_presets().items():
        assert {*method.exceptions, *method.notes} <= tags, name
        assert method.data in DATA, name


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_a_data_preset_is_found_by_the_name_that_dataset_list_prints(entry) -> None:
    if entry.name in {data.keys["data_set"] for data in presets.data_presets().values()}:
        assert presets.data_presets()[presets.data_name(entry.name)].keys["data_set"] == entry.name


def test_the_shown_file_is_what_starts(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_text(presets.render("heterofl", "speech"), encoding="utf-8")
    shown, started = load_config(file), load_config("heterofl --on speech")
    assert (shown.echo(), shown.given, shown.cluster) == (started.echo(), started.given, started.cluster)
    assert started.origin() == "heterofl --on speech"
    assert shown.origin() == str(file)


def test_the_shown_file_is_plain_yaml_with_fedscales_keys() -> None:
    file = yaml.safe_load(presets.render("fedyogi", "femnist"))
    job = {key: value for entry in file["job_conf"] for key, value in entry.items()}
    assert {"ps_ip", "worker_ips", "exp_path", "aggregator_entry", "executor_entry", "auth"} <= set(file)
    assert job["yogi_tau"] == 1e-8 and isinstance(job["yogi_tau"], float)
    assert (job["job_name"], job["method"]) == ("fedyogi_femnist", "fedyogi")


@pytest.mark.parametrize("method", ["hermes", "tailorfl", "fedmask", "fedskel"])
def test_types_of_pruned_networks_are_mosss_on_its_data_and_without_the_whole_network_elsewhere(method: str) -> None:
    for data in DATA:
        shares = [1.0, 0.4, 0.05] if "moss" in presets.compose_chain(data) else [0.2, 0.05]
        assert presets.compose(method, data)[f"{method}.param_ratio"] == shares, data


def test_later_keys_win() -> None:
    assert presets.compose("fedtrans", "femnist")["fedtrans.delta"] == 30
    assert presets.compose("fedtrans", "speech")["fedtrans.delta"] == 100  # the pair's
    assert presets.compose("fedtrans", "speech_small")["fedtrans.delta"] == 40  # the setting's
    assert presets.compose("moss", "femnist")["public_samples"] == 100  # the method's
    assert presets.compose("moss", "uci_har_moss")["public_samples"] == 50  # the data set's
    assert "capacity_model" not in presets.compose("heterofl", "cifar10_moss")  # null
    assert "hypemefed.groups" not in presets.compose("hypemefed", "femnist")  # a role that the data lack


def test_a_method_of_another_package_trains_on_a_data_set(monkeypatch) -> None:
    monkeypatch.setitem(methods._BUILT_IN, "mine", methods._BUILT_IN["fedavg"])
    config = load_config("mine --on femnist")
    assert (config.job.method, config.fedscale.model) == ("mine", "nasbench201_base")


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ("heterofl --on spech", "--on spech: there is no such data preset; did you mean 'speech'?"),
        ("heterofl --on none", "`fedscale config list data` shows all"),
        ("heterofll --on speech", "there is no method 'heterofll' to start on a data set; did you mean 'heterofl'?"),
        ("quickstart --on speech", "quickstart is a whole configuration, with its data"),
        ("job.yml --on speech", "job.yml is a whole configuration, with its data"),
        ("moss", "say on which data moss trains: --on cifar10_moss is nearest to its paper"),
        ("heterofl_speech_small", "it is heterofl --on speech_small"),
    ],
)
def test_a_wrong_name_is_told_in_a_sentence(conf: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        load_config(conf)
    assert sentence in str(error.value)


def test_a_file_comes_before_a_preset_of_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fedavg").write_text(presets.render("heterofl", "speech"), encoding="utf-8")
    assert load_config("fedavg").job.method == "heterofl"
    assert load_config("fedavg --on speech").job.method == "fedavg"


def test_missing_data_of_a_preset_name_their_commands() -> None:
    assert presets.how_to_get(Path("./data/speech")).startswith("get it with: fedscale dataset import ")
    assert presets.how_to_get(Path("elsewhere")) == ""


def test_python_starts_a_method_on_a_data_set(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="data/speech does not exist: get it with: fedscale dataset import"):
        fedscale_ext.run("heterofl", on="speech", rounds=20)


def test_what_was_read_is_not_read_again() -> None:
    read = ConfFile(Path("fedavg --on femnist"), presets.render("fedavg", "femnist").encode())
    assert origin(read.path) == "fedavg --on femnist"
    assert load_config(read).job.method == "fedavg"
