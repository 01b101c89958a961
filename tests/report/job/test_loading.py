import json
from pathlib import Path

import numpy as np
import pytest
from written_job import write_job

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.page.build import build


def test_a_finished_job_is_its_summary_and_its_clients(folders: list[Path]):
    job = load_job(folders[0])
    assert (job.name, job.seed, job.data, job.finished, job.rounds_asked) == ("ft-s0", 0, "femnist", True, 20)
    assert job.summary == json.loads((folders[0] / "summary.json").read_text())
    assert [record.round for record in job.tested] == [1, 10, 20]
    assert len(job.client_accuracy) == 62 and np.isnan(job.client_accuracy).sum() == 2
    assert job.clients is not None and job.clients.capacity[-1] == 62e3
    assert job.clients.names == job.summary["clients"]["names"] and job.clients.names[0] == "cam 1"


def test_a_job_that_runs_is_what_its_rounds_tell(folders: list[Path]):
    job = load_job(folders[3])
    assert not job.finished and job.rounds_asked == 40 and job.summary["rounds"] == 20
    assert job.summary["accuracy"]["mean"] > 0 and job.summary["cost"]["training_macs"] == 60e9
    assert job.summary["cost"]["storage_suite_mb"] is None  # nobody has told of its models
    assert job.clients is None


def test_settings_leave_out_seed_and_paths(tmp_path: Path):
    settings = {"log_path": "/somewhere", "ps_port": 1, "fedtrans.beta": 0.1, "local_steps": 7}
    job = load_job(write_job(tmp_path / "a", settings=settings, params={"beta": 0.1, "gamma": 3}))
    assert job.settings["fedtrans.gamma"] == 3 and job.settings["local_steps"] == 7
    assert job.settings["rounds"] == 20  # jobs of different length do not become one row
    assert not {"seed", "log_path", "ps_port"} & set(job.settings)


def test_data_that_were_generated_are_called_so(tmp_path: Path):
    assert load_job(write_job(tmp_path / "a", generated=True)).data == "femnist (generated)"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("metrics.jsonl", "", "holds no metrics.jsonl with a round"),
        ("header.json", "{", "header.json is damaged: it is no JSON"),
        ("header.json", "[]", "header.json is damaged, or of another version: all of it: it must be keys"),
        ("summary.json", "{}", "summary.json is damaged, or of another version"),
        ("header.json", None, "header.json cannot be read: No such file or directory"),
    ],
)
def test_a_damaged_folder_is_one_sentence(tmp_path: Path, name: str, content: str | None, sentence: str):
    folder = write_job(tmp_path / "job")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(UserError, match=sentence):
        load_job(folder)


@pytest.mark.parametrize("name", ["header.json", "summary.json"])
def test_whatever_header_and_summary_hold_is_used_or_one_sentence(tmp_path: Path, undrawn, name: str):
    """Every value in turn taken away, or replaced by one of another kind."""
    folder = write_job(tmp_path / "job")
    whole = json.loads((folder / name).read_text())
    refused = 0
    for path in _paths(whole):
        for value in (None, "x"):
            (folder / name).write_text(json.dumps(_replaced(whole, path, value)))
            try:
                build([folder], tmp_path / "out")
            except UserError:
                refused += 1
    assert refused > 20


def _paths(value, at=()):
    """Keys to each value, lists by their first."""
    for key, inner in value.items() if isinstance(value, dict) else list(enumerate(value))[:1]:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*at, key))


def _replaced(whole, path, value):
    copy = json.loads(json.dumps(whole))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy
