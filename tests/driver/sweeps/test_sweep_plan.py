"""Which jobs a sweep has, and how many fit."""

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.sweeps import sweep_plan


@pytest.mark.parametrize(("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("1, 5,2-3", [1, 5, 2, 3])])
def test_seeds(text, seeds):
    assert sweep_plan.read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-99999", "1,1", "0-3,2", "9" * 30])
def test_seeds_that_are_none(text):
    with pytest.raises(UserError, match="--seeds"):
        sweep_plan.read_seeds(text)


def test_grid_values_may_be_lists():
    assert sweep_plan.read_grid(["a.rates=[1, 0.5],[1]", "b=x"]) == {"a.rates": ["[1, 0.5]", "[1]"], "b": ["x"]}
    nets = ["n:Net(a=[1, 2], b=3)", "torchvision:resnet18", "n:Net"]
    assert sweep_plan.read_grid([f"model={','.join(nets)}"]) == {"model": nets}


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
    sentence = f"--grid: learning_rate={values[0]} and learning_rate={values[1]} mean the same; remove one of them"
    with pytest.raises(UserError, match=sentence):
        sweep_plan.read_plan(conf, [], "0,1", [f"learning_rate=0.2,{','.join(values)}"])
    code, _, err = call("driver", "check", conf, "--grid", f"learning_rate={','.join(values)}")
    assert (code, err) == (2, f"fedscale: {sentence}\n")


@pytest.mark.parametrize("values", [["1.0", "1"], ["0.5", "5e-1"]])
def test_equal_numbers_of_a_hyperparameter_are_one_job(write_conf, values):
    with pytest.raises(UserError, match="mean the same; remove one of them"):
        sweep_plan.read_plan(write_conf(), [], None, ["method=heterofl", f"heterofl.clip_norm={','.join(values)}"])
    levels = "heterofl.rates=[1, 0.5],[1.0, 0.5]"
    with pytest.raises(UserError, match="mean the same; remove one of them"):
        sweep_plan.read_plan(write_conf(), [], None, ["method=heterofl", levels])


def test_jobs_that_differ_in_what_they_do_not_read_run_once(write_conf, call):
    conf = write_conf({"stop_patience": 3})
    grid = ["method=fedavg,heterofl", "heterofl.mask=true,false", "stop_gain=0.1,null"]
    plan = sweep_plan.read_plan(conf, [], "0,1", grid)
    assert [point.name for point in plan.points] == [config.fedscale.job_name for config in plan.configs]
    assert list(dict.fromkeys(point.arm for point in plan.points)) == [
        "fake-method_fedavg-mask_true-stop_gain_0.1", "fake-method_fedavg-mask_true-stop_gain_null",
        *(f"fake-method_heterofl-mask_{mask}-stop_gain_{gain}"
          for mask in ("true", "false") for gain in ("0.1", "null")),
    ]  # fmt: skip
    assert plan.repeats == (
        "4 of 16 jobs of the grid would repeat another one, as they do not read what differs, and are left out: "
        "fake-method_fedavg-mask_false-stop_gain_0.1 (as fake-method_fedavg-mask_true-stop_gain_0.1), "
        "fake-method_fedavg-mask_false-stop_gain_null (as fake-method_fedavg-mask_true-stop_gain_null)"
    )
    options = [word for text in grid for word in ("--grid", text)]
    code, out, _ = call("driver", "check", conf, "--seeds", "0,1", *options)
    assert code == 0 and f"note: {plan.repeats}\n" in out and out.endswith("12 jobs can start\n")


def test_jobs_that_read_what_differs_all_run(write_conf):
    plan = sweep_plan.read_plan(write_conf(), [], None, ["method=heterofl,fedrolex", "heterofl.mask=true,false"])
    assert len(plan.points) == 3 and plan.repeats is not None
    plan = sweep_plan.read_plan(write_conf(), [], "0-1", ["method=fedavg,heterofl"])
    assert len(plan.points) == 4 and plan.repeats is None


def test_jobs_that_differ_where_they_run_alone_are_two(write_conf):
    plan = sweep_plan.read_plan(write_conf(), [], None, ["worker_ips=localhost:[1],localhost:[2]"])
    assert len(plan.configs) == 2 and plan.repeats is None


def test_a_bad_setting_names_the_job_that_has_it(write_conf):
    conf = str(write_conf())
    with pytest.raises(UserError, match=r"job fake-rounds_0 of the sweep: .*rounds"):
        sweep_plan.read_plan(conf, [], None, ["rounds=3,0"]).refuse_faults()


def test_jobs_that_differ_in_what_another_key_of_the_method_switches_off_run_once(write_conf):
    grid = ["scalefl.self_kd=true,false", "scalefl.gamma=0.1,0.2"]
    plan = sweep_plan.read_plan(write_conf({"method": "scalefl"}), [], None, grid)
    assert len(plan.points) == 3 and plan.repeats is not None
    assert "self_kd_false-gamma_0.2 (as fake-self_kd_false-gamma_0.1)" in plan.repeats


@pytest.mark.parametrize(
    ("method", "grid", "jobs"),
    [
        ("fedtrans", ["fedtrans.warmup=on,reinit", "fedtrans.align=lift,prefix"], 3),
        ("fedtrans", ["fedtrans.similarity=lineage,one", "fedtrans.warmup=on,reinit", "fedtrans.align=lift,prefix"], 7),
        ("fedtrans", ["fedtrans.eta=1,0.98", "fedtrans.decay_clock=global,age"], 3),
        ("fedavg", ["decay_factor=1,0.9", "decay_round=1,2"], 3),
        ("fedavg", ["decay_factor=0.9,0.8", "decay_round=5000"], 1),
    ],
)
def test_jobs_that_differ_in_what_two_keys_or_a_number_leave_unread_run_once(write_conf, method, grid, jobs):
    plan = sweep_plan.read_plan(write_conf({"method": method}), [], None, grid)
    assert len(plan.points) == jobs and plan.repeats is not None and not plan.faults


def test_a_sweep_waits_for_the_lock_of_a_job_not_for_its_record(state):
    (point,) = sweep_plan.points("fake", [0], {})
    jobs.write(jobs.Job(point.name, "", "/tmp", "t", [], Proc("driver", 1, 1.0), host="a node that died"))
    sweep_plan.refuse_running([point])
    with jobs.claim(point.name), pytest.raises(UserError, match="job fake-s0 is running; stop it with"):
        sweep_plan.refuse_running([point])
