"""Files and data that change while a sweep runs."""

import json
import os

import pytest

from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.sweeps import sweep, sweep_records
from tests.driver.conftest import done, wait_until
from tests.driver.fake_sweeps import header, job, run


def test_jobs_use_the_configuration_that_was_checked_whatever_the_file_says_by_then(fedscale, state, write_conf):
    conf = write_conf({"learning_rate": 0.05})
    process = fedscale("driver", "start", conf, "--seeds", "0-1", "--at-once", "1", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    write_conf({"learning_rate": 0.9})
    code, _, err = done(process)
    assert code == 0, err
    assert "--learning_rate=0.05" in job("fake-s0").argv and "--learning_rate=0.05" in job("fake-s1").argv
    assert job("fake-s1").conf == str(conf) == sweep_records.read("fake-sweep").conf  # what a person would start again
    assert sweep_records.names() == ["fake-sweep"]
    assert sweep_records.conf_path("fake-sweep").stat().st_mode & 0o777 == 0o600


def test_a_message_of_a_sweeps_job_names_the_users_file(tmp_path, monkeypatch):
    copy = tmp_path / "copy.yml"
    copy.write_text("job_conf:\n- nonsense: 1\n")
    monkeypatch.setattr(sweep, "_wait_for_end", lambda: None)
    monkeypatch.setenv(sweep.VARIABLE, "/home/user/job.yml")
    file = sweep.stop_with_sweep(str(copy))
    with pytest.raises(UserError, match=r"/home/user/job\.yml: unknown job_conf key 'nonsense'"):
        load_config(file)
    assert sweep.stop_with_sweep(str(copy)) is None  # and no sweep started it


def test_a_job_does_not_start_on_a_file_that_was_exchanged_while_the_sweep_ran(fedscale, state, write_conf, tmp_path):
    boards = tmp_path / "boards.csv"
    boards.write_text("one")
    conf = write_conf({"device_conf_file": str(boards)})
    process = fedscale("driver", "start", conf, "--seeds", "0-1", "--at-once", "1", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    boards.write_text("two")
    code, out, err = done(process)
    assert code == 1 and "fake  1 of 2" in out and job("fake-s1") is None
    sentence = f"device_conf_file {boards} has other contents than when the sweep began; restore it, and continue"
    assert f"fake-s1: failed {sentence} the sweep with --resume" in err


def test_a_job_that_read_another_file_counts_as_failed(fedscale, state, write_conf, tmp_path):
    boards = tmp_path / "boards.csv"
    boards.write_text("one")
    conf = write_conf({"device_conf_file": str(boards)})
    process = fedscale("driver", "start", conf, "--seeds", "0", FAKE_AGGREGATOR="slowly")
    wait_until(lambda: (record := job("fake-s0")) and record.round)
    digests = {"device_conf_file": {str(boards): "other"}}
    job("fake-s0").log_dir.mkdir(parents=True, exist_ok=True)
    (job("fake-s0").log_dir / "header.json").write_text(json.dumps({"config": {}, "named_files": digests}))
    code, out, err = done(process)
    assert code == 1 and "fake  0 of 1" in out and "has other contents than when the sweep began" in err


def test_jobs_that_run_side_by_side_are_judged_each_by_the_data_that_it_opened(write_conf):
    names = ["a", "b", "c", "other"]
    configs = [load_config(write_conf(), [f"job_name={name}", f"data_seed={2 if name == 'other' else 1}"])
               for name in names]  # fmt: skip
    for known in ({"a": "11", "b": "11"}, {}):  # from a check, and where none could open the data
        data = sweep._SweepData(configs, known)
        assert data.fault("a", "11") is None and data.exchanged("c") is None
        sentence = data.fault("b", "22")
        assert sentence is not None and " holds other samples or clients than when the sweep began; " in sentence
        assert data.fault("a", "11") is None  # it opened what there was
        assert data.exchanged("c") == sentence and data.exchanged("other") is None
        assert data.fault("other", "22") is None


def test_a_job_on_other_data_is_ended_and_an_older_header_is_none_of_its(fedscale, state, write_conf, tmp_path):
    conf = write_conf({"rounds": 12, "time_stamp": "now"})
    assert run(fedscale, conf, "--seeds", "0")[0] == 0
    header("fake-s0", digest="11")
    older = (
        tmp_path / "out" / "logs" / "fake-s1" / "now" / "header.json"
    )  # of an earlier sweep, which this one replaces
    older.parent.mkdir(parents=True)
    older.write_text(json.dumps({"config": {}, "data": {"digest": "33"}}))
    os.utime(older, (1, 1))
    process = fedscale("driver", "start", conf, "--seeds", "0-2", "--resume", "--at-once", "1", FAKE_AGGREGATOR="wait")
    wait_until(lambda: (record := job("fake-s1")) and record.round)
    header("fake-s1", digest="22")
    code, out, err = done(process)
    assert code == 1 and "fake  1 of 3" in out
    assert "fake-s1: failed data_dir" in err and "fake-s2: failed data_dir" in err and job("fake-s2") is None
    assert list(sweep_records.read("fake-sweep").runs) == ["fake-s0"]  # --resume starts the others anew
