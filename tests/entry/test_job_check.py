"""A check of a job finds what the job itself would end with before its first round, and leaves nothing behind."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedscale_ext.config.job_config import JobConfig, load_config, to_argv, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import ignore_event
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.entry import job_check
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.entry.job_check import DataSets, check_job, check_jobs
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator

ONLINE = ": those online at its beginning and when they finish"
PRIVATE = {"dp_noise_multiplier": 1.0, "dp_delta": 0.01, "bn_statistics": "running"}
SCALED = {"model": "multi_exit_cnn3", "scalefl.widths": [0.5, 0.75, 1.0], "scalefl.exits": [1, 2, 3]}
JOB = {"model": "cnn_small", "rounds": 1, "local_steps": 1}


def job(job_file: Path, **keys: Any) -> JobConfig:
    return with_values(load_config(job_file), **{**JOB, **keys})


def check(config: JobConfig, folder: Path, data_sets: DataSets | None = None) -> job_check.Checked:
    return check_job(config, data_sets or DataSets(), folder, ignore_event)


@pytest.mark.parametrize("method", ["hermes", "tailorfl", "fedmask", "fedskel"])
@pytest.mark.parametrize("data", ["digits", "femnist_small"])
def test_a_preset_that_prunes_by_type_needs_no_further_key(
    method: str, data: str, tiny_femnist: Path, tmp_path: Path
) -> None:
    preset = load_config(f"{method} --on {data}")
    config = with_values(preset, data_dir=tiny_femnist, data_set="femnist", num_participants=4, cohort_size=1)
    notices = " ".join(check(config, tmp_path / "check").notices)
    assert "clients x0.2 (" in notices and " x0.05 (" in notices  # both types have clients that afford them


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"num_participants": 8}, "num_participants 8 is above the 7 clients"),
        ({"min_updates": 5}, "min_updates 5 is above num_participants 4"),
        ({"device_conf_file": "/nowhere"}, "device_conf_file /nowhere is missing"),
        ({"deadline_s": 1e-6}, "deadline_s"),
        ({"method": "fedmd", "fedmd.types": ["cnn_small"], "public_samples": 10_000}, "public_samples is 10000"),
        (
            {"method": "fedmd", "fedmd.types": ["cnn_small", "resnet18"], "fedmd.groups": [3, 3], "public_samples": 4},
            "fedmd.groups is [3, 3], which adds up to 6",
        ),
        ({"method": "fedmd", "public_samples": 4}, "a job of method fedmd lacks fedmd.types"),
        (
            {"method": "fedmd", "fedmd.types": ["cnn_small", "resnet18"], "public_samples": 4, "deadline_s": 0.3},
            "no device affords type resnet18",
        ),
        ({"method": "heterofl", "heterofl.groups": [1, 2, 3, 4, 5]}, "heterofl.groups"),
        ({"model": "multi_exit_cnn3"}, "multi_exit_cnn3 has 3 exits, and clients of fedavg train one"),
        ({"method": "heterofl", "model": "multi_exit_cnn3"}, "clients of heterofl train one"),
        (
            {"method": "fedmd", "fedmd.types": ["cnn_small", "multi_exit_cnn3"], "public_samples": 4},
            "clients of fedmd train one",
        ),
        ({"dp_epsilon": 1.0}, "dp_epsilon needs differential privacy"),
        ({"method": "heterofl", **PRIVATE}, "clients of method heterofl count for their own classes only"),
        ({"method": "heterofl", **PRIVATE, "heterofl.mask": False}, "method heterofl trains parts of models"),
        ({"method": "heterofl", **PRIVATE, "heterofl.mask": False, "heterofl.levels": "dynamic"}, "trains parts"),
        ({"method": "fedrolex", **PRIVATE, "fedrolex.mask": False}, "method fedrolex trains parts of models"),
        ({"method": "fjord", **PRIVATE}, "method fjord trains parts of models"),
        ({"method": "splitmix", **PRIVATE}, "several models per client, for which dp_noise_multiplier is not made"),
        ({"method": "depthfl", **PRIVATE, "depthfl.alpha": 0, "model": "multi_exit_cnn3"}, "depthfl trains parts"),
        ({"method": "scalefl", **PRIVATE, **SCALED}, "method scalefl trains parts of models"),
        ({"initial_weights": "/nowhere.safetensors"}, "/nowhere.safetensors"),
        ({"data_dir": "/nowhere"}, "fedscale dataset"),
        ({"augment": "speech"}, "augment: speech is for features of speech"),
        ({"method": "fedtrans", "fedtrans.betta": 1}, "did you mean 'fedtrans.beta'"),
        ({"method": "fedavg", "fedtrans.betta": 1}, "did you mean 'fedtrans.beta'"),
    ],
)
def test_a_check_refuses_a_job_with_the_sentence_that_would_end_it(
    job_file: Path, tmp_path: Path, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as checked:
        check(job(job_file, **keys), tmp_path / "check")
    with pytest.raises(UserError) as ran:
        run_in_process(job(job_file, **keys))
    assert sentence in str(checked.value)
    assert str(checked.value) == str(ran.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"method": "fedavg"},
        {"method": "fedtrans", "model": "nasbench201_base"},
        {"method": "heterofl", "heterofl.mask": False, "capacity_model": "cnn_small"},
        {"method": "splitmix", "splitmix.r": 1.0},
    ],
)
def test_a_check_passes_a_private_job_whose_clients_train_one_whole_model(
    job_file: Path, tmp_path: Path, keys: dict[str, Any]
) -> None:
    private = job(job_file, **PRIVATE, **keys)
    assert check(private, tmp_path / "check").facts
    assert run_in_process(private)["rounds"] == 1


def test_a_check_tells_what_privacy_a_job_will_have(job_file: Path, tmp_path: Path) -> None:
    config = job(job_file, **PRIVATE, dp_clip_norm=1.0)
    notices = [notice for notice in check(config, tmp_path / "check").notices if "epsilon" in notice]
    summary = run_in_process(config)
    header = json.loads((Path(summary["log_dir"]) / "header.json").read_text())
    assert len(notices) == 1 and notices == [notice for notice in header["notices"] if "epsilon" in notice]


def test_a_learning_rate_that_fedscales_rule_raises_is_told(job_file: Path, tmp_path: Path) -> None:
    notice = "clients train with learning rate 5e-05: learning_rate 1e-06 is below min_learning_rate; lower that too"
    assert notice in check(job(job_file, learning_rate=1e-6), tmp_path / "check").notices
    assert notice in run_in_process(job(job_file, learning_rate=1e-6))["notices"]
    lower = check(job(job_file, learning_rate=1e-6, min_learning_rate=0), tmp_path / "check")
    assert not any("min_learning_rate" in sentence for sentence in lower.notices)
    fednas = {"method": "fednas", "model": "cnn_tiny", "learning_rate": 1e-6}  # its cosine has a minimum of its own
    by_cosine = check(job(job_file, **fednas), tmp_path / "check")
    assert not any("clients train with" in sentence for sentence in by_cosine.notices)
    by_job = check(job(job_file, **fednas, **{"fednas.schedule": "job"}), tmp_path / "check")
    assert notice in by_job.notices


def test_a_job_that_can_start_is_told_with_the_notices_that_it_gives(job_file: Path, tmp_path: Path) -> None:
    config = job(job_file, method="heterofl", filter_less=2)
    checked = check(config, tmp_path / "check")
    assert checked.digest == open_job_data(config).digest
    facts = dict(checked.facts)
    assert facts["data"] == "real: tiny generated, 7 clients, 62 classes, 104 training and 26 test samples"
    assert facts["devices"].startswith("resampled from FedScale's published device marginals; they afford ")
    assert facts["models"].startswith("a (1.26 M MACs), b (394 k MACs)")
    assert facts["participants"] == "4 of 6 clients in each of 1 rounds"
    notices: list[str] = []
    run_in_process(config, lambda event: notices.append(event["message"]) if event["event"] == "notice" else None)
    assert checked.notices and notices[: len(checked.notices)] == checked.notices


def test_keys_that_the_data_or_the_method_leave_unread_are_told(job_file: Path, tmp_path: Path) -> None:
    def notices(**keys: Any) -> list[str]:
        notices = check(job(job_file, **keys), tmp_path / "check").notices
        return [notice for notice in notices if "does nothing" in notice]

    seed = "data_seed does nothing: the data have a test.csv, and public_samples is 0"
    assert notices(data_seed=3) == [seed]
    assert notices(data_seed=3, public_samples=4) == []
    statistics = "bn_statistics_clients does nothing: fedavg is tested with the running statistics of training"
    assert notices(bn_statistics_clients=9) == [statistics]
    cells = {"model": "nasbench201_base", "bn_statistics_clients": 9}  # which have BatchNorm
    assert notices(**cells, bn_statistics="federated") == []
    assert notices(**cells, method="heterofl") == []
    without = "bn_statistics_clients does nothing: no model of this job has BatchNorm"
    assert notices(bn_statistics_clients=9, method="heterofl") == [without]


def test_a_test_split_beside_a_test_csv_does_nothing(job_file: Path, tmp_path: Path) -> None:
    note = "test_split does nothing: the data have a test.csv"
    assert note in check(job(job_file, test_split=0.5), tmp_path / "check").notices
    assert note not in check(job(job_file), tmp_path / "check").notices
    folder = Path(shutil.copytree(load_config(job_file).fedscale.data_dir, tmp_path / "data"))
    (folder / "client_data_mapping" / "test.csv").unlink()
    assert note not in check(job(job_file, test_split=0.5, data_dir=str(folder)), tmp_path / "check").notices


def online_only(path: Path, clients: set[int]) -> str:
    """A trace in which of the seven clients these are always online, and the others never."""
    device = {"finish_time": 1000, "duration": 5, "model": "phone"}
    days = {n: {**device, "active": [0] if n in clients else [], "inactive": [999] if n in clients else []}
            for n in range(1, 8)}  # fmt: skip
    path.write_bytes(pickle.dumps(days))
    return str(path)


def test_clients_that_are_never_online_are_counted(job_file: Path, tmp_path: Path) -> None:
    trace = online_only(tmp_path / "behave", {1, 2, 3, 7})
    config = job(job_file, device_avail_file=trace, filter_less=2)  # client 7 is online and has one sample
    checked = check(config, tmp_path / "check")
    assert dict(checked.facts)["participants"] == (
        f"up to 3 of 6 clients (3 of these are never online) in each of 1 rounds{ONLINE}"
    )
    note = "3 of 7 clients are never online and never train"
    assert note in checked.notices
    summary = run_in_process(config)
    assert note in summary["notices"]
    header = json.loads((job_file.parent / "logs" / "tiny" / "logs" / "header.json").read_text())
    assert note in header["notices"]


def test_clients_that_may_be_offline_make_the_number_an_upper_bound(job_file: Path, tmp_path: Path) -> None:
    checked = check(job(job_file, device_avail_file=online_only(tmp_path / "behave", set(range(1, 8)))), tmp_path / "c")
    assert dict(checked.facts)["participants"] == f"up to 4 of 7 clients in each of 1 rounds{ONLINE}"
    assert not any("never online" in notice for notice in checked.notices)


@pytest.mark.parametrize("clients", [set(), {7}])
def test_a_check_refuses_a_job_whose_clients_are_never_online(
    job_file: Path, tmp_path: Path, clients: set[int]
) -> None:
    config = job(job_file, device_avail_file=online_only(tmp_path / "behave", clients), filter_less=2)
    with pytest.raises(UserError) as checked:
        check(config, tmp_path / "check")
    with pytest.raises(UserError) as ran:
        run_in_process(config)
    assert str(checked.value) == str(ran.value)
    assert str(checked.value).startswith("no client that may train is ever online: check device_avail_file")


def test_a_check_leaves_no_log_folder_and_opens_equal_data_once(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    plain = job_check.open_job_data

    def counted(config: JobConfig, progress: Callable[[int, int], None]) -> Any:
        opened.append(config.job.data_seed)
        return plain(config, progress)

    monkeypatch.setattr(job_check, "open_job_data", counted)
    data_sets = DataSets()
    for data_seed, seed in ((1, 1), (2, 1), (1, 2), (2, 2)):
        check(job(job_file, data_seed=data_seed, seed=seed), tmp_path / "check", data_sets)
    assert opened == [1, 2]
    assert not (job_file.parent / "logs").exists()


def test_samples_that_are_decoded_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[dict[str, Any]] = []
    clock = iter([0.0, 0.1, 0.3, 0.4, 0.6])
    monkeypatch.setattr(job_check.time, "monotonic", lambda: next(clock))
    progress = job_check._Progress(events.append)
    for done, total in ((256, 1024), (512, 1024), (768, 1024), (1024, 0)):
        progress(done, total)
    assert [event["what"] for event in events] == ["512 of 1,024 samples decoded", "1,024 samples decoded"]


def test_all_jobs_are_checked_whatever_one_of_them_raises(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = FedAvgAggregator.init_state

    def broken(self: FedAvgAggregator, population: Any, task: Any) -> None:
        if self.seed == 2:
            raise KeyError("what")
        plain(self, population, task)

    monkeypatch.setattr(FedAvgAggregator, "init_state", broken)
    monkeypatch.setenv("FEDSCALE_EXT_EVENTS", "1")
    jobs = {"broken": {"seed": 2}, "refused": {"num_participants": 9}, "fine": {}, "later": {"data_dir": "/later"}}
    check_jobs(
        [{"job": name, "argv": to_argv(job(job_file, **keys)), "data": name != "later"} for name, keys in jobs.items()]
    )
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = {event["job"]: event for event in events if event["event"] in ("checked", "refused")}
    assert list(ends) == list(jobs)
    assert ends["broken"]["message"] == "KeyError: 'what'"
    assert ends["refused"]["message"].startswith("num_participants 9 is above")
    assert ends["fine"]["event"] == "checked" and ends["fine"]["facts"]
    assert ends["later"] == {"event": "checked", "job": "later", "facts": [], "notices": [], "digest": None}


def test_data_are_compared_with_those_of_the_run_that_is_resumed(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = job(job_file)
    digest = open_job_data(config).digest
    orders = {
        "same": {"digest": digest, "prepare": False},
        "other": {"digest": "0" * 64, "prepare": False},
        "goes on": {"digest": digest, "prepare": True},
        "goes on otherwise": {"digest": "0" * 64, "prepare": True},
    }
    monkeypatch.setenv("FEDSCALE_EXT_EVENTS", "1")
    check_jobs([{"job": name, "argv": to_argv(config), "data": True, **order} for name, order in orders.items()])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = {event["job"]: event for event in events if event["event"] in ("checked", "refused")}
    data_dir = config.fedscale.data_dir
    refusal = f"data_dir {data_dir} holds other samples or clients than when the job ran: put these back"
    assert ends["same"]["facts"] == [] and ends["goes on"]["facts"]
    for name in ("other", "goes on otherwise"):
        assert ends[name]["event"] == "refused" and ends[name]["message"].startswith(refusal)


def test_devices_in_another_unit_are_reported_by_a_check_and_by_the_job(job_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "boards.csv"
    path.write_text("client_id,computation,communication\n" + "".join(f"{n},0.0{n}5,6000\n" for n in range(1, 8)))
    config = job(job_file, device_conf_file=str(path))
    notices = [each for each in check(config, tmp_path / "check").notices if each.startswith("device_conf_file")]
    assert len(notices) == 1 and "ms per sample" in notices[0]
    assert notices[0] in run_in_process(config)["notices"]


def test_one_client_is_not_counted_in_the_plural(job_file: Path, tmp_path: Path) -> None:
    trace = online_only(tmp_path / "behave", set(range(1, 7)))
    notices = check(job(job_file, device_avail_file=trace, filter_less=2), tmp_path / "check").notices
    assert "1 of 7 clients is never online and never trains" in notices
    assert "1 of 7 clients has fewer than filter_less=2 training samples and never trains" in notices
