"""The shipped configurations: what their table makes, the paper's numbers, and nothing that does not exist."""

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evals.fedtrans.settings import PAPER as FEDTRANS
from evals.hypemefed.settings import PAPER as HYPEMEFED
from evals.moss.arms import BASELINES as SYSTEMS
from evals.moss.settings import PAPER as MOSS
from evals.paper.job_keys import resolved
from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig, load_config, shipped_configs
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.data.registry import known
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.stages import Plan

FOLDER = Path(__file__).resolve().parents[1] / "benchmark_configs"
METHODS = ("fedtrans", "heterofl", "splitmix", "fluid", "fedavg", "fedprox", "fedyogi")
DATA = ("femnist", "cifar10", "speech", "openimage")
# Table 7: participants per round, rounds, delta
TABLE7 = {"cifar10": (10, 1000, 20), "femnist": (100, 2000, 30), "speech": (100, 1500, 100),
          "openimage": (100, 2000, 50)}  # fmt: skip
OF_MOSS = ("fedmd", "feddf", "dsfl", "fedgems", "fedet")
GRID = [(method, data) for method in METHODS for data in DATA]


def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_configs", FOLDER / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))  # as for a script, whose folder comes first
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def cost(config: JobConfig, model: str) -> float:
    data = known(config.fedscale.data_set)
    assert data is not None
    shape = config.job.sample_shape or data.shape
    return models.cost(models.named_spec(model, shape, data.classes)).forward_macs


def test_the_files_are_those_of_the_table() -> None:
    module = make()
    committed = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yml")}
    committed.pop("quickstart")
    assert committed == module.files()
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == module.readme(module.files())


@pytest.mark.parametrize("data", ["cifar10", "cifar10_small", "cifar100_small", "speech", "speech_small"])
def test_the_twins_that_a_fedoras_file_names_fill_its_rounds(data: str) -> None:
    path = FOLDER / f"fedoras_{data}.yml"
    (line,) = [line for line in path.read_text(encoding="utf-8").splitlines() if "twin_rounds=" in line]
    config = load_config(path, [part.strip() for part in line.split("--set")[1:]])
    p = make_params(FedorASParams, config)
    assert Plan(p.supernet_rounds, p.finetune_rounds, p.twin_rounds, 4).rounds == config.fedscale.rounds
    assert p.twin_rounds == (30 if data.endswith("small") else 500)


def test_each_method_has_a_file_of_each_size_on_each_data_set() -> None:
    assert {f"{method}_{data}{size}" for method, data in GRID for size in ("", "_small")} <= set(shipped_configs())


@pytest.mark.parametrize("name", shipped_configs())
def test_what_a_file_names_exists(name: str) -> None:
    config = load_config(name)
    assert config.fedscale.job_name == name
    assert all(path.is_file() for path in config.entry_paths())
    make_params(method_class(config.job.method).Params, config)  # UserError where a key of its own is none
    assert all(key.partition(".")[0] == config.job.method for key in config.params)
    assert cost(config, config.fedscale.model) > 0
    if config.job.capacity_model is not None:
        assert cost(config, config.job.capacity_model) <= cost(config, config.fedscale.model)
    first = (FOLDER / f"{name}.yml").read_text(encoding="utf-8").split("\n\n")[0]
    assert f"fedscale driver start {name}\n" in f"{first}\n" or name == "quickstart"


@pytest.mark.parametrize(("method", "data"), GRID)
def test_table_7(method: str, data: str) -> None:
    config = load_config(f"{method}_{data}")
    fedscale = config.fedscale
    assert (fedscale.num_participants, fedscale.rounds) == TABLE7[data][:2]
    assert (fedscale.local_steps, fedscale.batch_size, fedscale.learning_rate) == (20, 10, 0.05)
    assert (fedscale.decay_factor, fedscale.decay_round) == (0.98, 10)
    assert (fedscale.overcommitment, fedscale.filter_less) == (1.0, 0)
    if method == "fedtrans":
        own = {"alpha": 0.9, "beta": 0.003, "gamma": 10, "delta": TABLE7[data][2], "T": 5, "eta": 0.98}
        assert config.method_params() == own


@pytest.mark.parametrize("data", DATA)
def test_first_models_and_data_sets_are_the_papers(data: str) -> None:
    fedscale = load_config(f"fedtrans_{data}").fedscale
    assert (fedscale.data_set, fedscale.model) == {
        "femnist": ("femnist", "nasbench201_base"),
        "cifar10": ("cifar10", "mobilenetv3_small"),
        "speech": ("google_speech", "resnet18_speech"),
        "openimage": ("openImg", "resnet18_openimage"),
    }[data]


@pytest.mark.parametrize("size", ["", "_small"])
@pytest.mark.parametrize(("method", "data"), GRID)
def test_a_baseline_has_fedtranss_data_schedule_and_devices(method: str, data: str, size: str) -> None:
    mine, fedtrans = (dict(load_config(f"{name}_{data}{size}").given) for name in (method, "fedtrans"))
    base = fedtrans["model"]
    assert mine.pop("capacity_model", mine["model"]) == base
    config = load_config(f"{method}_{data}{size}")
    if method in ("heterofl", "splitmix", "fluid"):
        assert 3.5 < cost(config, mine["model"]) / cost(config, base) < 8.5
    own = [key for key in fedtrans if "." not in key and key not in ("job_name", "method", "model")]
    assert {key: mine[key] for key in own} == {key: fedtrans[key] for key in own}


def test_baselines_have_their_own_values() -> None:
    heterofl, splitmix, fluid = (
        make_params(method_class(method).Params, load_config(f"{method}_cifar10"))
        for method in ("heterofl", "splitmix", "fluid")
    )
    assert heterofl.rates == (1.0, 0.5, 0.25, 0.125, 0.0625) and heterofl.clip_norm == 1.0
    assert heterofl.scaler and heterofl.mask and heterofl.dense
    assert splitmix.bases == 8 and splitmix.rescale_init and splitmix.dense
    assert fluid.p == (0.95, 0.85, 0.75, 0.65, 0.5) and (fluid.vote, fluid.increment, fluid.every) == (0.75, 0.2, 2)
    yogi = load_config("fedyogi_cifar10").fedscale
    assert (yogi.yogi_eta, yogi.yogi_tau, yogi.yogi_beta, yogi.yogi_beta2) == (0.003, 1e-8, 0.9, 0.99)
    assert load_config("fedprox_cifar10").fedscale.proxy_mu == 0.1


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(("size", "scale"), [("", "paper"), ("_small", "small")])
def test_sizes_are_those_of_the_evaluations(data: str, size: str, scale: str) -> None:
    theirs = FEDTRANS.keys_of({"cifar10": "cifar10_full", "speech": "speech_full"}.get(data, data), scale)
    left = ("model", "data_set", "cohort_size")  # the last is how they round
    own = {key: value for key, value in theirs.items() if key not in left}
    sizes = {key: value for key, value in own.items() if key.partition(".")[0] in (key, "fedtrans")}
    given = load_config(f"fedtrans_{data}{size}").given
    assert {key: given[key] for key in sizes} == sizes


@pytest.mark.parametrize(("data", "types", "devices", "public"), [
    ("cifar10", ("resnet18", "mobilenetv2", "lenet_80k"), 300, 100),
    ("speech", ("resnet18", "mobilenetv2", "lenet_6k"), 300, 200),
    ("har", ("resnet18", "mobilenetv2", "lenet_6k"), 30, 50),
])  # fmt: skip
def test_moss_has_the_papers_applications(data: str, types: tuple[str, ...], devices: int, public: int) -> None:
    config = load_config(f"moss_{data}")
    params, fedscale = make_params(method_class("moss").Params, config), config.fedscale
    assert params.types == types and params.groups == (devices // 3,) * 3
    assert fedscale.model == types[0] and fedscale.num_participants == devices
    assert (config.job.public_samples, config.job.local_epochs, params.epochs) == (public, 5, 5)
    assert (fedscale.rounds, fedscale.batch_size, fedscale.learning_rate) == (50, 32, 0.001)
    assert (params.lr, params.batch_size, params.wire, params.meta_update) == (1e-3, 32, "loc+ce", "bilevel")


@pytest.mark.parametrize("data", ["cifar10", "speech", "har", "cifar10_small", "speech_small", "har_small"])
@pytest.mark.parametrize("method", OF_MOSS)
def test_distillation_has_mosss_data_types_and_training(method: str, data: str) -> None:
    mine, moss = (dict(load_config(f"{name}_{data}").given) for name in (method, "moss"))
    shared = [key for key in moss if "." not in key and key not in ("job_name", "method")]
    assert {key: mine[key] for key in shared} == {key: moss[key] for key in shared}
    assert all(mine[f"{method}.{key}"] == moss[f"moss.{key}"] for key in ("types", "groups"))


PRUNED = ("hermes", "tailorfl", "fedmask", "lotteryfl", "fedskel", "heterofl", "fjord")
MOSS_DATA = {"cifar10_small": "cifar10_30-h0.1", "speech_small": "speech12_30-h0.1", "har_small": "har_local",
             "cifar10": "cifar10_full-h0.1", "speech": "speech12_full-h0.1"}  # fmt: skip


@pytest.mark.parametrize("data", [*MOSS_DATA, "har"])
def test_each_of_mosss_types_is_smaller_than_the_one_before(data: str) -> None:
    config = load_config(f"moss_{data}")
    kind = known(config.fedscale.data_set)
    assert kind is not None
    shape = config.job.sample_shape or kind.shape
    costs = [models.cost(models.named_spec(name, shape, kind.classes)) for name in config.given["moss.types"]]
    for larger, smaller in pairwise(costs):
        assert larger.forward_macs > 1.1 * smaller.forward_macs and larger.parameters > 1.1 * smaller.parameters


RECORDED = "moss.same_arch_transfer"  # recorded results copy the largest type; the shipped files have the default


@pytest.mark.parametrize("data", MOSS_DATA)
@pytest.mark.parametrize("method", ["moss", *OF_MOSS, *PRUNED])
def test_mosss_sizes_are_those_of_the_evaluation(method: str, data: str) -> None:
    label = next((label for label, keys in SYSTEMS.items() if keys["method"] == method), None)
    arm = {"method": "moss"} if label is None else dict(SYSTEMS[label])
    scale = "small" if "small" in data else "paper"
    common = load_config(MOSS.folder / "job.yml").given
    theirs = {**common, **resolved({**MOSS.keys_of(MOSS_DATA[data], scale), **arm})}
    config = load_config(f"{method}_moss_{data}" if method in PRUNED else f"{method}_{data}")
    # how it rounds, the ports, what the tables ask for beside, and at the paper's scale how fast devices are
    left_out = ["ps_port", "cohort_size", "test_on_all", "personalise_epochs", "test_around_training"]
    if scale == "paper":
        left_out += ["reference_macs", "capacity_model"]
    wanted = {key: value for key, value in theirs.items() if key not in left_out and "." not in key}
    assert {key: str(config.given.get(key)) for key in wanted} == {key: str(value) for key, value in wanted.items()}
    made = make_params(method_class(method).Params, config)
    for key, value in theirs.items():
        owner, _, name = key.partition(".")
        if owner == method and name and key != RECORDED:
            assert str(list_of(getattr(made, name))) == str(list_of(value)), key


def list_of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


# section 5.1: clients by level, participants, batch, learning rate, channels of the VGG's blocks
SECTION_5_1 = {
    "svhn": ((17, 17, 16), 10, 128, 5e-4, (32, 64, 128, 256)),
    "stl10": ((17, 17, 16), 10, 32, 5e-4, (64, 128, 256, 512)),
    "unimib": ((10, 10, 10), 6, 16, 5e-3, (64, 128, 256, 512)),
}


@pytest.mark.parametrize("data", SECTION_5_1)
def test_hypemefed_has_the_papers_values(data: str) -> None:
    groups, participants, batch, lr, widths = SECTION_5_1[data]
    config = load_config(f"hypemefed_{data}")
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


@pytest.mark.parametrize("data", [*SECTION_5_1, "har_small", "fashionmnist_small"])
def test_hypemefeds_baselines_have_its_data_schedule_and_devices(data: str) -> None:
    wanted = dict(load_config(f"hypemefed_{data}").given)
    groups = wanted.pop("hypemefed.groups")
    names = [
        name
        for name in shipped_configs()
        if name.endswith(f"_{data}") and "moss" not in name and name.split("_")[0] not in ("hypemefed", *OF_MOSS)
    ]
    assert {f"{one}_{data}" for one in ("fedavg_l", "fedavg_s", "heterofl", "fedrolex")} <= set(names)
    for name in names:
        given = dict(load_config(name).given)
        assert given.get("capacity_model", given["model"]) == wanted["capacity_model"]
        assert given.get(f"{given['method']}.groups", groups) == groups
        same = [key for key in wanted if key not in ("job_name", "method", "model", "capacity_model")]
        assert {key: given[key] for key in same} == {key: wanted[key] for key in same}
        forms = {"fedavg_l": "single", "fedavg_s": "first", "heterofl": "single", "fedrolex": "single"}
        form = next((form for start, form in forms.items() if name.startswith(start)), given["model"].split("_")[0])
        assert given["model"] == wanted["model"].replace("multi", form)


@pytest.mark.parametrize(("file", "data", "scale"), [
    ("har_small", "har_local", "small"), ("fashionmnist_small", "fashion-h0.5", "small"),
    ("cifar100_small", "cifar100_small-h0.5", "small"), ("svhn", "svhn-h0.5", "paper"),
    ("stl10", "stl10-h0.5", "paper"), ("unimib", "unimib-h0.5", "paper"),
])  # fmt: skip
def test_hypemefeds_sizes_are_those_of_the_evaluations(file: str, data: str, scale: str) -> None:
    common = load_config(HYPEMEFED.folder / "job.yml").given
    theirs = {**common, **resolved({"method": "hypemefed", **HYPEMEFED.keys_of(data, scale)})}
    given = load_config(f"hypemefed_{file}").given
    left_out = ("ps_port", "reference_macs", "method", "cohort_size")
    sizes = {key: value for key, value in theirs.items() if key not in left_out and key.partition(".")[0] in
             (key, "hypemefed")}  # fmt: skip
    assert {key: given.get(key) for key in sizes} == sizes
    assert given["data_dir"] == f"./data/{data}"
