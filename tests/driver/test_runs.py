"""Which run of a job a start writes into, and a resumed job continues."""

import json

import pytest

from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.named_files import file_digests
from fedscale_ext.driver import runs
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.processes import Proc

KEYS = {"job_name": "fake", "learning_rate": 0.05}


def config(tmp_path, **keys):
    return make_config({}, {**KEYS, "log_path": str(tmp_path / "here"), **keys})


def write_run(folder, **keys):
    """A run that has a checkpoint, of a job with these keys."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-000001.safetensors").touch()
    settings = make_config({}, {**KEYS, **keys}).echo()
    (folder / "header.json").write_text(json.dumps({"config": settings}, default=str))


def last_run(tmp_path):
    """The record of a run that failed before it had a checkpoint."""
    return Job("fake", "conf.yml", str(tmp_path / "before"), "failed", [], Proc("driver", 1, 1.0))


def choose(config, last, overrides=()):
    notices = []
    return runs.choose_run(config, last, True, overrides, notices.append), notices


@pytest.mark.parametrize(
    ("named", "checkpoints", "taken"),
    [
        (False, {"before"}, "before"),
        (False, {"before", "here"}, "before"),
        (False, {"here"}, "here"),  # the last run failed before it had one
        (True, {"before", "here"}, "here"),
        (True, {"before"}, "before"),
        (True, set(), "before"),
    ],
)
def test_a_job_is_resumed_where_it_has_a_checkpoint(tmp_path, named, checkpoints, taken):
    for folder in checkpoints:
        write_run(tmp_path / folder / "logs" / "fake" / f"run_{folder}")
    overrides = ["log_path=here"] if named else []
    (folder, stamp), notices = choose(config(tmp_path), last_run(tmp_path), overrides)
    assert (folder, stamp) == (str(tmp_path / taken), f"run_{taken}" if checkpoints else "failed")
    stands_in = bool(checkpoints) and not (named and taken == "here")
    assert any(f"has no checkpoint; the job continues run run_{taken}" in notice for notice in notices) == stands_in


def test_the_last_run_comes_before_a_newer_checkpoint_of_another(tmp_path):
    write_run(tmp_path / "before" / "logs" / "fake" / "failed")
    write_run(tmp_path / "before" / "logs" / "fake" / "other")  # the newer one
    assert choose(config(tmp_path), last_run(tmp_path)) == ((str(tmp_path / "before"), "failed"), [])


def test_naming_the_last_runs_log_path_again_changes_nothing(tmp_path):
    last = last_run(tmp_path)
    here = config(tmp_path, log_path=last.log_path)
    write_run(tmp_path / "before" / "logs" / "fake" / "older", learning_rate=0.1)
    with pytest.raises(UserError, match="the run before it"):
        choose(here, last, ["log_path=before"])
    write_run(last.log_dir)
    write_run(tmp_path / "before" / "logs" / "fake" / "newer")
    assert choose(here, last, ["log_path=before"]) == ((last.log_path, "failed"), [])


def test_a_copy_of_the_last_run_comes_before_others_in_its_folder(tmp_path):
    for stamp in ("failed", "newer"):
        write_run(tmp_path / "here" / "logs" / "fake" / stamp)
    assert choose(config(tmp_path), last_run(tmp_path), ["log_path=here"])[0] == (str(tmp_path / "here"), "failed")


def test_a_run_before_the_last_stands_in_only_with_the_same_settings(tmp_path):
    folder = tmp_path / "before" / "logs" / "fake" / "older"
    write_run(folder, **{"rounds": 3, "fedmd.groups": [1, 2]})
    assert choose(config(tmp_path, **{"moss.lr": 0.1}), last_run(tmp_path))[0][1] == "older"
    with pytest.raises(UserError, match=r"has no checkpoint, and the run before it, .*/older, has other settings: "
                                        "learning_rate was 0.05 and is 0.1; start the job anew"):  # fmt: skip
        choose(config(tmp_path, learning_rate=0.1), last_run(tmp_path))
    (folder / "header.json").unlink()
    with pytest.raises(UserError, match=r"is of unknown settings: its header.json cannot be read"):
        choose(config(tmp_path), last_run(tmp_path))


def test_a_named_run_is_taken_whatever_ran_last(tmp_path):
    named = config(tmp_path, time_stamp="mine")
    assert choose(named, last_run(tmp_path), ["time_stamp=mine"]) == ((str(tmp_path / "here"), "mine"), [])
    assert choose(named, None, ["time_stamp=mine"])[0][1] == "mine"
    with pytest.raises(UserError, match="job fake has no earlier run to resume"):
        choose(config(tmp_path), None)


def test_other_settings_are_told_whether_a_run_has_finished_or_not(tmp_path):
    folder = tmp_path / "before" / "logs" / "fake" / "failed"
    write_run(folder, method="fedtrans", **{"fedtrans.beta": 0.1, "moss.lr": 0.1})
    same = {"method": "fedtrans", "fedtrans.beta": 0.1, "rounds": 6, "ps_port": 7000}
    runs.check_unchanged(config(tmp_path, **same), folder)
    with pytest.raises(UserError, match=r"job fake ran with other settings: fedtrans.beta was 0.1 and is 0.2; resume"):
        runs.check_unchanged(config(tmp_path, **{**same, "fedtrans.beta": 0.2}), folder)
    with pytest.raises(UserError, match='method was "fedtrans" and is "fedavg"'):
        runs.check_unchanged(config(tmp_path), folder)
    (folder / "header.json").write_text("{")
    runs.check_unchanged(config(tmp_path), folder)  # the aggregator compares with the checkpoint


@pytest.mark.parametrize(
    ("key", "value"), [("stop_gain", 0.5), ("stop_patience", 3), ("stop_unit", "evaluations"), ("min_updates", 2)]
)
def test_settings_that_end_a_job_or_a_round_earlier_are_other_settings(tmp_path, key, value):
    folder = tmp_path / "before" / "logs" / "fake" / "failed"
    write_run(folder, stop_gain=0.01)
    runs.check_unchanged(config(tmp_path, stop_gain=0.01), folder)
    with pytest.raises(UserError, match=f"job fake ran with other settings: {key} was .* and is "):
        runs.check_unchanged(config(tmp_path, **{"stop_gain": 0.01, key: value}), folder)


def test_a_run_that_states_no_stop_keys_had_their_defaults(tmp_path):
    folder = tmp_path / "before" / "logs" / "fake" / "failed"
    write_run(folder)
    path = folder / "header.json"
    settings = json.loads(path.read_text())["config"]
    keys = ("stop_gain", "stop_patience", "stop_unit", "min_updates")
    path.write_text(json.dumps({"config": {key: value for key, value in settings.items() if key not in keys}}))
    runs.check_unchanged(config(tmp_path), folder)
    with pytest.raises(UserError, match=r"stop_gain was null and is 0\.01"):
        runs.check_unchanged(config(tmp_path, stop_gain=0.01), folder)


def test_other_contents_of_a_file_are_told_before_processes_start(tmp_path):
    folder, boards = tmp_path / "before" / "logs" / "fake" / "failed", tmp_path / "boards.csv"
    boards.write_text("one")
    now = config(tmp_path, device_conf_file=str(boards))
    write_run(folder, device_conf_file=str(boards))
    runs.check_unchanged(now, folder)  # of a release that wrote no digests
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps({**header, "named_files": file_digests(now)}))
    runs.check_unchanged(now, folder)
    boards.write_text("two")
    with pytest.raises(UserError, match=f"with other settings: device_conf_file {boards} had other contents; resume"):
        runs.check_unchanged(now, folder)
    runs.check_unchanged(now, folder, files_here=False)  # the aggregator's machine has others
    for damaged in ([], {"device_conf_file": []}, {"device_conf_file": {str(boards): 1}}):
        (folder / "header.json").write_text(json.dumps({**header, "named_files": damaged}))
        runs.check_unchanged(now, folder)


def test_fewer_rounds_than_the_run_has_done_are_refused_whichever_run_it_is(tmp_path):
    last = last_run(tmp_path)
    run, before = last.log_dir, last.log_dir.with_name("before")
    for folder in (run, before):
        write_run(folder)
        for round in (4, 5):
            (folder / "checkpoints" / f"checkpoint-{round:06}.safetensors").touch()
    eight = config(tmp_path, rounds=8)
    last.round = {"round": 10}
    with pytest.raises(UserError, match=r"^job fake has done 10 rounds already, more than the 8 that are asked for; "
                                        r"raise rounds, or start it anew without --resume$"):  # fmt: skip
        runs.check_rounds(eight, run, last)
    runs.check_rounds(config(tmp_path, rounds=10), run, last)
    runs.check_rounds(eight, before, last)
    last.round = None  # stopped before its first round since it was resumed
    for folder, record in ((run, last), (before, last), (before, None)):
        with pytest.raises(UserError, match="job fake has done 5 rounds already, more than the 4"):
            runs.check_rounds(config(tmp_path, rounds=4), folder, record)
        runs.check_rounds(config(tmp_path, rounds=5), folder, record)
    runs.check_rounds(config(tmp_path, rounds=4), run, last, resume_from=4)  # goes back before
    with pytest.raises(UserError, match=r"job fake cannot go on after round 5: 4 rounds are asked for; raise rounds"):
        runs.check_rounds(config(tmp_path, rounds=4), run, last, resume_from=5)


SCALEFL = {"method": "scalefl", "scalefl.self_kd": True, "scalefl.kd_after": 0.5}


@pytest.mark.parametrize(
    ("keys", "setting"),
    [
        (SCALEFL, "scalefl.kd_after: 0.5"),
        ({"method": "fedkd", "fedkd.types": ["cnn_small"]}, "the share of fedkd.end_energy"),
        ({"method": "fednas", "fednas.search_rounds": 3}, "fednas.schedule: cosine"),
        ({"method": "hypemefed", "hypemefed.warmup": 0.5}, "hypemefed.warmup: 0.5"),
    ],
)
def test_more_rounds_are_refused_where_earlier_ones_would_have_been_others(tmp_path, keys, setting):
    run = tmp_path / "run"
    write_run(run, **keys, rounds=4)
    runs.check_unchanged(config(tmp_path, **keys, rounds=4), run)
    for rounds in (3, 8):
        with pytest.raises(UserError) as refusal:
            runs.check_unchanged(config(tmp_path, **keys, rounds=rounds), run)
        sentence = (
            f"job fake ran with other settings: rounds was 4 and is {rounds}, which {setting} follows; resume it with"
        )
        assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize(
    "keys",
    [
        {"method": "fedavg"},
        {**SCALEFL, "scalefl.self_kd": False},
        {**SCALEFL, "scalefl.kd_after": 0.0},
        {**SCALEFL, "scalefl.kd_after": 1.0},
        {"method": "fedkd", "fedkd.types": ["cnn_small"], "fedkd.start_energy": 0.98},
        {"method": "fednas", "fednas.search_rounds": 4},  # its cosine ends with the search so far
        {"method": "fednas", "fednas.search_rounds": 3, "fednas.schedule": "job"},
        {"method": "hypemefed"},
        {"method": "hypemefed", "hypemefed.warmup": 0.5, "hypemefed.missing": "trained"},
    ],
)
def test_more_rounds_are_no_other_setting_where_earlier_ones_stay_the_same(tmp_path, keys):
    run = tmp_path / "run"
    write_run(run, **keys, rounds=4)
    runs.check_unchanged(config(tmp_path, **keys, rounds=8), run)
