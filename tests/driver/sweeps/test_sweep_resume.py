"""Sweeps that were stopped or had jobs that failed, continued with --resume."""

import json
import signal

from fedscale_ext.driver import jobs
from fedscale_ext.driver.sweeps import sweep_records
from tests.driver.conftest import done, processes_of, wait_until
from tests.driver.fake_sweeps import NOTE, checkpoint, header, job, run


def test_an_interrupt_stops_all_and_resume_goes_on(fedscale, state, write_conf):
    words = [write_conf(), "--seeds", "0-1", "--at-once", "1"]
    process = fedscale("driver", "start", *words, FAKE_AGGREGATOR="wait", FAKE_EXECUTOR="wait")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    process.send_signal(signal.SIGINT)
    code, out, err = done(process)
    assert code == 130
    assert err == f"{NOTE}fedscale: the sweep was stopped; the same command with --resume continues it\n"
    assert not processes_of(state)
    assert job("fake-s0").status == "stopped" and job("fake-s1") is None
    (job("fake-s0").log_dir / "checkpoints").mkdir(parents=True)
    (job("fake-s0").log_dir / "checkpoints" / "checkpoint-000003.safetensors").touch()
    code, out, err = run(fedscale, *words, "--resume")
    assert (code, err) == (0, NOTE + "note: [nothing] happened (all 2 jobs)\n")
    assert "fake-s0: goes on from its checkpoint" in out and "fake-s1: starts" in out
    assert "--resume=True" in job("fake-s0").argv and "--resume=True" not in job("fake-s1").argv
    assert sweep_records.read("fake-sweep").runs == {name: str(job(name).log_dir) for name in ("fake-s0", "fake-s1")}


def test_a_job_that_finished_while_the_sweep_was_stopped_counts(fedscale, state, write_conf, tmp_path):
    words = [write_conf(), "--seeds", "0-1", "--at-once", "1"]
    process = fedscale("driver", "start", *words, FAKE_AGGREGATOR="plotting", FAKE_MARKER=str(tmp_path / "marker"))
    wait_until(lambda: (tmp_path / "marker.trained").exists() and (record := job("fake-s0")) and record.round)
    job("fake-s0").log_dir.mkdir(parents=True, exist_ok=True)
    (job("fake-s0").log_dir / "summary.json").write_text("{}")  # only pictures are missing
    process.send_signal(signal.SIGINT)
    code, out, err = done(process)
    assert code == 130 and job("fake-s0").status == "finished"
    assert "fake  1 of 2" in out and "fake-s0: finished" in out and "was stopped" in err


def test_jobs_that_a_resumed_sweep_leaves_out_are_told_and_stay_in_its_record(fedscale, state, write_conf):
    conf = write_conf({"rounds": 12}, worker_ips=["localhost:[1]"])
    assert run(fedscale, conf, "--grid", "batch_size=5,6")[0] == 0
    before = sweep_records.read("fake-sweep")
    code, out, err = run(fedscale, conf, "--grid", "batch_size=6,7", "--resume")
    assert code == 0, err
    assert "1 job of the sweep that these options do not name is left as before: fake-batch_size_5" in out
    assert [line.split()[0] for line in out.splitlines() if "of 1 " in line] == [
        "fake-batch_size_6",
        "fake-batch_size_7",
    ]
    after = sweep_records.read("fake-sweep")
    assert set(after.runs) == {f"fake-batch_size_{size}" for size in (5, 6, 7)} == {p.name for p in after.points}
    assert after.runs["fake-batch_size_5"] == before.runs["fake-batch_size_5"]
    assert after.grid == {"batch_size": ["5", "6", "7"]}


def test_resume_continues_runs_of_the_sweep_alone(fedscale, state, write_conf, tmp_path):
    conf = write_conf({"rounds": 12})
    older = tmp_path / "out" / "logs" / "fake-s1" / "older"
    checkpoint(older)
    words = [conf, "--seeds", "0-1", "--at-once", "1"]
    env = {"FAKE_AGGREGATOR": "die once", "FAKE_MARKER": str(tmp_path / "marker"), "FAKE_EXECUTOR": "stay"}
    assert run(fedscale, *words, **env)[0] == 1  # the first job dies without a checkpoint
    header("fake-s1", learning_rate=0.05)
    failed = job("fake-s0").log_dir
    checkpoint(tmp_path / "out" / "logs" / "fake-s0" / "older")
    code, out, _ = run(fedscale, *words, "--resume")
    assert code == 0 and "1 done before" in out
    assert "fake-s0: starts anew, for its run in this sweep has no checkpoint" in out
    assert "--resume=True" not in job("fake-s0").argv
    runs = sweep_records.read("fake-sweep").runs
    assert runs["fake-s0"] == str(job("fake-s0").log_dir) and job("fake-s0").log_dir.name != "older"
    assert failed.parent == job("fake-s0").log_dir.parent
    # a start without --resume gives every job a run of its own
    assert run(fedscale, *words[:1], "--seeds", "0", "--set=time_stamp=new")[0] == 0
    assert sweep_records.read("fake-sweep").runs == {"fake-s0": str(failed.with_name("new"))}


def test_a_record_without_runs_takes_the_last_run_of_each_job(fedscale, state, write_conf):
    assert run(fedscale, write_conf(), "--seeds", "0")[0] == 0
    path = sweep_records.folder() / "fake-sweep.json"
    record = json.loads(path.read_text())
    del record["runs"]
    path.write_text(json.dumps(record))
    assert sweep_records.read("fake-sweep").runs == {"fake-s0": str(job("fake-s0").log_dir)}


def test_resume_leaves_what_has_finished_unless_it_was_another_job(fedscale, call, state, write_conf):
    conf = write_conf({"rounds": 12})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0", learning_rate=0.05, **{"fedmd.groups": [1, 2]})
    before = job("fake-s0").started
    code, out, _ = call("driver", "start", conf, "--seeds", "0", "--resume")
    assert code == 0 and "1 done before" in out and "fake  1 of 1    50.00" in out
    assert job("fake-s0").started == before
    code, _, err = call("driver", "start", conf, "--seeds", "0", "--resume", "--set", "learning_rate=0.3")
    assert code == 2 and "job fake-s0 ran with other settings: learning_rate was 0.05 and is 0.3; resume the" in err
    sweeps_before = sweep_records.read("fake-sweep")
    record = job("fake-s0")
    record.status = "stopped"
    jobs.write(record)
    checkpoint(record.log_dir)
    code, out, err = call("driver", "start", conf, "--seeds", "0,1", "--resume", "--set", "learning_rate=0.3")
    assert code == 2 and out == "" and "job fake-s0 ran with other settings" in err  # half-way, too
    assert sweep_records.read("fake-sweep") == sweeps_before and job("fake-s1") is None


def test_a_sweep_with_fewer_rounds_than_a_job_has_done_starts_nothing(fedscale, call, state, write_conf):
    conf = write_conf({"rounds": 12})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0")
    before = sweep_records.read("fake-sweep")
    fewer = [conf, "--seeds", "0-1", "--resume", "--set=rounds=8"]
    sentence = "fedscale: job fake-s0 has done {} rounds already, more than the 8 that are asked for; raise rounds, or "
    for status, rounds in (("finished", 12), ("stopped", 11)):
        record = job("fake-s0")
        record.status, record.round = status, {"round": rounds, "rounds": 12}
        jobs.write(record)
        code, out, err = call("driver", "start", *fewer)
        assert (code, out) == (2, "") and err == sentence.format(rounds) + "start the sweep anew without --resume\n"
        assert sweep_records.read("fake-sweep") == before and jobs.names() == ["fake-s0"]
        if status == "finished":
            checkpoint(record.log_dir)
    assert call("driver", "start", conf, "--seeds", "0", "--resume", "--set=rounds=13")[0] == 0  # more may be asked for


def test_a_job_that_was_stopped_after_its_last_round_counts_with_its_accuracy(fedscale, state, write_conf):
    words = [write_conf({"rounds": 12}), "--seeds", "0"]
    code, out, _ = run(fedscale, *words, FAKE_AGGREGATOR="done before")
    assert code == 0 and "fake  1 of 1    50.00" in out
    assert job("fake-s0").complete(12)
