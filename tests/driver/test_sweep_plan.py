"""Which jobs a sweep has, and how many fit."""

import os
from types import SimpleNamespace

import psutil
import pytest

from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import sweep_plan


@pytest.mark.parametrize(("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("1, 5,2-3", [1, 5, 2, 3])])
def test_seeds(text, seeds):
    assert sweep_plan.read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-99999", "1,1", "0-3,2", "9" * 30])
def test_seeds_that_are_none(text):
    with pytest.raises(UserError, match="--seeds"):
        sweep_plan.read_seeds(text)


def test_grid_values_may_be_lists():
    assert sweep_plan.read_grid(["a.rates=[1, 0.5],[1]", "b=x"]) == {"a.rates": ["[1, 0.5]", "[1]"], "b": ["x"]}


@pytest.mark.parametrize(
    "texts", [["a"], ["a="], ["=1"], ["a=1,,2"], ["a=1", "a=2"], ["a=1,1"], ["seed=1,2"], ["ps_port=1"]]
)
def test_grids_that_are_none(texts):
    with pytest.raises(UserError, match="--grid"):
        sweep_plan.read_grid(texts)


def test_every_combination_gets_a_name_and_each_arm_all_seeds():
    points = sweep_plan.points("job", [0, 1], {"fedtrans.beta": ["0.1", "0.2"], "model": ["a/b.json"]})
    assert [point.name for point in points] == [
        f"job-beta_{beta}-model_a_b.json-s{s}" for beta in (0.1, 0.2) for s in (0, 1)
    ]
    assert points[1].settings == ("fedtrans.beta=0.1", "model=a/b.json", "seed=1")
    assert sweep_plan.points("job", [], {"x": ["1"]})[0].name == "job-x_1"
    assert [point.arm for point in sweep_plan.points("job", [3], {})] == ["job"]


def test_too_many_jobs_and_names_that_are_alike_are_refused():
    with pytest.raises(UserError, match="make 2,000 jobs"):
        sweep_plan.points("job", range(1000), {"x": ["1", "2"]})
    for values in (["a/b", "a:b"], ["x" * 99]):
        with pytest.raises(UserError, match="cannot be told apart"):
            sweep_plan.points("job", [], {"x": values})


@pytest.mark.parametrize("values", [["0.05", "0.050"], ["0.05", "5e-2"], ["1", "1.0"]])
def test_two_names_of_one_job_are_refused(write_conf, call, values):
    conf = write_conf()
    grid = {"learning_rate": ["0.2", *values]}
    sentence = f"--grid: learning_rate={values[0]} and learning_rate={values[1]} mean the same; remove one of them"
    with pytest.raises(UserError, match=sentence):
        sweep_plan.checked(conf, [], sweep_plan.points("fake", [0, 1], grid))
    code, _, err = call("driver", "check", conf, "--grid", f"learning_rate={','.join(values)}")
    assert (code, err) == (2, f"fedscale: {sentence}\n")


def test_jobs_that_differ_where_they_run_alone_are_two(write_conf):
    points = sweep_plan.points("fake", [], {"worker_ips": ["localhost:[1]", "localhost:[2]"]})
    assert len(sweep_plan.checked(write_conf(), [], points)) == 2


@pytest.mark.parametrize(
    ("slots", "cuda", "gigabytes", "fits"),
    [("[1]", False, 64, 8), ("[3]", False, 64, 2), ("[16]", False, 64, 1), ("[1]", True, 64, 1), ("[1]", False, 4, 3),
     ("[1]", False, 0.1, 1)],
)  # fmt: skip
def test_as_many_jobs_as_cores_and_memory_take(write_conf, monkeypatch, slots, cuda, gigabytes, fits):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=gigabytes * 1e9))
    config = load_config(write_conf({"use_cuda": cuda}, worker_ips=[f"localhost:{slots}"]))
    assert sweep_plan.at_once(config) == fits


def test_a_bad_setting_names_the_job_that_has_it(write_conf):
    conf = str(write_conf())
    with pytest.raises(UserError, match=r"job fake-rounds_0 of the sweep: .*rounds"):
        sweep_plan.checked(conf, [], sweep_plan.points("fake", [], {"rounds": ["3", "0"]}))
