"""``fedscale report`` on finished jobs, and what a word on the command line stands for."""

import os

import pytest
from written_job import write_job

from fedscale_ext.cli import jobs, naming, sweeps
from fedscale_ext.cli.processes import Proc
from fedscale_ext.cli.sweeps import Point, Sweep
from fedscale_ext.errors import UserError

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
    sweeps.write(Sweep("a-sweep", "conf", (), {}, points, NOBODY))
    return tmp_path / "logs"


def test_a_report_of_a_sweep_by_its_name(call, remembered, tmp_path, monkeypatch):
    from fedscale_ext.report import comparison, single

    monkeypatch.setattr(comparison, "plots", lambda arms: {})
    monkeypatch.setattr(single, "plots", lambda job: {})
    code, out, err = call("report", "a-sweep", "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["jobs", "accuracy", "%"]
    assert lines[1].split()[:2] == ["fedtrans", "2"] and "±" in lines[1]
    assert lines[2] == f"report   {tmp_path}/out/report.html"
    assert (tmp_path / "out" / "report.html").is_file() and (tmp_path / "out" / "figures.csv").is_file()
    short = write_job(tmp_path / "logs" / "short" / "now", job_name="short", rounds=3)
    code, out, err = call("report", "a-sweep", short, "-o", tmp_path / "out")
    assert code == 0 and len(out.splitlines()) == 6  # a row of its own
    assert err.startswith("note: These jobs have different numbers of rounds (3, 10): ") and err.count("\n") == 1
    (short / "metrics.jsonl").write_text("")
    code, out, err = call("report", "a-sweep", short, "-o", tmp_path / "out")
    assert (code, err) == (0, "note: Left out, as no round of it has ended yet: short.\n")
    code, out, err = call("report", short, "-o", tmp_path / "out")
    assert (code, out) == (2, "") and "holds no metrics.jsonl with a round" in err


def test_a_word_is_a_folder_a_sweep_a_job_or_an_arm(remembered):
    both = [remembered / "a-s0" / "now", remembered / "a-s1" / "now"]
    assert naming.folders(["a-sweep"]) == both  # the third has not begun
    assert naming.folders(["a"]) == [remembered / "a" / "now"]
    jobs.forget("a")
    assert naming.folders(["a"]) == both
    assert naming.folders(["a-s1", str(both[1]), "a"]) == [both[1], both[0]]


def test_what_is_no_job_is_one_sentence(call, remembered, tmp_path):
    for word, sentence in (("b", "there is no job 'b'"), (tmp_path, "is no log folder of a job")):
        code, out, err = call("report", word, "-o", tmp_path / "out")
        assert (code, out) == (2, "") and sentence in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    assert call("report", tmp_path / "empty")[2].endswith("it holds no header.json\n")
    newest = write_job(tmp_path / "many" / "a" / "now", job_name="a")
    os.utime(write_job(tmp_path / "many" / "b" / "now", job_name="b") / "header.json", ns=(1, 1))
    told = call("report", tmp_path / "many")[2]
    assert told.endswith(f"it holds no header.json; it holds 2 jobs, the newest is {newest}\n")
    assert f"it holds 1 job, the newest is {newest}\n" in call("report", tmp_path / "many" / "a")[2]
    assert call("report")[0] == 2
    sweeps.write(Sweep("b-sweep", "conf", (), {}, (Point("b-s0", "b", 0, ()),), NOBODY))
    with pytest.raises(UserError, match="no job of the sweep b has begun to train yet"):
        naming.folders(["b"])
