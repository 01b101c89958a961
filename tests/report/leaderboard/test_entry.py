import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from written_job import write_job

from fedscale_ext.config.job_config import load_config, make_config
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.leaderboard.board import TITLES, board
from fedscale_ext.report.leaderboard.entry import Tuned, configuration, entry, lacks, lacks_of_tuned, write
from fedscale_ext.server.method_base.requirements import check_local_training

VERSIONS = {"python": "3", "torch": "2", "numpy": "2", "fedscale": "1.0", "fedscale_ext": "0.1.0", "commit": "c0ffee"}
TUNED = [Tuned("learning_rate", ("0.01", "0.05"), "0.05")]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("five")
    return [write_job(root / f"job-s{seed}", seed=seed, method="fedavg", rounds=10, shift=seed / 100, clients=False,
                      num_clients=3_400, versions=VERSIONS) for seed in range(5)]  # fmt: skip


@pytest.fixture
def loaded(five: list[Path]):
    return [load_job(folder) for folder in five]


def test_five_jobs_make_a_complete_entry(loaded, tmp_path: Path):
    assert lacks(loaded, TUNED, None) == []
    content = entry(list(reversed(loaded)), TUNED, commit=None, contact="a@b", external_data="no")
    values = torch.tensor([job.summary["accuracy"]["sample_weighted"] for job in loaded], dtype=torch.float64)
    assert content["test_accuracy_mean"] == float(values.mean())
    assert content["test_accuracy_std"] == pytest.approx(float(values.var(correction=1).sqrt()))
    assert list(content["test_accuracy"]) == ["0", "1", "2", "3", "4"]
    assert content["commit"] == "c0ffee" and content["parameters_largest_model"] == 24
    assert content["tuned_hyperparameters"] == ["learning_rate: 0.01, 0.05*"]
    paths = write(tmp_path, loaded, content)
    assert [path.name for path in paths] == [f"fedavg_femnist_resnet18.{kind}" for kind in ("json", "md", "yml")]
    assert (
        json.loads(paths[0].read_text())["command"] == "fedscale driver start fedavg_femnist_resnet18.yml --seeds 0-4"
    )
    assert "learning_rate: 0.01, 0.05*" in paths[1].read_text() and "c0ffee" in paths[1].read_text()


def test_an_entry_of_other_settings_is_not_overwritten(loaded, tmp_path: Path):
    content = entry(loaded, TUNED, commit=None, contact="", external_data="no")
    paths = write(tmp_path, loaded, content)
    assert write(tmp_path, loaded, {**content, "contact": "a@b"}) == paths  # the same jobs, written anew
    before = [path.read_text() for path in paths]
    others = [replace(job, header={**job.header, "config": {**job.header["config"], "learning_rate": 0.1}})
              for job in loaded]  # fmt: skip
    with pytest.raises(
        UserError, match=r"resnet18\.json is the entry of jobs with other settings: name another folder"
    ):
        write(tmp_path, others, content)
    assert [path.read_text() for path in paths] == before
    paths[0].write_text("{")
    with pytest.raises(UserError, match="other settings"):
        write(tmp_path, loaded, content)


def test_the_entrys_configuration_gives_the_same_job(loaded, tmp_path: Path):
    settings = {"fedtrans.beta": 0.01, "fedtrans.sharing": None, "local_steps": 7, "num_class": 62, "rounds": 20}
    job = load_job(write_job(tmp_path / "job", seed=3, settings=settings))
    path = tmp_path / "again.yml"
    path.write_text(configuration(job))
    again = load_config(path)
    assert (again.job.method, again.fedscale.rounds, again.fedscale.local_steps) == ("fedtrans", 20, 7)
    assert again.method_params() == {"beta": 0.01, "sharing": None}
    assert not {"seed", "num_class", "log_path"} & {
        key for one in yaml.safe_load(path.read_text())["job_conf"] for key in one
    }


@pytest.mark.parametrize(
    "keys",
    [
        {"sample_mode": "pyramidfl", "exploration_decay": 0.98},  # the default of other modes
        {"stop_gain": None, "stop_patience": 5},
        {"local_epochs": 1},  # local_steps beside it is refused
    ],
)
def test_settings_that_hang_on_others_are_written_as_they_were(keys: dict[str, object], tmp_path: Path):
    config = make_config({}, {"data_set": "femnist", "model": "resnet18", "method": "fedavg", **keys})
    job = load_job(write_job(tmp_path / "job", seed=3))
    job = changed(job, method="fedavg", config={**job.header["config"], **config.echo()})
    path = tmp_path / "again.yml"
    path.write_text(configuration(job))
    again = load_config(path)
    check_local_training(again, method_class("fedavg"))
    assert again.decisive() | {"seed": 0} == config.decisive() | {"seed": 0}


def changed(job, **head):
    return replace(job, header={**job.header, **head})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda jobs: jobs[:3], "seeds 3 and 4 are missing"),
        (lambda jobs: jobs[1:], "seed 0 is missing"),
        (lambda jobs: [*jobs, jobs[0]], "seeds 0 must not count"),
        (lambda jobs: [*jobs, changed(jobs[0], seed=9)], "seeds 9 must not count"),
        (lambda jobs: [*jobs[:4], changed(jobs[4], config={**jobs[4].header["config"], "local_steps": 3})],
         "the jobs differ in local_steps, not only in their seed"),
        (lambda jobs: [*(changed(job, named_files={"model": {"m.json": "1"}}) for job in jobs[:4]),
                       changed(jobs[4], named_files={"model": {"m.json": "2"}})],
         "the jobs differ in model m.json, not only in their seed"),
        (lambda jobs: [*jobs[:4], replace(jobs[4], finished=False)], "job-s4 did not finish all rounds"),
        (lambda jobs: [changed(job, data={**job.header["data"], "generated": True}) for job in jobs],
         "the data are generated, not real"),
        (lambda jobs: [changed(job, config={**job.header["config"], "data_set": "cifar10"}) for job in jobs],
         "the leaderboard has no data set cifar10, only openimage, femnist and speech"),
        (lambda jobs: [changed(job, num_clients=239) for job in jobs],
         "the data are not FedScale's: 239 clients, where its femnist has 3,400"),
        (lambda jobs: [*jobs[:4], changed(jobs[4], versions={**VERSIONS, "commit": "other"})],
         "the jobs ran on different commits"),
        (lambda jobs: [changed(job, versions={**VERSIONS, "commit": "absent"}) for job in jobs],
         "the commit that ran them is not known: --commit ID"),
        (lambda jobs: [changed(job, versions={**VERSIONS, "commit": "c0ffee+changes"}) for job in jobs],
         "they ran on code with changes that are not committed"),
    ],
)  # fmt: skip
def test_what_lacks_is_said(loaded, change, sentence: str):
    problems = lacks(change(loaded), TUNED, None)
    assert len(problems) == 1 and sentence in problems[0]


def test_tuning_must_be_told_and_be_what_ran(loaded):
    assert lacks(loaded, None, "c0ffee") == [
        "the tuned hyperparameters are not named: --tuned key=tried,chosen*, or --tuned none"
    ]
    assert (
        lacks_of_tuned(loaded[0], TUNED[0])
        == []
        == lacks_of_tuned(loaded[0], Tuned("learning_rate", ("5e-2",), "0.050"))
    )
    assert lacks_of_tuned(loaded[0], Tuned("reference_macs", ("3e8",), "3e8")) == []
    assert lacks_of_tuned(loaded[0], Tuned("use_cuda", ("yes",), "yes")) == []
    assert lacks_of_tuned(loaded[0], Tuned("reference_macs", ("[3e8",), "[3e8")) != []
    wrong = lacks_of_tuned(loaded[0], Tuned("learning_rate", ("0.1",), "0.1"))
    assert wrong == ["the jobs ran with learning_rate 0.05, not with the chosen 0.1"]


def test_the_board_ranks_entries_and_jobs_of_fedscales_size(five: list[Path], loaded, tmp_path: Path):
    content = entry(loaded, TUNED, commit=None, contact="", external_data="no")
    write(tmp_path / "entries", loaded, {**content, "test_accuracy_mean": 0.77})
    small = write_job(tmp_path / "small", shift=9.0)
    generated = write_job(tmp_path / "generated", generated=True)
    rows, notes = board("femnist", tmp_path / "entries", [*five[:2], small, generated, tmp_path / "gone"])
    assert all(len(row) == len(TITLES) for row in rows)
    assert [row[-1] for row in rows] == [
        "FedScale", "FedScale", "you, entry", "FedScale", "you, 2 of 5 seeds", "you, 1 of 5 seeds, 62 clients",
    ]  # fmt: skip
    assert [row[3] for row in rows[:2]] == ["0.7850±0.0009", "0.7840±0.0012"]
    assert any("gone" in note for note in notes) and "left out: 1 of your jobs on generated data" in notes
    assert len(board(None, tmp_path / "none", [])[0]) == 12
