"""Jobs that end early and are continued: from which checkpoint, with what notices, and after a full disk."""

import errno
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, chain, result
from tiny_job import tiny_data, write_job_file

import fedscale_ext
from fedscale_ext.config.changed_settings import completed
from fedscale_ext.config.job_config import JobConfig, load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.executor import executor
from fedscale_ext.methods.averaging.fedyogi import FedYogiAggregator
from fedscale_ext.metrics.job_folder import json_lines, recorder
from fedscale_ext.models.files import configured_spec
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.server import grpc_server, records
from fedscale_ext.server.checkpoints import checkpoint_file
from fedscale_ext.server.method_base import method_tools
from fedscale_ext.tasks import tested_tensors
from fedscale_ext.util import atomic_files
from fedscale_ext.util.code_digest import code_digest

JOB = {"method": "fedyogi", "rounds": 5, "eval_interval": 3, "model": "cnn_small", "local_steps": 1}


def run(job_file: Path, name: str = "job", **keys: Any) -> list[str]:
    """Run a job to its end; the notices that it gave."""
    said: list[str] = []
    config = with_values(load_config(job_file), **{**JOB, "job_name": name, **keys})
    run_in_process(config, lambda event: said.append(event["message"]) if event["event"] == "notice" else None)
    return said


def log_dir(job_file: Path, name: str = "job") -> Path:
    return job_file.parent / "logs" / name / "logs"


def checkpoints(job_file: Path) -> list[int]:
    return [int(path.stem[-6:]) for path in sorted(log_dir(job_file).glob("checkpoints/*"))]


_UNDISTURBED: dict[str, Any] = {}  # run once: it depends on no folder


@pytest.fixture
def undisturbed(job_file: Path) -> dict[str, Any]:
    if not _UNDISTURBED:
        run(job_file, "undisturbed")
        folder = log_dir(job_file, "undisturbed")
        _UNDISTURBED.update({**result(folder), "chain": chain(folder)})
    return _UNDISTURBED


def test_the_last_checkpoints_are_kept_and_an_earlier_one_can_be_taken(
    job_file: Path, undisturbed: dict[str, Any]
) -> None:
    run(job_file)
    assert checkpoints(job_file) == [3, 4, 5]
    newest = log_dir(job_file) / "checkpoints" / "checkpoint-000005.safetensors"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    with pytest.raises(UserError, match=r"000005.safetensors is damaged.*--resume-from 4 continues the job from"):
        run(job_file, resume=True)
    said = run(job_file, resume_from=3)
    assert "resumed after round 3" in said
    assert_equal(result(log_dir(job_file)), undisturbed)
    assert checkpoints(job_file) == [3, 4, 5]
    summary = json.loads((log_dir(job_file) / "summary.json").read_text())
    assert summary["resumed"] == [{"after_round": 3, "code_changed": False}]


def test_a_round_is_announced_when_its_checkpoint_is_there(job_file: Path) -> None:
    """A driver that heard of a round, and is stopped then, resumes the job from it."""
    written: dict[int, list[int]] = {}

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            written[event["round"]] = checkpoints(job_file)

    keys = {**JOB, "rounds": 3, "job_name": "job", "checkpoint_interval": 2}
    run_in_process(with_values(load_config(job_file), **keys), note)
    assert written == {1: [], 2: [2], 3: [2, 3]}


def test_a_finished_job_that_goes_on_and_is_stopped_has_not_finished(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures are those of the rounds so far, not those of its earlier end."""
    run(job_file, rounds=2)
    assert load_job(log_dir(job_file)).finished
    of_the_end = [log_dir(job_file) / name for name in ("summary.md", "plot.png", "models")]
    assert all(path.exists() for path in of_the_end)
    gone = [log_dir(job_file) / name for name in ("growth.png", tested_tensors.FILE)]
    for path in gone:
        path.touch()  # as of a method with births, and of one with prototypes
    evolve = FedYogiAggregator.evolve

    def interrupted(self: FedYogiAggregator, round: int) -> None:
        if round == 5:
            raise KeyboardInterrupt
        evolve(self, round)

    monkeypatch.setattr(FedYogiAggregator, "evolve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(job_file, rounds=9, resume=True)
    job = load_job(log_dir(job_file))
    assert not job.finished and job.state == "round 4 of 9, tested after round 3"
    assert not any(path.exists() for path in [*of_the_end, *gone])
    assert job.summary["rounds"] == 4 and job.summary["accuracy"]["round"] == 3
    monkeypatch.setattr(FedYogiAggregator, "evolve", evolve)
    run(job_file, rounds=9, resume=True)
    assert load_job(log_dir(job_file)).finished and all(path.exists() for path in of_the_end)


def test_a_job_that_its_method_has_ended_trains_no_further(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is killed while its results are written, and started again."""
    monkeypatch.setattr(FedYogiAggregator, "finished", lambda self, round: "it is done" if round >= 2 else None)
    run(job_file, rounds=5)
    run(job_file, rounds=5, resume=True)
    assert load_job(log_dir(job_file)).summary["rounds"] == 2


def test_the_count_of_untrained_clients_is_that_of_the_end(job_file: Path) -> None:
    keys = {"method": "local", "eval_interval": 1, "num_participants": 1}
    untrained = "of 6 tested clients never trained"
    run(job_file, rounds=1, **keys)
    before = json.loads((log_dir(job_file) / "summary.json").read_text())["notices"]
    run(job_file, rounds=4, resume=True, **keys)
    job = load_job(log_dir(job_file))
    trained = {client for record in job.records for client in record.participants}
    tested = [client for client, count in enumerate(job.evaluation.count, 1) if count]
    (first,), (second,) = ([each for each in notices if untrained in each] for notices in (before, job.notices))
    assert first.startswith("5 ") and second.startswith(f"{len(set(tested) - trained)} ")


def test_a_checkpoint_is_not_continued_with_lines_that_changed(job_file: Path) -> None:
    run(job_file)
    path = log_dir(job_file) / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"round":1,', b'"round":1, ', 1))
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged: its sha256 differs from what it was when"):
        run(job_file, resume=True, rounds=6)


def test_a_job_is_not_continued_with_fewer_rounds_than_it_has(job_file: Path) -> None:
    run(job_file, rounds=2)
    with pytest.raises(UserError, match="the checkpoint of round 2 is beyond the 1 rounds that are asked for; raise"):
        run(job_file, resume=True, rounds=1)


@pytest.mark.parametrize("release", ["this", "earlier"])
def test_a_job_whose_rounds_are_lowered_to_those_it_has_ends_as_an_undisturbed_one(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    """Its last round was not tested as such: it is trained again."""
    keys = {"personalise_epochs": 1, "test_on_all": True, "rounds": 4}
    run(job_file, "undisturbed", **keys)
    expected = result(log_dir(job_file, "undisturbed"))
    save = checkpoint_file.save

    def earlier_save(folder: Path, round: int, tensors: Any, data: dict[str, Any], *rest: Any) -> Path:
        return save(folder, round, tensors, _without(data, "last"), *rest)

    with monkeypatch.context() as patched:
        if release == "earlier":  # which did not write whether a round was tested as the last one
            patched.setattr(checkpoint_file, "save", earlier_save)
        run(job_file, **{**keys, "rounds": 5})
    said = run(job_file, **keys, resume_from=4)
    assert any("the checkpoint of round 4 is not that of a job's end" in each for each in said)
    assert "resumed after round 3" in said
    assert_equal(result(log_dir(job_file)), expected)
    assert chain(log_dir(job_file)) == chain(log_dir(job_file, "undisturbed"))
    summaries = [json.loads((log_dir(job_file, name) / "summary.json").read_text()) for name in ("job", "undisturbed")]
    for name in ("accuracy", "by_class", "personalised", "on_all", "rounds", "stopped"):
        assert summaries[0][name] == summaries[1][name]
    assert "resumed after round 4" in run(job_file, **keys, resume=True)  # it was tested as the last one now


def test_lowered_rounds_without_a_checkpoint_before_them_are_refused(job_file: Path) -> None:
    run(job_file, rounds=5, checkpoint_interval=4)
    before = (log_dir(job_file) / "metrics.jsonl").read_bytes()
    with pytest.raises(
        UserError, match=r"round 4 is not that of a job's end, .* holds none before it: raise rounds above"
    ):
        run(job_file, rounds=4, checkpoint_interval=4, resume_from=4)
    assert (log_dir(job_file) / "metrics.jsonl").read_bytes() == before and checkpoints(job_file) == [4, 5]


def test_what_was_written_after_the_checkpoint_is_cut(job_file: Path, undisturbed: dict[str, Any]) -> None:
    run(job_file, checkpoint_interval=2, rounds=5)  # the last round is one more
    last = log_dir(job_file) / "checkpoints" / "checkpoint-000005.safetensors"
    last.unlink()  # as if the job had been killed before it was there
    assert "resumed after round 4" in run(job_file, resume=True)
    assert_equal(result(log_dir(job_file)), undisturbed)
    assert chain(log_dir(job_file)) == undisturbed["chain"]


@pytest.mark.parametrize("step", ["drop_end", "drop_states", "cut", "read_records", "drop_evaluations"])
def test_a_job_that_is_killed_while_it_goes_back_can_go_on(
    job_file: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run(job_file)
    module = records if step in ("drop_end", "drop_states") else recorder
    original = getattr(module, step)
    with monkeypatch.context() as killed:

        def end(*arguments: Any) -> Any:
            if step == "read_records" and arguments[1] != -1:  # the check, before the job goes back
                return original(*arguments)
            raise KeyboardInterrupt

        killed.setattr(module, step, end)
        with pytest.raises(KeyboardInterrupt):
            run(job_file, resume_from=3)
    assert "resumed after round 3" in run(job_file, resume=True)
    assert_equal(result(log_dir(job_file)), undisturbed)


@pytest.mark.parametrize("file", ["metrics.jsonl", "internals.jsonl", "evaluations/round-000003.safetensors"])
def test_a_job_that_cannot_go_back_keeps_its_later_checkpoints(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(FedYogiAggregator, "evolve", lambda self, round: self.record("round", round))
    run(job_file, record_internals=True)
    path = log_dir(job_file) / file
    if path.suffix == ".jsonl":
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()
    before = {each: each.read_bytes() for name in ("*.json*", "evaluations/*") for each in log_dir(job_file).glob(name)}
    with pytest.raises(UserError, match=f"{path} is (damaged: its sha256 differs|missing)"):
        run(job_file, record_internals=True, resume_from=3)
    assert checkpoints(job_file) == [3, 4, 5]
    assert {each: each.read_bytes() for each in before} == before


def test_lines_after_the_checkpoint_may_be_damaged(job_file: Path, undisturbed: dict[str, Any]) -> None:
    run(job_file)
    path = log_dir(job_file) / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9] + b"\n")
    run(job_file, resume_from=3)
    assert_equal(result(log_dir(job_file)), undisturbed)


def test_changed_code_is_told(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(job_file, rounds=1)
    for module in (method_tools, grpc_server, executor):
        monkeypatch.setattr(module, "code_digest", lambda method: "another")
    said = run(job_file, rounds=2, resume=True)
    assert any("torch or NumPy has changed since the checkpoint was written" in notice for notice in said)
    assert "; by then the code had changed" in (log_dir(job_file) / "summary.md").read_text()


def test_the_code_digest_covers_a_method_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "elsewhere.py"
    source.write_text("class Method:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import elsewhere  # type: ignore[import-not-found]

    before = code_digest(elsewhere.Method)
    assert before == code_digest(elsewhere.Method) != code_digest(object)
    source.write_text("class Method:\n    pass  # changed\n")
    assert code_digest(elsewhere.Method) == before  # that which this process still runs
    importlib.reload(elsewhere)
    assert code_digest(elsewhere.Method) != before


def test_a_job_of_a_release_without_data_seed_keeps_its_samples(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = JobConfig.decisive
    with monkeypatch.context() as earlier:  # whose seed decided whose samples are whose
        earlier.setattr(JobConfig, "decisive", lambda config: _without(settings(config), "data_seed"))
        run(job_file, rounds=1, seed=2, data_seed=2)
    with pytest.raises(UserError, match="another configuration: data_seed was 2 and is 1; resume with the config"):
        run(job_file, rounds=2, seed=2, resume=True)
    assert "resumed after round 1" in run(job_file, rounds=2, seed=2, data_seed=2, resume=True)


def test_settings_that_earlier_releases_had_not_are_what_these_did() -> None:
    old = {"seed": 3, "device_conf_file": "resampled", "device_avail_file": None}
    assert (completed(old)["data_seed"], completed(old)["device_match"]) == (3, "auto")
    for file in ("device_conf_file", "device_avail_file"):
        assert completed({**old, file: "trace.csv"})["device_match"] == "order"
    assert completed({**old, "data_seed": 1})["data_seed"] == 1


def _without(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def test_a_checkpoint_is_not_continued_on_other_samples(tmp_path: Path) -> None:
    job_file = write_job_file(tiny_data(tmp_path), tmp_path)
    run(job_file, rounds=1)
    csv = tmp_path / "tiny" / "client_data_mapping" / "train.csv"
    csv.write_text("".join(csv.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="tiny holds other samples or clients than when the checkpoint of round 1 was"):
        run(job_file, rounds=2, resume=True)


def test_a_checkpoint_is_not_continued_with_other_devices_or_another_model_in_the_same_files(tmp_path: Path) -> None:
    job_file = write_job_file(tiny_data(tmp_path), tmp_path)
    boards, model = tmp_path / "boards.csv", tmp_path / "m.json"
    boards.write_text("client_id,computation,communication\n" + "".join(f"{n},10,9000\n" for n in range(1, 8)))
    model.write_text(json.dumps(configured_spec("cnn_small", (1, 28, 28), 62).to_json()))
    keys = {"device_conf_file": str(boards), "model": str(model), "method": "fedavg"}
    run(job_file, rounds=1, **keys)
    for key, path, other in (
        ("device_conf_file", boards, boards.read_text().replace("2,10,", "2,99,")),
        ("model", model, json.dumps(configured_spec("cnn_leaf", (1, 28, 28), 62).to_json())),
    ):
        before = path.read_text()
        path.write_text(other)
        with pytest.raises(UserError, match=f"{key} {path} has other contents than when the checkpoint of round 1 was"):
            run(job_file, rounds=2, resume=True, **keys)
        path.write_text(before)
    assert "resumed after round 1" in run(job_file, rounds=2, resume=True, **keys)
    header = json.loads((log_dir(job_file) / "header.json").read_text())
    assert {key: list(files) for key, files in header["named_files"].items()} == {
        key: [path] for key, path in keys.items() if key != "method"
    }


def test_a_checkpoint_of_another_format_is_refused_with_advice(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint_file, "_FORMAT", "3")
        run(job_file, rounds=1)
    with pytest.raises(UserError, match=r"in format 4; if an earlier release wrote it, finish the job with that"):
        run(job_file, rounds=2, resume=True)


@pytest.mark.parametrize("file", ["checkpoint-000003", "round-000003", "metrics.jsonl"])
def test_a_full_disk_ends_the_job_with_one_sentence_and_an_intact_checkpoint(
    job_file: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    plain_sync, plain_append = atomic_files.os.fsync, json_lines.GrowingFile.append
    full = OSError(errno.ENOSPC, "No space left on device")

    def sync(handle: int) -> None:
        if file in Path(f"/proc/self/fd/{handle}").readlink().name:
            raise full
        plain_sync(handle)

    def append(self: json_lines.GrowingFile, text: str) -> None:
        if json.loads(text)["round"] == 3:
            self._file.write(text[:40].encode())  # as much as there was room for
            full.filename = self._file.name
            raise full
        plain_append(self, text)

    with monkeypatch.context() as patched:
        if file == "metrics.jsonl":
            patched.setattr(json_lines.GrowingFile, "append", append)
        else:
            patched.setattr(atomic_files.os, "fsync", sync)
        with pytest.raises(UserError) as raised:
            run(job_file)
    assert str(raised.value).startswith("the disk takes no more: ")
    assert file in str(raised.value) and "(No space left on device); make room" in str(raised.value)
    assert checkpoints(job_file) == [1, 2]
    assert "resumed after round 2" in run(job_file, resume=True)
    assert_equal(result(log_dir(job_file)), undisturbed)


def test_other_errors_of_files_are_no_full_disk(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(atomic_files.os, "replace", fail)
    with pytest.raises(PermissionError):
        fedscale_ext.run(job_file)


def test_a_notice_on_too_few_rounds_goes_when_the_job_gets_more(job_file: Path) -> None:
    keys = {"method": "fedtrans", "model": "nasbench201_base", "fedtrans.gamma": 2, "fedtrans.delta": 1}
    summaries = []
    for rounds in (2, 5):
        run(job_file, **keys, rounds=rounds, resume=rounds > 2)
        summaries.append(json.loads((log_dir(job_file) / "summary.json").read_text())["notices"])
    short, longer = ([each for each in notices if "will not grow" in each] for notices in summaries)
    assert len(short) == 1 and longer == [] and "resumed after round 2" in summaries[1]


def test_a_resumed_jobs_summary_has_the_notices_of_before(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FedYogiAggregator.assign

    def assign(self: Any, round: int, participants: Any) -> Any:
        self.notice(f"round {round} begins")
        return plain(self, round, participants)

    monkeypatch.setattr(FedYogiAggregator, "assign", assign)
    run(job_file, rounds=2)
    run(job_file, rounds=3, resume=True)
    notices = json.loads((log_dir(job_file) / "summary.json").read_text())["notices"]
    begun = [f"round {number} begins" for number in (1, 2, 3)]
    assert [notice for notice in notices if notice.endswith("begins")] == begun
    assert notices.count("clients are tested on test.csv") == 1 and "resumed after round 2" in notices
    header = json.loads((log_dir(job_file) / "header.json").read_text())
    assert header["notices"][0] == "clients are tested on test.csv" and header["floor"]["majority"]["tested"] == 6
    assert header["floor"]["most_frequent"]["tested"] == 6
    assert not [notice for notice in header["notices"] if notice.startswith(("round", "resumed"))]
