"""What hosts must have in common."""

from dataclasses import replace

import pytest

from fedscale_ext.cluster import check
from fedscale_ext.cluster.check import Report
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError

PLACES = {"aggregator": "a", "executor 1": "b", "executor 2": "c"}
SAME = Report("3.11", "2.13.0", "2.4.6", "code", 1, data="digest")
HOSTS = {"a": replace(SAME, data=None, port=7000), "b": SAME, "c": SAME}
CONFIG = make_config({"ps_ip": "a", "worker_ips": ["b:[1]", "c:[0,1]"]}, {"data_dir": "/data", "use_cuda": False})


def test_equal_hosts_pass():
    check.compare(HOSTS, PLACES, CONFIG)
    assert check.pythons(HOSTS) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"torch": "2.4.0"}, "c has torch 2.4.0 and a 2.13.0: install the same version on both"),
        ({"numpy": "1.26"}, "c has numpy 1.26 and a 2.4.6"),
        ({"code": "else"}, "c has other code of method fedavg than a"),
        ({"data": "else"}, "data_dir /data holds other samples or clients on c than on b: copy the folder anew"),
        ({"skew_s": 61.0}, "the clocks of c and a differ by 61 s"),
    ],
)
@pytest.mark.parametrize("arrived", ["abc", "cba"])
def test_what_differs_is_named_with_its_host_whichever_reports_first(change, sentence, arrived):
    reports = {**HOSTS, "c": replace(SAME, **change)}
    with pytest.raises(UserError) as error:
        check.compare({host: reports[host] for host in arrived}, PLACES, CONFIG)
    assert sentence in str(error.value)


def test_a_gpu_that_is_not_there():
    config = make_config({"ps_ip": "a", "worker_ips": ["b:[1]", "c:[0,1]"]}, {"use_cuda": True})
    with pytest.raises(UserError, match="GPU 1 of c, where torch finds 1: correct worker_ips"):
        check.compare(HOSTS, PLACES, config)


def test_other_pythons_are_told():
    assert check.pythons({"a": SAME, "b": replace(SAME, python="3.12")}) == "Python 3.11 on a, Python 3.12 on b"


def test_a_report_knows_how_far_the_clock_is_ahead():
    event = {
        "python": "3.11",
        "torch": "2",
        "numpy": "2",
        "code": "c",
        "gpus": 0,
        "time": 1100.0,
        "received_at": 1000.0,
    }
    assert Report.read(event).skew_s == 100


def test_the_last_run_is_continued_rather_than_a_newer_checkpoint(tmp_path):
    config = make_config({}, {"job_name": "j", "log_path": str(tmp_path), "time_stamp": "last"})
    assert check.run_with_checkpoint(config) is None
    for stamp in ("last", "newer"):
        path = tmp_path / "logs" / "j" / stamp / "checkpoints" / "checkpoint-000001.safetensors"
        path.parent.mkdir(parents=True)
        path.touch()
    assert check.run_with_checkpoint(config) == "last"
    (tmp_path / "logs" / "j" / "last" / "checkpoints" / "checkpoint-000001.safetensors").unlink()
    assert check.run_with_checkpoint(config) == "newer"
