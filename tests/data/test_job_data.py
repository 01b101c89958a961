"""Whose samples are whose in a job: decided by ``data_seed``, whatever the job's ``seed``."""

import json
from pathlib import Path
from typing import Any

import pytest

from evals.paper.data import data_set
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.data.job_data import local_digest, open_job_data, open_recorded_data, source_notice
from fedscale_ext.data.public_draw import PublicDraw
from fedscale_ext.data.store import DataSet, open_data_set
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job

JOB = {"rounds": 1, "model": "cnn_small", "local_steps": 1, "eval_interval": 1}
DSFL = {"method": "dsfl", "dsfl.types": ["single_exit_mlp"], "public_samples": 12}


def opened(job_file: Path, **keys: Any) -> DataSet:
    return open_job_data(with_values(load_config(job_file), **keys))


def run(job_file: Path, name: str, **keys: Any) -> tuple[Path, list[str]]:
    """Run a job; its folder and its notices."""
    said: list[str] = []
    config = with_values(load_config(job_file), **{**JOB, "job_name": name, **keys})
    run_in_process(config, lambda event: said.append(event["message"]) if event["event"] == "notice" else None)
    return job_file.parent / "logs" / name / "logs", said


def test_the_seed_of_a_job_changes_nobodys_samples(job_file: Path, tiny_femnist: Path) -> None:
    first = opened(job_file, public_samples=12)
    assert opened(job_file, public_samples=12, seed=2).digest == first.digest
    assert opened(job_file, public_samples=12, data_seed=2).digest != first.digest
    before = open_data_set(tiny_femnist, "femnist", test_split=0.2, seed=1, public_draw=PublicDraw(12))
    assert first.digest == before.digest  # what seed 1 always gave


def test_two_seeds_of_a_method_with_public_samples_are_one_arm(job_file: Path) -> None:
    folders = [run(job_file, f"dsfl-s{seed}", seed=seed, **DSFL)[0] for seed in (1, 2)]
    (arm,) = arms_of([load_job(folder) for folder in folders])
    assert arm.seeds == [1, 2]


def test_public_samples_that_a_method_does_not_use_are_announced_and_recorded(job_file: Path) -> None:
    folder, said = run(job_file, "aside", public_samples=12)
    assert (
        "12 training samples are set aside as public data, as for every method of this configuration; "
        "this job's method does not use them"  # a sweep tells it once for all of its methods
    ) in said
    data = json.loads((folder / "summary.json").read_text())["data"]
    assert (data["public_samples"], data["public_data_used"]) == (12, False)
    row = "12 training samples set aside as public data, which fedavg does not use"
    assert row in (folder / "summary.md").read_text()


def test_public_samples_that_a_method_uses_are_announced_too(job_file: Path) -> None:
    folder, said = run(job_file, "used", public_fraction=0.5, **DSFL)
    assert [message for message in said if "set aside" in message] == [
        "12 training samples are set aside from the clients as public data"
    ]
    assert "12 training samples set aside as public data |" in (folder / "summary.md").read_text()


def test_a_public_folder_that_a_method_does_not_use_is_announced(job_file: Path) -> None:
    folder, said = run(job_file, "folder", public_samples=12, public_dir="/nowhere")
    assert "this job's method does not use public data: it leaves public_dir /nowhere unread" in said
    assert "public_dir, which fedavg does not use" in (folder / "summary.md").read_text()
    data = json.loads((folder / "summary.json").read_text())["data"]
    assert (data["public_samples"], data["public_data_used"]) == (0, False)


def test_a_job_without_public_data_says_nothing_of_them(job_file: Path) -> None:
    folder, said = run(job_file, "plain")
    assert not [message for message in said if "public" in message]
    assert "public_samples" not in json.loads((folder / "summary.json").read_text())["data"]


def test_the_digest_of_the_data_on_this_machine(job_file: Path, tmp_path: Path) -> None:
    assert local_digest(load_config(job_file)) == opened(job_file).digest
    (tmp_path / "empty").mkdir()
    for folder in ("none", "empty"):
        assert local_digest(load_config(job_file, [f"data_dir={tmp_path / folder}"])) is None


def test_a_notice_tells_whose_data_a_job_has_that_has_none_here(job_file: Path) -> None:
    config = load_config(job_file, ["data_dir=nowhere"])
    sentence = source_notice(config, 0, None)
    assert sentence is not None and "no data set in nowhere: the job's data are those of the executor" in sentence
    assert source_notice(config, 0, "d") is None
    assert source_notice(config, 1, None) is None


@pytest.mark.parametrize("keys", [{}, {"public_samples": 12, "data_seed": 3}])
def test_a_record_opens_what_the_job_opened(job_file: Path, keys: dict[str, Any]) -> None:
    config = with_values(load_config(job_file), **keys)
    echo = json.loads(json.dumps(config.echo(), default=str))
    assert open_recorded_data(echo).digest == open_job_data(config).digest
    (job_file.parent / "header.json").write_text(json.dumps({"config": echo}))
    assert data_set(job_file.parent).digest == open_job_data(config).digest


def test_the_seed_decides_where_no_data_seed_is_recorded(job_file: Path) -> None:
    config = with_values(load_config(job_file), seed=1, data_seed=2, public_samples=12)
    echo = {key: value for key, value in {**config.echo(), "seed": 2}.items() if key != "data_seed"}
    assert open_recorded_data(echo).digest == open_job_data(config).digest != opened(job_file, public_samples=12).digest
