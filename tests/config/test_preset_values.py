"""The presets' values: the papers' numbers, the evaluations' sizes, and equal terms for methods that are compared."""

from itertools import pairwise
from typing import Any

import pytest

from evals.fedtrans.settings import PAPER as FEDTRANS
from evals.hypemefed.settings import PAPER as HYPEMEFED
from evals.moss.arms import BASELINES as SYSTEMS
from evals.moss.settings import PAPER as MOSS
from evals.paper.job_keys import resolved
from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.data.registry import known
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.stages import Plan

METHODS = ("fedtrans", "heterofl", "splitmix", "fluid", "fedavg", "fedprox", "fedyogi")
DATA = ("femnist", "cifar10", "speech", "openimage")
# Table 7: participants per round, rounds, delta
TABLE7 = {"cifar10": (10, 1000, 20), "femnist": (100, 2000, 30), "speech": (100, 1500, 100),
          "openimage": (100, 2000, 50)}  # fmt: skip
OF_MOSS = ("fedmd", "feddf", "dsfl", "fedgems", "fedet")
PRUNED = ("hermes", "tailorfl", "fedmask", "lotteryfl", "fedskel", "heterofl", "fjord")
MOSS_DATA = {"cifar10_moss_small": "cifar10_30-h0.1", "speech_moss_small": "speech12_30-h0.1",
             "uci_har_moss_small": "har_local", "cifar10_moss": "cifar10_full-h0.1",
             "speech_moss": "speech12_full-h0.1"}  # fmt: skip
GRID = [(method, data) for method in METHODS for data in DATA]


def preset(method: str, data: str) -> JobConfig:
    return load_config(f"{method} --on {data}")


def cost(config: JobConfig, model: str) -> float:
    data = known(config.fedscale.data_set)
    assert data is not None
    shape = config.job.sample_shape or data.shape
    return models.cost(models.named_spec(model, shape, data.classes)).forward_macs


@pytest.mark.parametrize(("method", "data"), GRID)
def test_table_7(method: str, data: str) -> None:
    config = preset(method, data)
    fedscale = config.fedscale
    assert (fedscale.num_participants, fedscale.rounds) == TABLE7[data][:2]
    assert (fedscale.local_steps, fedscale.batch_size, fedscale.learning_rate) == (20, 10, 0.05)
    assert (fedscale.decay_factor, fedscale.decay_round) == (0.98, 10)
    assert (fedscale.overcommitment, fedscale.filter_less) == (1.0, 0)
    if method == "fedtrans":
        params = {"alpha": 0.9, "beta": 0.003, "gamma": 10, "delta": TABLE7[data][2], "T": 5, "eta": 0.98}
        assert config.method_params() == params


@pytest.mark.parametrize("data", DATA)
def test_first_models_and_data_sets_are_the_papers(data: str) -> None:
    fedscale = preset("fedtrans", data).fedscale
    assert (fedscale.data_set, fedscale.model) == {
        "femnist": ("femnist", "nasbench201_base"),
        "cifar10": ("cifar10", "mobilenetv3_small"),
        "speech": ("speech", "resnet18_speech"),
        "openimage": ("openimage", "resnet18_openimage"),
    }[data]


@pytest.mark.parametrize("size", ["", "_small"])
@pytest.mark.parametrize(("method", "data"), GRID)
def test_a_baseline_has_fedtranss_data_schedule_and_devices(method: str, data: str, size: str) -> None:
    mine, fedtrans = (dict(preset(name, f"{data}{size}").given) for name in (method, "fedtrans"))
    base = fedtrans["model"]
    assert mine.pop("capacity_model", mine["model"]) == base
    config = preset(method, f"{data}{size}")
    if method in ("heterofl", "splitmix", "fluid"):
        assert 3.5 < cost(config, mine["model"]) / cost(config, base) < 8.5
    shared_keys = [key for key in fedtrans if "." not in key and key not in ("job_name", "method", "model")]
    assert {key: mine[key] for key in shared_keys} == {key: fedtrans[key] for key in shared_keys}


def test_baselines_have_their_own_values() -> None:
    heterofl, splitmix, fluid = (
        make_params(method_class(method).Params, preset(method, "cifar10"))
        for method in ("heterofl", "splitmix", "fluid")
    )
    assert heterofl.rates == (1.0, 0.5, 0.25, 0.125, 0.0625) and heterofl.clip_norm == 1.0
    assert heterofl.scaler and heterofl.mask
    assert splitmix.bases == 8 and splitmix.rescale_init
    assert fluid.p == (0.95, 0.85, 0.75, 0.65, 0.5) and (fluid.vote, fluid.increment, fluid.every) == (0.75, 0.2, 2)
    yogi = preset("fedyogi", "cifar10").fedscale
    assert (yogi.yogi_eta, yogi.yogi_tau, yogi.yogi_beta, yogi.yogi_beta2) == (0.003, 1e-8, 0.9, 0.99)
    assert preset("fedprox", "cifar10").fedscale.proxy_mu == 0.1


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(("size", "scale"), [("", "paper"), ("_small", "small")])
def test_sizes_are_those_of_the_evaluations(data: str, size: str, scale: str) -> None:
    theirs = FEDTRANS.keys_of({"cifar10": "cifar10_full", "speech": "speech_full"}.get(data, data), scale)
    left = ("model", "data_set", "cohort_size")  # the last is how they round
    keys = {key: value for key, value in theirs.items() if key not in left}
    sizes = {key: value for key, value in keys.items() if key.partition(".")[0] in (key, "fedtrans")}
    preset_keys = preset("fedtrans", f"{data}{size}").given
    assert {key: preset_keys[key] for key in sizes} == sizes


@pytest.mark.parametrize(("data", "types", "devices", "public"), [
    ("cifar10_moss", ("resnet18", "mobilenetv2", "lenet_80k"), 300, (100, "dirichlet", 0.1)),
    ("speech_moss", ("resnet18", "mobilenetv2", "lenet_6k"), 300, (200, "dirichlet", 0.1)),
    ("uci_har_moss", ("resnet18", "mobilenetv2", "lenet_6k"), 30, (50, "balanced", 0.1)),
])  # fmt: skip
def test_moss_has_the_papers_applications(data: str, types: tuple[str, ...], devices: int, public: Any) -> None:
    config = preset("moss", data)
    params, fedscale = make_params(method_class("moss").Params, config), config.fedscale
    assert params.types == types and params.groups == (devices // 3,) * 3
    assert fedscale.model == types[0] and fedscale.num_participants == devices
    assert (config.job.public_samples, config.job.public_classes, config.job.public_alpha) == public  # Table 1
    assert (config.job.local_epochs, params.epochs) == (5, 5)
    assert (fedscale.rounds, fedscale.batch_size, fedscale.learning_rate) == (50, 32, 0.001)
    assert (params.lr, params.batch_size, params.wire, params.meta_update) == (1e-3, 32, "loc+ce", "bilevel")


@pytest.mark.parametrize("data", [*MOSS_DATA, "uci_har_moss"])
@pytest.mark.parametrize("method", OF_MOSS)
def test_distillation_has_mosss_data_types_and_training(method: str, data: str) -> None:
    mine, moss = (dict(preset(name, data).given) for name in (method, "moss"))
    shared = [key for key in moss if "." not in key and key not in ("job_name", "method")]
    assert {key: mine[key] for key in shared} == {key: moss[key] for key in shared}
    assert all(mine[f"{method}.{key}"] == moss[f"moss.{key}"] for key in ("types", "groups"))


@pytest.mark.parametrize("data", [*MOSS_DATA, "uci_har_moss"])
def test_each_of_mosss_types_is_smaller_than_the_one_before(data: str) -> None:
    config = preset("moss", data)
    kind = known(config.fedscale.data_set)
    assert kind is not None
    shape = config.job.sample_shape or kind.shape
    costs = [models.cost(models.named_spec(name, shape, kind.classes)) for name in config.given["moss.types"]]
    for larger, smaller in pairwise(costs):
        assert larger.forward_macs > 1.1 * smaller.forward_macs and larger.parameters > 1.1 * smaller.parameters


RECORDED = "moss.same_arch_transfer"  # recorded results copy the largest type; the presets have the default


@pytest.mark.parametrize("data", MOSS_DATA)
@pytest.mark.parametrize("method", ["moss", *OF_MOSS, *PRUNED])
def test_mosss_sizes_are_those_of_the_evaluation(method: str, data: str) -> None:
    label = next((label for label, keys in SYSTEMS.items() if keys["method"] == method), None)
    arm = {"method": "moss"} if label is None else dict(SYSTEMS[label])
    scale = "small" if "small" in data else "paper"
    common = load_config(MOSS.folder / "job.yml").given
    theirs = {**common, **resolved({**MOSS.keys_of(MOSS_DATA[data], scale), **arm})}
    config = preset(method, data)
    # how it rounds, the ports, what the tables ask for beside, and at the paper's scale how fast devices are
    left_out = ["ps_port", "cohort_size", "test_on_all", "personalise_epochs", "test_around_training"]
    if scale == "paper":
        left_out += ["reference_macs", "capacity_model"]
    expected = {key: value for key, value in theirs.items() if key not in left_out and "." not in key}
    assert {key: str(config.given.get(key)) for key in expected} == {key: str(value) for key, value in expected.items()}
    params = make_params(method_class(method).Params, config)
    for key, value in theirs.items():
        owner, _, name = key.partition(".")
        if owner == method and name and key != RECORDED:
            assert str(list_of(getattr(params, name))) == str(list_of(value)), key


def list_of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


# section 5.1: clients by level, participants, batch, learning rate, channels of the VGG's blocks
SECTION_5_1 = {
    "svhn": ((17, 17, 16), 10, 128, 5e-4, (32, 64, 128, 256)),
    "stl10": ((17, 17, 16), 10, 32, 5e-4, (64, 128, 256, 512)),
    "unimib_shar": ((10, 10, 10), 6, 16, 5e-3, (64, 128, 256, 512)),
}


@pytest.mark.parametrize("data", SECTION_5_1)
def test_hypemefed_has_the_papers_values(data: str) -> None:
    groups, participants, batch, lr, widths = SECTION_5_1[data]
    config = preset("hypemefed", data)
    fedscale, job = config.fedscale, config.job
    assert tuple(config.method_params()["groups"]) == groups
    assert (fedscale.rounds, fedscale.num_participants, fedscale.batch_size) == (300, participants, batch)
    assert (fedscale.learning_rate, fedscale.decay_factor) == (lr, 1.0)
    assert (job.client_optimizer, job.local_epochs, job.client_weight_decay) == ("adam", 5, pytest.approx(lr / 10))
    known_data = known(fedscale.data_set)
    assert known_data is not None
    spec = models.named_spec(fedscale.model, known_data.shape, known_data.classes)
    assert spec["widths"] == tuple((width, width) for width in widths) and spec["exits"] == 3
    params = make_params(method_class("hypemefed").Params, config)
    assert (params.k, params.epochs, params.lr) == (100, 25, 5e-4)


FORMS = {"fedavg": "first", "fedavg_l": "single", "heterofl": "single", "fedrolex": "single", "lotteryfl": "single",
         "scalefl": "multi", "depthfl": "multi"}  # fmt: skip


@pytest.mark.parametrize("data", [*SECTION_5_1, "uci_har_small", "fashionmnist_small"])
@pytest.mark.parametrize("method", FORMS)
def test_hypemefeds_baselines_have_its_data_schedule_and_devices(method: str, data: str) -> None:
    hypemefed, baseline = (dict(preset(name, data).given) for name in ("hypemefed", method))
    groups = hypemefed.pop("hypemefed.groups")
    assert baseline.get("capacity_model", baseline["model"]) == hypemefed["capacity_model"]
    assert baseline.get(f"{method}.groups", groups) == groups
    same = [key for key in hypemefed if key not in ("job_name", "method", "model", "capacity_model")]
    assert {key: baseline[key] for key in same} == {key: hypemefed[key] for key in same}
    assert baseline["model"] == hypemefed["model"].replace("multi", FORMS[method])


@pytest.mark.parametrize(("name", "data", "scale"), [
    ("uci_har_small", "har_local", "small"), ("fashionmnist_small", "fashion-h0.5", "small"),
    ("cifar100_small", "cifar100_small-h0.5", "small"), ("svhn", "svhn-h0.5", "paper"),
    ("stl10", "stl10-h0.5", "paper"), ("unimib_shar", "unimib-h0.5", "paper"),
])  # fmt: skip
def test_hypemefeds_sizes_are_those_of_the_evaluations(name: str, data: str, scale: str) -> None:
    common = load_config(HYPEMEFED.folder / "job.yml").given
    theirs = {**common, **resolved({"method": "hypemefed", **HYPEMEFED.keys_of(data, scale)})}
    preset_keys = preset("hypemefed", name).given
    left_out = ("ps_port", "reference_macs", "method", "cohort_size")
    sizes = {key: value for key, value in theirs.items() if key not in left_out and key.partition(".")[0] in
             (key, "hypemefed")}  # fmt: skip
    assert {key: preset_keys.get(key) for key in sizes} == sizes
    assert preset_keys["data_dir"] == f"./data/{data}"


@pytest.mark.parametrize("data", ["cifar10", "cifar10_small", "cifar100_small", "speech", "speech_small"])
def test_the_twins_that_a_fedoras_file_names_fill_its_rounds(data: str) -> None:
    name, small, _ = data.partition("_small")
    config = preset("fedoras", f"{name}_fedoras{small}")
    p = make_params(FedorASParams, config)
    twins, more = (30, 120) if small else (500, 2000)  # as the notes on top of the file say
    assert Plan(p.supernet_rounds, p.finetune_rounds, twins, 4).rounds == config.fedscale.rounds + more


@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "scalefl"])
@pytest.mark.parametrize("data", [*SECTION_5_1, "fashionmnist", "cifar100"])
def test_there_are_as_many_groups_as_sizes(method: str, data: str) -> None:
    settings = preset(method, data).given
    sizes = settings.get(f"{method}.rates", settings.get(f"{method}.exits"))
    assert sizes is None or len(settings.get(f"{method}.groups", sizes)) == len(sizes)
