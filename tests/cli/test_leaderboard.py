"""``fedscale leaderboard`` and its entries, as a person asks for them."""

import dataclasses

import pytest
from written_job import write_job

from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.driver.sweeps.sweep_records import Point, Sweep

NOBODY = Proc("driver", 1, 0.0)
VERSIONS = {"fedscale": "1.0", "fedscale_ext": "0.1.0", "commit": "c0ffee"}


@pytest.fixture
def five(state, tmp_path):
    """Five seeds of a sweep's arm, with the learning rate that was chosen."""
    points = []
    for seed in range(5):
        name = f"j-learning_rate_0.05-s{seed}"
        write_job(tmp_path / "logs" / name / "now", job_name=name, seed=seed, method="fedavg", rounds=10,
                  num_clients=3_400, versions=VERSIONS, clients=False)  # fmt: skip
        jobs.write(jobs.Job(name, "conf", str(tmp_path), "now", [], NOBODY, status="finished"))
        points.append(Point(name, "j-learning_rate_0.05", seed, ("learning_rate=0.05", f"seed={seed}")))
    runs = {point.name: str(jobs.find(point.name).log_dir) for point in points}
    grid = {"learning_rate": ["0.01", "0.05"]}
    sweep_records.write(Sweep("j-sweep", "conf", (), grid, tuple(points), NOBODY, runs))
    return tmp_path


def test_the_published_rows_are_shown_with_ones_own(call, five):
    code, out, err = call("leaderboard", "--data-set", "femnist", "--entries", five / "none")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 5 and lines[0].startswith("data set  method")
    assert lines[1].split()[3] == "0.7850±0.0009" and lines[4].endswith("you, 5 of 5 seeds")


def test_a_damaged_record_of_a_job_is_passed_over(call, five):
    path = jobs.folder("j-learning_rate_0.05-s3") / "job.json"
    path.write_text(path.read_text().replace('"name"', '"later": 1, "name"', 1))  # a field of a later release
    code, out, err = call("leaderboard", "--data-set", "femnist", "--entries", five / "none")
    assert (code, err) == (0, "") and out.splitlines()[-1].endswith("you, 4 of 5 seeds")


def test_the_benchmark_stands_below_all_boards(call, state):
    code, out, err = call("leaderboard")
    assert (code, err) == (0, "")
    assert "\nThe benchmark: the best method of each family (`fedscale benchmark` shows all)\n" in out
    assert any(line.startswith("HeteroFL  ") or " width " in line for line in out.splitlines())
    assert "\nBetter than their family's row, but some clients train more than they afford (% beyond): " in out


def test_a_data_set_without_a_board_is_one_sentence(call, state):
    code, out, err = call("leaderboard", "--data-set", "mnist")
    assert (code, out) == (2, "") and "has no data set 'mnist': it has openimage, femnist and speech" in err


def test_a_sweeps_arm_becomes_an_entry_that_knows_what_was_tried(call, five):
    code, out, err = call("leaderboard", "submit", "j-learning_rate_0.05", "-o", five / "entries")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith("over seeds 0 to 4")
    text = (five / "entries" / "fedavg_femnist_resnet18.md").read_text()
    assert "| Tuned hyperparameters (chosen: *) | learning_rate: 0.01, 0.05* |" in text
    _, out, _ = call("leaderboard", "--data-set", "femnist", "--entries", five / "entries")
    assert "you, entry" in out


def test_a_sweep_knows_only_what_its_own_runs_tried(call, five):
    name, arm = "j-learning_rate_0.05-s0", "j-learning_rate_0.05"
    write_job(five / "logs" / name / "alone", job_name=name, seed=0, method="fedavg", rounds=10, num_clients=3_400,
              versions=VERSIONS, clients=False)  # fmt: skip
    jobs.write(dataclasses.replace(jobs.find(name), time_stamp="alone"))
    names = [f"{arm}-s{seed}" for seed in range(5)]
    assert call("leaderboard", "submit", arm, "-o", five / "entries")[0] == 0
    code, _, err = call("leaderboard", "submit", *names, "-o", five / "others")
    assert code == 2 and "--tuned" in err


def test_an_incomplete_entry_is_refused_with_all_that_lacks(call, five):
    names = [f"j-learning_rate_0.05-s{seed}" for seed in (0, 1, 3)]
    code, out, err = call(
        "leaderboard", "submit", *names, "--tuned", "learning_rate=0.01*,0.05", "-o", five / "entries"
    )
    assert (code, out) == (2, "") and not (five / "entries").exists()
    assert err == (
        "fedscale: the entry is not complete: seeds 2 and 4 are missing; the jobs ran with learning_rate 0.05, not "
        "with the chosen 0.01\n"
    )


@pytest.mark.parametrize("text", ["learning_rate", "learning_rate=", "=1*", "learning_rate=1,2", "a=1*,2*", "a=1*,"])
def test_tuning_that_cannot_be_read_is_one_sentence(call, five, text):
    code, _, err = call("leaderboard", "submit", "j-sweep", "--tuned", text)
    assert code == 2 and f"--tuned {text}: write it as key=a,b* with a star" in err


def test_a_damaged_entry_is_one_sentence(call, five):
    (five / "entries").mkdir()
    (five / "entries" / "x.json").write_text('{"dataset": "femnist"}')
    code, _, err = call("leaderboard", "--entries", five / "entries")
    assert code == 2 and "x.json is no entry for the leaderboard" in err
