"""Whole jobs whose participants are chosen by what they brought before."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, chain, result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Task, Update, WorkItem
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.pruning.lotteryfl import LotteryFLAggregator
from fedscale_ext.methods.submodel.fluid import FluidAggregator
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.population.population import Population
from fedscale_ext.server.guided_selection import guided
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.server.privacy import check_options
from fedscale_ext.server.round.stragglers import dropped_bytes, schedule_round
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.util.tensor_files import read_tensors
from server.test_jobs import command, in_process

SMALL = {"model": "cnn_small", "num_participants": 3, "overcommitment": 1.4, "rounds": 5, "eval_interval": 9}
WHOLE = {"pyramidfl_dropout_low": 0.0, "pyramidfl_dropout_high": 0.0}


def run(job_file: Path, **keys: Any) -> tuple[dict[str, Any], Path]:
    summary = fedscale_ext.run(job_file, **{**SMALL, **keys})
    return summary, Path(summary["log_dir"])


def lines(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def known(folder: Path, round: int, what: str = "selection") -> dict[str, np.ndarray]:
    """What the selector knows after a round, or the state of a model, from its checkpoint."""
    tensors, _ = read_tensors(folder / "checkpoints" / f"checkpoint-{round:06d}.safetensors")
    begin = f"tensor.{what}/"
    return {name[len(begin) :]: tensor.numpy() for name, tensor in tensors.items() if name.startswith(begin)}


# ---- whole jobs ----


def test_the_real_command_chooses_as_one_process_does(job_file: Path) -> None:
    keys = {**SMALL, "sample_mode": "pyramidfl", "rounds": 3, "cohort_size": 2}
    here = in_process(job_file, **keys)
    assert_equal(here, command(job_file, "command", **keys, worker_ips="localhost:[2]"))
    assert len({tuple(line["participants"]) for line in here["rounds"]}) > 1


def test_a_resumed_job_chooses_as_an_undisturbed_one(job_file: Path) -> None:
    keys = {"sample_mode": "pyramidfl", "rounds": 5, "pacer_step": 1, "exploration_decay": 0.5, "exploration_min": 0.0}
    _, whole = run(job_file, **keys, job_name="whole")
    run(job_file, **{**keys, "rounds": 3}, job_name="broken")
    _, resumed = run(job_file, **keys, job_name="broken", resume=True)
    one, other = result(whole), result(resumed)
    for rounds in (one["rounds"], other["rounds"]):
        rounds[2].pop("evaluation")  # the shorter job tested its last model
    assert_equal(one, other)
    state, again = known(whole, 5), known(resumed, 5)
    assert len(state) == 5
    assert all(np.array_equal(state[name], again[name], equal_nan=True) for name in state)


@pytest.mark.parametrize("mode", ["oort", "pyramidfl"])
def test_a_round_that_was_resumed_in_its_midst_is_that_of_an_undisturbed_job(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    killed: list[int] = []

    def assign(self: FedAvgAggregator, round: int, participants: np.ndarray) -> list[WorkItem]:
        self.keep_state()
        if round in killed:
            raise KeyboardInterrupt
        return plain(self, round, participants)

    plain = FedAvgAggregator.assign
    monkeypatch.setattr(FedAvgAggregator, "assign", assign)
    keys = {"sample_mode": mode, "rounds": 3, "num_participants": 2, "local_steps": 1, "record_internals": True}
    _, whole = run(job_file, **keys, job_name="whole")
    killed.append(3)
    with pytest.raises(KeyboardInterrupt):
        run(job_file, **keys, job_name="broken")
    killed.clear()
    _, resumed = run(job_file, **keys, job_name="broken", resume=True)
    assert chain(whole) == chain(resumed)
    assert lines(whole, "internals") == lines(resumed, "internals")


def test_oort_knows_what_updates_and_the_clock_tell(job_file: Path) -> None:
    """Every client once: what follows is by utility and speed."""
    keys = {"sample_mode": "oort", "num_participants": 7, "overcommitment": 1.0, "rounds": 1, "record_internals": True}
    _, folder = run(job_file, **keys)
    (line,) = lines(folder)
    state = known(folder, 1)
    assert line["participants"] == [1, 2, 3, 4, 5, 6, 7]
    assert state["durations_s"].tolist() == line["client_durations_s"]
    assert state["taken"].tolist() == state["last"].tolist() == [1] * 7
    samples = np.array([24, 20, 16, 12, 28, 3, 1])
    roots = state["utility"] / np.minimum(samples, 10)  # two steps of five
    assert ((roots > 2) & (roots < 4.2)).all()  # of mean squared losses, ln(62) at first
    assert lines(folder, "internals")[0]["selection"] == {"exploration": 0.9, "round_threshold": 30, "new": 7}


def test_the_utility_of_a_gradient_is_the_norm_of_the_change_of_parameters(job_file: Path) -> None:
    """One participant: its change is the model's."""
    keys = {"sample_mode": "pyramidfl", "num_participants": 1, "overcommitment": 1.0, "model": "nasbench201_base"}
    _, folder = run(job_file, **keys, **WHOLE, rounds=2)
    spec, after = load_model(folder / "models" / "global.safetensors")
    before = known(folder, 1, "pool/global")
    names = models.parameter_names(spec)
    norm = float(sum((after[name].double() - before[name]).square().sum() for name in names)) ** 0.5
    first, second = lines(folder)
    (client,) = second["participants"]
    seen = min([24, 20, 16, 12, 28, 3, 1][client - 1], second["forward_macs"] / models.cost(spec).forward_macs)
    state = known(folder, 2)
    assert state["gradient"][client - 1] == pytest.approx(norm * seen, rel=1e-6)
    assert state["utility"][client - 1] == state["gradient"][client - 1]
    assert np.isnan(state["gradient"]).sum() == 7 - len({*first["participants"], client})


@pytest.mark.parametrize("cohort_size", [1, 3])
def test_dropped_tensors_do_not_move_and_are_no_traffic(job_file: Path, cohort_size: int) -> None:
    keys = {"sample_mode": "pyramidfl", "rounds": 1, "cohort_size": cohort_size, "model": "nasbench201_base"}
    nothing = {"pyramidfl_dropout_low": 1.0, "pyramidfl_dropout_high": 1.0}
    _, folder = run(job_file, **keys, **nothing)
    spec, state = load_model(folder / "models" / "global.safetensors")
    start = models.initial_state(spec, 1)
    parameters = set(models.parameter_names(spec))
    assert all(torch.equal(state[name], start[name]) == (name in parameters) for name in state)
    (line,) = lines(folder)
    assert line["upload_bytes"] == 3 * sum(state[name].nbytes for name in state if name not in parameters)
    assert line["download_bytes"] == 3 * models.cost(spec).bytes


@pytest.mark.parametrize("length", [{"local_steps": 4}, {"local_steps": None, "local_epochs": 1}])
def test_who_would_wait_trains_on_and_the_round_is_no_longer(job_file: Path, length: dict[str, Any]) -> None:
    text = job_file.read_text()
    if length["local_steps"] is None:
        job_file.write_text(text.replace("  - local_steps: 2\n", ""))
    keys = {"sample_mode": "pyramidfl", "rounds": 1, **{key: value for key, value in length.items() if value}, **WHOLE}
    (more,) = lines(run(job_file, **keys, job_name="more")[1])
    (less,) = lines(run(job_file, **keys, job_name="less", pyramidfl_epoch_beta=0.0)[1])
    assert more["participants"] == less["participants"]
    assert more["round_duration_s"] == less["round_duration_s"]
    assert more["training_macs"] > 1.5 * less["training_macs"]
    longer = np.array(more["client_durations_s"]) - less["client_durations_s"]
    assert (longer >= 0).all() and (longer > 0).any()


def test_clients_of_a_trace_are_chosen_while_they_are_online(job_file: Path) -> None:
    trace = job_file.parent / "behave"
    entry = {"finish_time": 10.0, "duration": 5, "model": "phone"}
    days = {n: {**entry, "active": [0.0], "inactive": [5.0 if n in (3, 5) else 9.9]} for n in range(1, 8)}
    trace.write_bytes(pickle.dumps(days))
    _, folder = run(job_file, sample_mode="oort", device_avail_file=str(trace), rounds=9, num_participants=2)
    seen = set()
    for line in lines(folder):
        began = line["virtual_clock_s"] - line["round_duration_s"]
        for client, duration in zip(line["participants"], line["client_durations_s"], strict=True):
            for phase in (began % 10, (began + duration) % 10):
                assert phase <= days[client]["inactive"][0] + 1e-6
            seen.add(client)
    assert len(seen) >= 3


METHODS: list[dict[str, Any]] = [
    {"method": "fedtrans", "model": "nasbench201_base", "fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9},
    {"method": "splitmix"},
    {
        "method": "heterofl",
        "heterofl.levels": "groups",
        "heterofl.rates": [1.0, 0.5],
        "heterofl.groups": [3, 4],
        "control_variates": True,
    },
    {"method": "fluid", **WHOLE},
]


@pytest.mark.parametrize("keys", METHODS, ids=[str(keys["method"]) for keys in METHODS])
def test_methods_of_every_kind_go_with_it(job_file: Path, keys: dict[str, Any]) -> None:
    summary, folder = run(job_file, **{"sample_mode": "pyramidfl", "rounds": 2, "num_participants": 4, **keys})
    assert not summary["clients"]["failed"]
    assert all(len(line["participants"]) == 4 for line in lines(folder))
    assert known(folder, 2)["taken"].sum() >= 8


# ---- without a runtime ----


class Job:
    """What a selector uses of a job: seven devices, each half as fast as the one before."""

    def __init__(self, **keys: Any) -> None:
        self.config = make_config({}, {"sample_mode": "pyramidfl", "num_participants": 4, **keys})
        self.task = Task((1, 28, 28), 10, np.full(7, 50), np.zeros(7), local_steps=4, batch_size=10)
        self.population = Population(50.0 * 2.0 ** np.arange(7), np.full(7, 1e9), None, "test")
        self.pool, self.eligible = ModelPool(), np.ones(7, dtype=bool)
        spec = models.named_spec("cnn_small", (1, 28, 28), 10)
        self.pool.add("global", spec, models.initial_state(spec, 1))
        self.capacity = np.full(7, 1e15)
        self.recorded: dict[str, Any] = {}

    def record(self, name: str, value: Any) -> None:
        self.recorded[name] = value

    def download_bytes(self, item: WorkItem) -> int:
        return self.pool[item.model].cost.bytes

    def upload_bytes(self, item: WorkItem) -> int:
        return self.download_bytes(item) - dropped_bytes(item, self.pool)

    def schedule(self, clients: list[int]) -> Any:
        items = [WorkItem(client, "global") for client in clients]
        return schedule_round(
            items, self.pool, self.population, self.task, clock_s=0.0, collect=4,
            reference_macs=self.config.job.reference_macs,
        )  # fmt: skip


def update(item: WorkItem, utility: float, norm: float) -> Update:
    return Update(item, 50, 40, 4, 1.0, utility, norm)


def test_the_slow_who_did_not_count_are_known_too() -> None:
    job = Job(pyramidfl_utility="loss")
    selector: Any = guided(job)  # type: ignore[arg-type]
    schedule = job.schedule([1, 2, 3, 4, 5, 6])
    assert schedule.late.tolist() == [5, 6]
    assert selector.oort.durations_s[:6].tolist() == pytest.approx([*schedule.durations_s, *schedule.late_s])
    brought = [update(item, 10.0 * item.client, 1.0) for item in schedule.items]
    selector.learn(1, schedule, [*brought[:3], update(schedule.items[2], 50.0, 3.0)])  # client 3 has two models
    assert selector.oort.utility[:6].tolist() == pytest.approx([10, 20, 40, 70 / 3, 70 / 3, 70 / 3])
    assert selector.oort.taken.tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert selector.gradient[:3].tolist() == [40.0, 40.0, 80.0] and np.isnan(selector.gradient[3:]).all()


def test_the_worst_leave_out_most_and_the_fast_train_longest() -> None:
    job = Job(pyramidfl_dropout_low=0.0, pyramidfl_dropout_high=1.0)
    selector: Any = guided(job)  # type: ignore[arg-type]
    first = job.schedule([1, 2, 3, 4])
    selector.learn(1, first, [update(item, 1.0, float(item.client)) for item in first.items])
    refined = selector.refined(2, first, 0.0)
    whole = len(models.parameter_names(job.pool["global"].spec))
    dropped = [len(item.dropped) for item in refined.items]
    assert dropped[3] == 0 and dropped[0] == whole
    steps = [item.overrides.get("local_steps", 4) for item in refined.items]
    assert steps == [25, 16, 8, 4]  # five epochs, as long as the slowest, twice as long as itself, itself
    assert refined.duration_s == first.duration_s  # the slowest leaves out nothing
    assert (refined.durations_s <= refined.duration_s).all()
    again = selector.refined(2, first, 0.0)
    assert [item.dropped for item in again.items] == [item.dropped for item in refined.items]


class _Gone:
    """Nobody is online beyond a time."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s

    def online_at(self, places: np.ndarray, times_s: np.ndarray) -> np.ndarray:
        return times_s <= self.until_s


def test_nobody_trains_on_beyond_its_time_online() -> None:
    job = Job(**WHOLE)
    schedule = job.schedule([1, 2, 3, 4])
    object.__setattr__(job.population, "availability", _Gone(float(schedule.durations_s[1])))
    selector: Any = guided(job)  # type: ignore[arg-type]
    assert not any(item.overrides for item in selector.refined(1, schedule, 0.0).items)


def test_random_needs_no_selector() -> None:
    assert guided(Job(sample_mode="random")) is None  # type: ignore[arg-type]


# ---- what does not go together ----


@pytest.mark.parametrize(
    ("keys", "method", "sentence"),
    [
        (
            {"sample_mode": "pyramidfl"},
            LotteryFLAggregator,
            "sample_mode: pyramidfl needs clients that return the model",
        ),
        ({"sample_mode": "pyramidfl"}, FluidAggregator, "set pyramidfl_dropout_low: 0 and pyramidfl_dropout_high: 0"),
        (
            {"sample_mode": "pyramidfl", "pyramidfl_dropout_low": 0.7},
            FedAvgAggregator,
            "pyramidfl_dropout_low 0.7 is above pyramidfl_dropout_high 0.6",
        ),
        ({"sample_mode": "oort", "pyramidfl_epoch_beta": 1.0}, FedAvgAggregator, "needs sample_mode: pyramidfl"),
        ({"pacer_rule": "flat"}, FedAvgAggregator, "pacer_rule needs sample_mode: oort or pyramidfl"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(keys: dict[str, Any], method: type, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_local_training(make_config({}, keys), method)


@pytest.mark.parametrize("mode", ["oort", "pyramidfl"])
def test_differential_privacy_does_not_shield_the_choice(mode: str) -> None:
    config = make_config({}, {"dp_noise_multiplier": 1.0, "sample_mode": mode})
    with pytest.raises(
        UserError, match=f"sample_mode: {mode} tells of clients' data what dp_noise_multiplier does not"
    ):
        check_options(config, FedAvgAggregator)
