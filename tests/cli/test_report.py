"""``fedscale report`` on finished jobs, and what a word on the command line stands for."""

import dataclasses
import os
import platform

import pytest
from written_job import write_job

from fedscale_ext.api.result import load
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, naming
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.driver.sweeps.sweep_records import Point, Sweep

NOBODY = Proc("driver", 1, 0.0)


@pytest.fixture
def remembered(state, tmp_path):
    """Two jobs of a sweep, and one of its own that has the name of the sweep's arm."""
    for name in ("a-s0", "a-s1", "a"):
        second = name[-1] == "1"
        folder = write_job(
            tmp_path / "logs" / name / "now", job_name=name, seed=int(second), rounds=10, shift=0.01 * second
        )
        jobs.write(jobs.Job(name, "conf", str(tmp_path), "now", [], NOBODY, status="finished"))
        assert jobs.find(name).log_dir == folder
    points = tuple(Point(f"a-s{seed}", "a", seed, (f"seed={seed}",)) for seed in (0, 1, 2))
    runs = {name: str(jobs.find(name).log_dir) for name in ("a-s0", "a-s1")}
    sweep_records.write(Sweep("a-sweep", "conf", (), {}, points, NOBODY, runs))
    return tmp_path / "logs"


def run_again(name, logs):
    """The job's last run is one that it has made by itself."""
    folder = write_job(logs / name / "later", job_name=name, seed=0, rounds=3)
    jobs.write(dataclasses.replace(jobs.find(name), time_stamp="later", started=2e9))
    return folder


def start_anew(logs):
    """The sweep is started anew, and stopped when its first job has a header and its second is about to start."""
    begun = write_job(logs / "a-s0" / "anew", job_name="a-s0", seed=0, rounds=3)
    runs = {"a-s0": str(begun), "a-s1": str(logs / "a-s1" / "anew")}
    sweep_records.write(dataclasses.replace(sweep_records.read("a-sweep"), runs=runs))
    jobs.write(dataclasses.replace(jobs.find("a-s0"), time_stamp="anew", status="stopped"))
    return begun


def test_a_report_of_a_sweep_by_its_name(call, remembered, tmp_path, monkeypatch):
    from fedscale_ext.report.plots import comparison_plots, job_plots

    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    code, out, err = call("report", "a-sweep", "-o", tmp_path / "out")
    waits = "note: {} jobs is left out, as no round of it has ended: a-s2.\n"
    assert (code, err) == (0, waits.format("1 of 3"))
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["jobs", "accuracy", "%"]
    assert lines[1].split()[:2] == ["fedtrans", "2"] and "±" in lines[1]
    assert lines[2] == f"report   {tmp_path}/out/report.html"
    assert (tmp_path / "out" / "report.html").is_file() and (tmp_path / "out" / "figures.csv").is_file()
    short = write_job(tmp_path / "logs" / "short" / "now", job_name="short", rounds=3)
    code, out, err = call("report", "a-sweep", short, "-o", tmp_path / "out")
    assert code == 0 and len(out.splitlines()) == 6  # a row of its own
    assert err.startswith(waits.format("1 of 4")) and err.count("\n") == 3
    assert "note: These jobs have different numbers of rounds (3, 10): " in err
    assert "note: The rows have different seeds: " in err
    (short / "metrics.jsonl").write_text("")
    code, out, err = call("report", "a-sweep", short, "-o", tmp_path / "out")
    assert (code, err) == (0, "note: 2 of 4 jobs are left out, as no round of them has ended: short, a-s2.\n")
    code, out, err = call("report", short, "-o", tmp_path / "out")
    assert (code, out) == (2, "") and "holds no metrics.jsonl with a round" in err


def test_a_report_says_why_a_seed_did_not_finish(call, remembered, tmp_path, monkeypatch):
    from fedscale_ext.report.plots import comparison_plots, job_plots

    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    (remembered / "a-s1" / "now" / "summary.json").unlink()
    why = "the aggregator exited with code 2 (round 11: every client failed, training diverged: the loss of 1 of 1)"
    jobs.write(dataclasses.replace(jobs.find("a-s1"), status="failed", reason=why))
    code, out, err = call("report", "a-sweep", "-o", tmp_path / "out")
    assert code == 0 and out.splitlines()[1].split()[:4] == ["fedtrans", "1", "of", "2"]
    sentence = f"Not finished, and not in the figures of its row: a-s1 of fedtrans (seed 1, round 10 of 10; {why})."
    assert f"note: {sentence}\n" in err
    jobs.write(dataclasses.replace(jobs.find("a-s1"), time_stamp="later"))  # the record is of another run
    assert naming.failures(naming.find_jobs(["a-sweep"]).folders) == {}


def test_a_folder_is_reported_whose_jobs_record_is_damaged(remembered):
    (jobs.folder("a-s0") / "job.json").write_text("{half")
    assert naming.failures(naming.find_jobs([str(remembered / "a-s0" / "now")]).folders) == {}


@pytest.mark.parametrize("finished", [True, False])
def test_a_report_says_which_seed_lost_its_driver(call, remembered, tmp_path, monkeypatch, finished):
    """A driver that is killed leaves the record as it was: the job failed, as the sweep and ``driver status`` say."""
    from fedscale_ext.report.plots import comparison_plots, job_plots

    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    if not finished:
        (remembered / "a-s1" / "now" / "summary.json").unlink()
    jobs.write(dataclasses.replace(jobs.find("a-s1"), status="running", host=platform.node()))
    code, _, err = call("report", "a-sweep", "-o", tmp_path / "out")
    words = {
        True: "Failed with its results already written: a-s1 (its driver ended without a word).",
        False: "Not finished, and not in the figures of its row: a-s1 of fedtrans (seed 1, round 10 of 10; its driver "
        "ended without a word).",
    }
    assert code == 0 and f"note: {words[finished]}\n" in err


def test_a_wrong_name_among_others_is_left_out_and_named(call, remembered, tmp_path, monkeypatch):
    from fedscale_ext.report.plots import comparison_plots, job_plots

    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    code, out, err = call("report", "b", "a", "-o", tmp_path / "out")
    assert (code, err) == (0, "note: The report leaves out b: no started job has this name.\n")
    assert out.splitlines()[-1].startswith("figures")
    code, _, err = call("report", "b", "a", "c", "b", "-o", tmp_path / "out")
    assert (code, err) == (0, "note: The report leaves out b, c: no started job has these names.\n")
    code, out, err = call("report", "b", "c", "-o", tmp_path / "none")
    assert (code, out, err.count("\n")) == (2, "", 1) and "there is no job 'b'" in err
    assert not (tmp_path / "none").exists()


def test_damaged_records_and_jobs_among_others_are_left_out_and_named(call, remembered, tmp_path, monkeypatch):
    from fedscale_ext.report.plots import comparison_plots, job_plots

    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    record, sweep = jobs.folder("a") / "job.json", sweep_records.folder() / "b-sweep.json"
    record.write_text("{half")
    sweep.write_text("{half")
    (remembered / "a-s1" / "now" / "header.json").write_text("{half")
    code, _, err = call("report", "a", "b-sweep", "a-sweep", "-o", tmp_path / "out")
    assert code == 0 and err.splitlines()[:2] == [
        f"note: The report leaves out a: the record {record} of job a is damaged; delete that folder.",
        f"note: The report leaves out b-sweep: the record {sweep} of sweep b-sweep is damaged; delete it.",
    ]
    damage = f"A job is left out: {remembered}/a-s1/now/header.json is damaged: it is no JSON."
    assert damage in err and damage in (tmp_path / "out/report.html").read_text()
    record.unlink()
    assert call("report", "a", "-o", tmp_path / "out")[0] == 0  # the arm of a sweep that can be read
    assert sweep_records.of_job("a-s0").name == "a-sweep"
    code, out, err = call("report", "c", remembered / "a-s1" / "now", "-o", tmp_path / "none")
    assert (code, out, err.count("\n")) == (2, "", 1) and "header.json is damaged" in err
    code, out, err = call("leaderboard", "submit", "c")
    assert (code, out, err.count("\n")) == (2, "", 1) and f"the record {sweep} of sweep b-sweep is damaged" in err


def test_a_word_is_a_folder_a_sweep_a_job_or_an_arm(remembered):
    def folders(words):
        return naming.find_jobs(words).folders

    both = [remembered / "a-s0" / "now", remembered / "a-s1" / "now"]
    assert naming.find_jobs(["a-sweep"]) == (both, ["a-s2"])
    assert folders(["a"]) == [remembered / "a" / "now"]
    jobs.forget("a")
    assert folders(["a"]) == both
    assert folders(["a-s1", str(both[1]), "a"]) == [both[1], both[0]]


def test_a_sweep_is_its_runs_whatever_its_jobs_ran_before_or_since(call, remembered):
    alone, first = run_again("a-s1", remembered), remembered / "a-s0" / "now"
    assert naming.find_jobs(["a-sweep"]).folders == [first, remembered / "a-s1" / "now"]
    assert naming.find_jobs(["a-s1"]) == ([alone], [])
    anew = start_anew(remembered)
    assert naming.find_jobs(["a-sweep"]) == ([anew], ["a-s1", "a-s2"])
    assert naming.find_jobs([str(anew), "a-sweep", str(alone)]) == ([anew, alone], ["a-s1", "a-s2"])
    with pytest.raises(UserError, match=r"a-sweep is a sweep of 3 jobs; load one of them at a time: .*/a-s0/anew$"):
        load("a-sweep")


def test_a_folder_that_is_called_as_a_job_does_not_hide_the_job(call, remembered, tmp_path, monkeypatch):
    """A method's package and its job have one name after ``methods new``."""
    (tmp_path / "a-s1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert naming.find_jobs(["a-s1"]).folders == [remembered / "a-s1" / "now"]


def test_the_status_of_a_sweep_is_that_of_its_runs(call, remembered):
    def status():
        return [line.split()[:3] for line in call("driver", "status", "a-sweep")[1].splitlines()[1:]]

    assert [row[:2] for row in status()] == [["a-s0", "finished"], ["a-s1", "finished"], ["a-s2", "not"]]
    run_again("a-s1", remembered)
    assert status()[1] == ["a-s1", "replaced"]
    jobs.forget("a-s1")
    assert status()[1] == ["a-s1", "forgotten"]
    start_anew(remembered)
    assert [row[:2] for row in status()] == [["a-s0", "stopped"], ["a-s1", "no"], ["a-s2", "not"]]


def test_what_is_no_job_is_one_sentence(call, remembered, tmp_path):
    for word, sentence in (("b", "there is no job 'b'"), (tmp_path, "is no log folder of a job")):
        code, out, err = call("report", word, "-o", tmp_path / "out")
        assert (code, out) == (2, "") and sentence in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    assert call("report", tmp_path / "empty")[2].endswith("it holds no header.json\n")
    newest = write_job(tmp_path / "many" / "a" / "now", job_name="a")
    os.utime(write_job(tmp_path / "many" / "b" / "now", job_name="b") / "header.json", ns=(1, 1))
    message = call("report", tmp_path / "many")[2]
    assert message.endswith(f"it holds no header.json; it holds 2 jobs, the newest is {newest}\n")
    assert f"it holds 1 job, the newest is {newest}\n" in call("report", tmp_path / "many" / "a")[2]
    assert call("report")[0] == 2
    sweep_records.write(Sweep("b-sweep", "conf", (), {}, (Point("b-s0", "b", 0, ()),), NOBODY))
    with pytest.raises(UserError, match="no job of the sweep b has begun to train yet"):
        naming.find_jobs(["b"])
