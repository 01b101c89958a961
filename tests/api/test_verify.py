"""A run is verified: each kind of change is found, and rounds that are computed again agree bit for bit."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedscale_ext
from fedscale_ext.api import replay
from fedscale_ext.api import verify as module
from fedscale_ext.api.run_checks import Beginnings, Check, RecordedRun
from fedscale_ext.api.verify import draw, replayable, spans, verify
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.metrics.job_folder.chain import START, next_link, state_digests
from fedscale_ext.metrics.job_folder.jsonable import line
from fedscale_ext.server import records
from fedscale_ext.server.checkpoints import checkpoint_file
from fedscale_ext.util.tensor_files import read_tensors, write_tensors
from fedscale_ext.util.token import new_token

JOB = {"model": "cnn_small", "rounds": 5, "eval_interval": 2, "local_steps": 1, "personalise_epochs": 1}


@pytest.fixture(scope="module")
def trained(session_job_file: Path) -> Iterator[dict[str, Path]]:
    """Folders of two jobs: of one model, and of one with tensors of clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # most of a tiny job's time
        yield {
            method: fedscale_ext.run(
                session_job_file, progress=False, **JOB, method=method, job_name=f"verify_{method}"
            ).path
            for method in ("fedavg", "lotteryfl")
        }


@pytest.fixture
def copied(trained: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies a job's folder, to be changed."""

    def copy(method: str = "fedavg") -> Path:
        shutil.copytree(trained[method], tmp_path / method)
        return tmp_path / method

    return copy


def wrong(folder: Path, rounds: int | None = 0) -> dict[str, str]:
    """What does not fit, with its detail."""
    rows = list(verify(RecordedRun(folder), rounds=rounds, seed=0))
    return {row.what: row.detail for row in rows if row.outcome == "does not fit"}


def change_line(folder: Path, round: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a round's line of metrics.jsonl."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    change(lines[round - 1])
    path.write_text("".join(f"{line(each)}\n" for each in lines))


def forge_chain(folder: Path) -> None:
    """Compute the chain of the records anew, as somebody does who knows how."""
    path, before = folder / "metrics.jsonl", START
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for each in lines:
        before = each["digests"]["chain"] = next_link(before, each)
    path.write_text("".join(f"{line(each)}\n" for each in lines))


def change_tensor(path: Path, begin: str = "") -> None:
    """Flip a bit of the first tensor whose name begins so; the file's own digest is right again."""
    tensors, metadata = read_tensors(path)
    name = min(name for name in tensors if name.startswith(begin))
    tensors[name].view(-1).view(torch.uint8)[0] ^= 1
    write_tensors(path, tensors, metadata)


@pytest.mark.parametrize("method", ["fedavg", "lotteryfl"])
def test_all_of_an_unchanged_run_fits_and_rounds_agree_bit_for_bit(trained: dict[str, Path], method: str) -> None:
    rows = {row.what: row for row in verify(RecordedRun(trained[method]), rounds=None, seed=0)}
    assert {what for what, row in rows.items() if row.outcome == "fits"} == {
        "chain", "data, settings", "program", "tests of clients", "checkpoints", "final models", "summary.json",
        "round 1", "round 4", "round 5",
    }  # fmt: skip
    assert all(rows[f"round {round}"].detail == "computed again, equal bit for bit" for round in (1, 4, 5))
    assert rows.pop("cannot replay") == Check(
        "cannot replay", "not checked", "rounds 2-3: no checkpoint of the round before them is there"
    )


def test_the_first_round_with_secret_noise_is_not_computed_again(session_job_file: Path) -> None:
    keys = {**JOB, "rounds": 2, "checkpoint_interval": 1, "dp_noise_multiplier": 0.1, "dp_noise": "secret"}
    job = fedscale_ext.run(session_job_file, progress=False, **keys, method="fedavg", job_name="verify_secret")
    rows = {row.what: row for row in verify(RecordedRun(job.path), rounds=None, seed=0)}
    assert rows["round 1"].outcome == "not checked" and "dp_noise is secret" in rows["round 1"].detail
    assert rows["round 2"] == Check("round 2", "fits", "computed again, equal bit for bit")
    assert "cannot replay" not in rows and not [row for row in rows.values() if row.outcome == "does not fit"]


def test_files_of_clients_are_listed_and_records_are_read_once_for_all_checkpoints(
    trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read_bytes, glob = RecordedRun(trained["lotteryfl"]), Path.read_bytes, Path.glob
    reads: list[str] = []
    lists: list[str] = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path.name) or read_bytes(path))
    monkeypatch.setattr(Path, "glob", lambda path, pattern: lists.append(pattern) or glob(path, pattern))
    assert run._checkpoints() == Check("checkpoints", "fits", "after round 3, 4, 5")
    assert (reads.count("metrics.jsonl"), len(lists)) == (1, 1)


def test_beginnings_of_any_lengths_have_their_digests() -> None:
    content = bytes(range(256)) * 5
    beginnings = Beginnings(content)
    for length in (0, 10, 10, 700, 2000, 3, -280, 1280, -5000):
        assert beginnings.sha256(length) == hashlib.sha256(content[:length]).hexdigest()


def test_a_replay_copies_no_files_but_those_that_its_checkpoint_needs(trained: dict[str, Path], tmp_path: Path) -> None:
    folder = trained["lotteryfl"]
    run = RecordedRun(folder)
    config = replay._config(run.job.header["config"], run.lines[3], tmp_path, None)
    replay._copy_until(folder, tmp_path / "target", 3, config)
    newest: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.glob("*/*/*-*.safetensors")):
        client, _, round = path.stem.partition("-")
        if int(round) <= 3:
            newest[str(path.parent.relative_to(folder)), client] = path.relative_to(folder)
    copies = {path.relative_to(tmp_path / "target") for path in (tmp_path / "target").glob("*/*/*-*.safetensors")}
    assert copies == set(newest.values()) and len(copies) > 1
    tests = sorted(path.name for path in (tmp_path / "target" / "evaluations").iterdir())
    assert tests == ["round-000001.safetensors", "round-000002.safetensors"]


def test_nothing_of_the_run_is_touched(trained: dict[str, Path]) -> None:
    def state() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in trained["fedavg"].rglob("*") if path.is_file()}

    before = state()
    list(verify(RecordedRun(trained["fedavg"]), rounds=1, seed=1))
    assert state() == before


LINES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "loss": lambda line: line.update(train_loss=line["train_loss"] + 1e-9),
    "participants": lambda line: line["participants"].pop(),
    "states": lambda line: line["digests"].update(states="0" * 64),
    "new field": lambda line: line.update(note=1),
}


@pytest.mark.parametrize("change", LINES)
def test_a_changed_line_breaks_the_chain_at_its_round(copied: Callable[[], Path], change: str) -> None:
    folder = copied()
    change_line(folder, 2, LINES[change])
    assert "the link of round 2 is the first" in wrong(folder)["chain"]


def test_a_line_without_digests_or_out_of_order_does_not_fit(copied: Callable[[], Path]) -> None:
    folder = copied()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join([lines[0], *lines[2:]]))
    assert wrong(folder)["chain"] == "round 3 stands where round 2 should"
    (folder / "metrics.jsonl").write_text("".join(lines))
    change_line(folder, 3, lambda line: line.pop("digests"))
    assert wrong(folder)["chain"] == "round 3 has no digests"


def test_records_that_are_cut_off_do_not_fit_their_checkpoints(copied: Callable[[], Path]) -> None:
    folder = copied()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]))
    failures = wrong(folder)
    assert failures["checkpoints"] == "round 5: the records end before it" and "summary.json" in failures


def test_what_tells_how_a_round_went_is_no_part_of_the_chain(copied: Callable[[], Path]) -> None:
    folder = copied()
    change_line(folder, 2, lambda line: line.update(wall_s=99.0, executor_seconds={}, cohort_sizes={}, faults={"a": 1}))
    assert "chain" not in wrong(folder)


def test_a_changed_weight_is_found(copied: Callable[[str], Path]) -> None:
    folder = copied("lotteryfl")
    change_tensor(folder / "checkpoints" / "checkpoint-000004.safetensors", "tensor.pool/")
    assert wrong(folder) == {
        "checkpoints": "round 4: a weight, or another part of the models, is not that of the record"
    }
    shutil.rmtree(folder)
    copied("lotteryfl")
    change_tensor(next((folder / "models").glob("*.safetensors")))
    assert "a weight of" in wrong(folder)["final models"]
    shutil.rmtree(folder)
    copied("lotteryfl")
    change_tensor(next(folder.glob("client_state/*/*-000005.safetensors")))
    assert wrong(folder) == {"checkpoints": "round 5: the files of clients' tensors are not those of the record"}


def test_a_damaged_checkpoint_and_a_changed_test_of_clients_are_found(copied: Callable[[], Path]) -> None:
    folder = copied()
    path = folder / "checkpoints" / "checkpoint-000003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    change_tensor(folder / "evaluations" / "round-000002.safetensors", "loss")
    failures = wrong(folder)
    assert "is damaged" in failures["checkpoints"]
    assert failures["tests of clients"] == "round 2: round-000002.safetensors is not the file that was recorded"


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "learning rate": lambda header: header["config"].update(learning_rate=0.5),
    "data": lambda header: header["data"].update(digest="0" * 64),
    "seed": lambda header: header.update(seed=9),
    "method": lambda header: header.update(method="local"),
    "files": lambda header: header["named_files"].update(device_conf_file={"a": "0"}),
}


@pytest.mark.parametrize("change", HEADERS)
def test_a_changed_header_is_found(copied: Callable[[], Path], change: str) -> None:
    folder = copied()
    header = json.loads((folder / "header.json").read_text())
    HEADERS[change](header)
    (folder / "header.json").write_text(json.dumps(header))
    assert "data, settings" in wrong(folder)


def test_a_changed_summary_is_found(copied: Callable[[], Path]) -> None:
    folder = copied()
    summary = json.loads((folder / "summary.json").read_text())
    summary["accuracy"]["mean"] = 1.0
    (folder / "summary.json").write_text(json.dumps(summary))
    assert wrong(folder) == {"summary.json": "its accuracy is not what the records give"}


def test_a_forged_chain_is_found_by_computing_the_round_again(copied: Callable[[], Path]) -> None:
    folder = copied()
    change_line(folder, 5, lambda line: line.update(train_loss=line["train_loss"] / 2))
    forge_chain(folder)
    assert "chain" not in wrong(folder)
    assert wrong(folder, None)["round 5"] == "computed again, it differs in train_loss"


def test_forged_states_are_found_by_computing_the_round_again(copied: Callable[[], Path]) -> None:
    folder = copied()
    path = folder / "checkpoints" / "checkpoint-000004.safetensors"
    change_tensor(path, "tensor.pool/")
    saved = checkpoint_file.read(path)
    states = state_digests(saved.tensors, saved.data["components"])
    change_line(folder, 4, lambda line: line["digests"].update(states))
    forge_chain(folder)
    failures = wrong(folder)
    assert (
        "chain" not in failures
        and failures["checkpoints"] == "round 4: the records are not those that it was written with"
    )
    assert "it differs in models" in wrong(folder, None)["round 4"]


def replay_gives(monkeypatch: pytest.MonkeyPatch, loss: float, torch_version: str) -> None:
    """Let a replay give the recorded line with another loss and other states, with a version of torch."""

    def replayed(folder: Path, settings: Any, line: dict[str, Any], *_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        header = json.loads((folder / "header.json").read_text())
        header["versions"]["torch"] = torch_version
        digests = {**line["digests"], "states": "other"}
        return {**line, "train_loss": line["train_loss"] + loss, "digests": digests}, header

    monkeypatch.setattr(module, "replay", replayed)


def test_bits_may_differ_with_another_torch_but_figures_may_not(
    trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained["fedavg"]
    replay_gives(monkeypatch, 1e-4, "1.0")
    (row,) = [row for row in verify(RecordedRun(folder), rounds=1, seed=0) if row.what.startswith("round")]
    assert row.outcome == "fits"
    assert row.detail == "bits differ, as they may with another torch; figures are equal within 0.02, or 2 % of them"
    replay_gives(monkeypatch, 1.0, "1.0")
    (detail,) = wrong(folder, 1).values()
    assert detail.endswith("another torch; but so do train_loss by more than 0.02")
    replay_gives(monkeypatch, 1e-4, torch.__version__)
    (detail,) = wrong(folder, 1).values()
    assert detail == "computed again, it differs in states, train_loss"


def test_without_the_data_the_records_alone_are_checked(copied: Callable[[], Path], tiny_femnist: Path) -> None:
    folder = copied()
    header = json.loads((folder / "header.json").read_text())
    header["config"]["data_dir"] = str(folder / "gone")
    run = RecordedRun(folder)
    run.job = replace(run.job, header=header)
    rows = {row.what: row for row in verify(run, rounds=None, seed=0)}
    assert rows["chain"].outcome == "fits" and not any(what.startswith("round") for what in rows)
    assert rows["replay"].outcome == "not checked"
    assert "no round: the data cannot be read" in rows["replay"].detail
    again = {row.what: row for row in verify(run, rounds=1, seed=0, data_dir=str(tiny_femnist))}
    assert [row.outcome for what, row in again.items() if what.startswith("round")] == ["fits"]


def ended(job_file: Path, *, stop: int | None = None, **keys: Any) -> Path:
    """The folder of a job that is stopped after a round, or ends."""

    def stopped(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == stop:
            raise KeyboardInterrupt

    config = with_values(load_config(job_file), **{**JOB, "job_name": "more", **keys})
    with suppress(KeyboardInterrupt):
        run_in_process(config, stopped)
    return job_file.parent / "logs" / "more" / "logs"


@pytest.mark.parametrize("stop", [3, None])
@pytest.mark.parametrize("keys", [{}, {"method": "heterofl", "model": "nasbench201_base"}], ids=["fedavg", "heterofl"])
def test_a_run_that_was_continued_with_more_rounds_fits(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], stop: int | None
) -> None:
    """Its earlier last round was tested as such; HeteroFL measures BatchNorm's statistics before a test."""
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")
    keys = {**keys, "eval_interval": 9, "checkpoint_keep": 9}
    ended(job_file, **keys, rounds=2)
    folder = ended(job_file, **keys, rounds=4, resume=True, stop=stop)
    rows = {row.what: row for row in verify(RecordedRun(folder), rounds=None, seed=0)}
    assert [rows[f"round {line['round']}"].outcome for line in RecordedRun(folder).lines] == ["fits"] * (stop or 4)
    assert not [row for row in rows.values() if row.outcome == "does not fit"]
    change_line(folder, 2, lambda line: line["personalised"].update(sha256="0" * 64))
    forge_chain(folder)
    assert "round 2" in wrong(folder, None)


def test_a_run_of_an_earlier_release_is_refused(copied: Callable[[], Path]) -> None:
    folder = copied()
    for round in range(1, 6):
        change_line(folder, round, lambda line: line.pop("digests"))
    with pytest.raises(UserError, match=r"has no digests in its records: a release that wrote none began the job"):
        RecordedRun(folder)


def test_rounds_of_a_job_whose_token_is_gone_are_computed_again(session_job_file: Path, tmp_path: Path) -> None:
    """A driver removes the token of a job that has ended."""
    token = new_token(tmp_path / "token")
    job = fedscale_ext.run(session_job_file, progress=False, **JOB, job_name="verify_signed", token_file=token)
    token.unlink()
    rows = list(verify(RecordedRun(job.path), rounds=None, seed=0))
    assert [row.outcome for row in rows if row.what.startswith("round ")] == ["fits"] * len(
        replayable(RecordedRun(job.path))
    )


def test_the_seed_decides_the_draw(trained: dict[str, Path]) -> None:
    run = RecordedRun(trained["fedavg"])
    assert replayable(run) == [1, 4, 5]
    many = list(range(1, 101))
    assert draw(many, 5, 3) == draw(many, 5, 3) != draw(many, 5, 4)
    assert draw([1, 4, 5], 9, 0) == [1, 4, 5] and draw(many, 0, 0) == []
    assert spans([2, 3, 4, 7, 9, 10]) == "2-4, 7, 9-10"


def test_the_command(
    copied: Callable[[], Path], call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied()
    code, out, err = call("verify", folder, "--rounds", 1, "--seed", 2)
    assert (code, err) == (0, "")
    assert "drawn by    --rounds 1 --seed 2" in out
    assert "result      all that was checked fits, 1 round computed again among it" in out
    change_line(folder, 2, LINES["participants"])
    code, out, err = call("verify", folder, "--rounds", 0)
    assert (code, err) == (1, "") and "the link of round 2 is the first" in out
    assert call("verify", folder / "none")[0] == 2


def test_a_checkpoint_that_the_next_round_wrote_again_has_the_models_of_its_record(copied: Callable[[], Path]) -> None:
    folder = copied()
    path = folder / "checkpoints" / "checkpoint-000005.safetensors"
    saved = checkpoint_file.read(path)
    components = {**saved.data["components"], "method": {"searched": 3}}
    for begun, failures in (
        (False, {"checkpoints": "round 5: the state beside the models is not that of the record"}),
        (True, {}),
    ):
        data = {**saved.data, "components": components, "in_next_round": begun}
        checkpoint_file.save(path.parent, 5, saved.tensors, data, {}, keep=3)
        assert wrong(folder) == failures
