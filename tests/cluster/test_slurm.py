"""Jobs under Slurm: submitit's script for a queue that is not there, and a real job on its local executor."""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cluster.conftest import wait_for
from fedscale_ext.cli import job_status
from fedscale_ext.cli.driver_commands import app
from fedscale_ext.cluster import joining, slurm, slurm_queue, slurm_task
from fedscale_ext.config.job_config import load_config, make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.util.token import read_token, write_token

submitit = pytest.importorskip("submitit")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def queue(job_file: Path, *overrides: str, **more) -> int:
    display = Display(Console(), Console(stderr=True))
    keys = {"resume": False, "resume_from": None, "hours": 2.0, "options": ["partition=gpu"], **more}
    return slurm.submit(str(job_file), list(overrides), display, **keys)


def fake_queue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch and its kin, which take a script and run nothing; there is no accounting."""
    answers = {"sbatch": "echo Submitted batch job 12", "squeue": "echo PENDING", "sacct": "exit 1"}
    for program in ("sbatch", "srun", "squeue", "sacct", "scancel"):
        path = folder / program
        path.write_text(f'#!/bin/sh\necho {program} "$@" >> {folder}/calls\n{answers.get(program, "true")}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@contextmanager
def run_locally() -> Iterator[None]:
    """Have what is queued run on this machine, by submitit's local executor."""
    with pytest.MonkeyPatch.context() as patch:
        executor = submitit.AutoExecutor
        patch.setattr(submitit, "AutoExecutor", lambda folder, cluster: executor(folder, "local"))
        yield


def test_the_script_asks_for_what_the_configuration_says(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    workers = 'worker_ips=["a:[2]", "b:[2]", "c:[2]"]'
    assert queue(job_file, workers, f"log_path={here}/out") == 0
    job = jobs.find("tiny")
    assert job.status == "queued" and job.cluster["slurm"] == "12"
    folder = Path(job.cluster["folder"])
    (script,) = folder.glob("*_submission.sh")
    lines = set(script.read_text().splitlines())
    assert {"#SBATCH --nodes=3", "#SBATCH --ntasks-per-node=2", "#SBATCH --time=120", "#SBATCH --partition=gpu",
            "#SBATCH --cpus-per-task=2", "#SBATCH --job-name=tiny"} <= lines  # fmt: skip
    assert "srun " in script.read_text() and " --kill-on-bad-exit=1 " in script.read_text()
    assert not any("gpus" in line for line in lines)
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert (folder / "token").read_text().strip() not in script.read_text() + (folder / "plan.json").read_text()
    plan = json.loads((folder / "plan.json").read_text())
    assert f"--token_file={folder}/token" in plan["aggregator"] and "--num_executors=0" in plan["aggregator"]
    assert plan["executors"] == [["--wait", "120", "--number", str(number)] for number in range(1, 7)]
    assert slurm_queue.state(job) == "pending"
    assert slurm_queue.cancel([job]) == 1
    assert "scancel" in (here / "bin/calls").read_text()


def test_a_job_that_waits_or_runs_is_not_queued_again(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[1]"]', f"log_path={here}/out")
    queue(job_file, *words)
    for again in ({}, {"resume": True}):
        with pytest.raises(UserError, match=r"job tiny is in Slurm's queue already \(pending\); take it out with"):
            queue(job_file, *words, **again)
    queue_sweep(job_file, *words)
    with pytest.raises(UserError, match="job tiny-batch_size_5-s1 is in Slurm's queue already"):
        queue_sweep(job_file, *words, resume=True)
    assert (here / "bin/calls").read_text().count("sbatch") == 2


def test_a_queued_job_is_listed_on_every_machine_and_not_forgotten(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    queue(job_file, 'worker_ips=["a:[1]"]', f"log_path={here}/out")
    assert job_status.row("tiny")[1] == "pending"
    result = CliRunner().invoke(app, ["forget", "tiny"])
    assert "job tiny is in Slurm's queue (pending); stop it first with" in str(result.exception)
    (here / "bin/sbatch").unlink()  # a machine that shares the records, but not the queue
    assert job_status.row("tiny")[1] == "queued"
    (here / "bin/sbatch").write_text("")
    (here / "bin/sbatch").chmod(0o755)
    (here / "bin/squeue").write_text("#!/bin/sh\necho CANCELLED\n")
    assert CliRunner().invoke(app, ["forget", "tiny"]).exit_code == 0
    assert jobs.read("tiny") is None


def test_a_finished_job_that_waits_to_go_on_has_not_finished(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    monkeypatch.setattr(slurm, "checked_run", lambda *_: (str(here / "out"), "run"))
    before = here / "out/logs/tiny/run/summary.json"
    before.parent.mkdir(parents=True)
    before.write_text("{}")
    queue(job_file, 'worker_ips=["a:[1]"]', resume=True)
    assert slurm_queue.state(jobs.find("tiny")) == "pending" and before.exists()  # its results stay until it starts
    os.utime(before, (time.time() + 1, time.time() + 1))
    assert slurm_queue.state(jobs.find("tiny")) == "finished"


def test_what_sbatch_refuses_to_resume_stays_as_it_was(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[1]"]', f"log_path={here}/out")
    queue(job_file, *words)
    queue_sweep(job_file, *words)
    answer(here / "bin", "squeue", "TIMEOUT")
    monkeypatch.setattr(slurm, "checked_run", lambda config, last, *_: (last.log_path, last.time_stamp))
    runs = [jobs.find(name).log_dir for name in ("tiny", "tiny-batch_size_5-s1")]
    names = ("summary.json", "models/global.npz", "plot.png", "checkpoints/checkpoint-000001.safetensors")
    results = [run / name for run in runs for name in names]
    for path in results:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (1, 1))  # of an earlier start
    answer(here / "bin", "sbatch", "", 1)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file() and path.name != "calls"}
    for queued in (queue, queue_sweep):
        with pytest.raises(UserError, match=r"sbatch does not take tiny.*it does not say why"):
            queued(job_file, *words, resume=True)
    assert all(path.exists() for path in results)
    # what its tasks would read, and its token, too
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file() and path.name != "calls"} == before
    assert (runs[0] / "slurm/token").stat().st_mode & 0o777 == 0o600


def answer(folder: Path, program: str, words: str, code: int = 0) -> None:
    """Have one of the programs of :func:`fake_queue` say and do this alone."""
    out = "&2" if code else "&1"
    (folder / program).write_text(f"#!/bin/sh\nprintf '{words}\\n' >{out}\nexit {code}\n")


def test_a_refusal_by_sbatch_is_one_sentence_and_leaves_nothing(here, job_file, monkeypatch, capfd):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = "sbatch: error: invalid partition specified: gpuu\\nsbatch: error: Batch job submission failed."
    answer(here / "bin", "sbatch", words, 1)
    before = sorted(here.rglob("*"))
    for queued, name in ((queue, "tiny"), (queue_sweep, "tiny-sweep")):
        with pytest.raises(UserError) as error:
            queued(job_file, 'worker_ips=["a:[1]"]', f"log_path={here}/out")
        assert str(error.value).startswith(
            f"sbatch does not take {name} (invalid partition specified: gpuu; Batch job submission failed): nothing is"
        )
    assert capfd.readouterr().err == ""
    left = [path.relative_to(here) for path in sorted(here.rglob("*")) if path not in before and path.is_file()]
    assert {path.name for path in left} == {"lock", "tiny-sweep.lock"}, left
    assert not list((here / "out/logs").iterdir())


def test_a_refusal_leaves_what_running_jobs_of_the_sweep_write(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[1]"]', f"log_path={here}/out")
    queue_sweep(job_file, *words, seeds="1")
    folder = here / "out/logs/tiny-sweep/slurm"
    before = {path.name for path in folder.iterdir()}
    written = [folder / name for name in ("12_0_0_log.err", "12_0_0_result.pkl")]
    (here / "bin/sbatch").write_text(f"#!/bin/sh\ntouch {written[0]} {written[1]}\nexit 1\n")
    with pytest.raises(UserError, match="sbatch does not take tiny-sweep"):
        queue_sweep(job_file, *words, seeds="2")
    assert {path.name for path in folder.iterdir()} == before | {path.name for path in written}
    assert not list((here / "out/logs").glob("tiny-*-s2/*"))


@pytest.mark.parametrize(
    ("sbatch", "sentence"),
    [
        ("#!/bin/sh\necho hello\n", r'sbatch does not tell the number of .* \(.*"hello"\): look with squeue'),
        ("#!/nowhere/sh\n", r"tiny.* cannot be queued \(sbatch: No such file or directory\)"),
    ],
)
def test_an_sbatch_that_does_not_work_is_one_sentence_and_leaves_nothing(here, job_file, monkeypatch, sbatch, sentence):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    (here / "bin/sbatch").write_text(sbatch)
    for queued in (queue, queue_sweep):
        with pytest.raises(UserError, match=sentence):
            queued(job_file, 'worker_ips=["a:[1]"]', f"log_path={here}/out")
    assert not list((here / "out/logs").iterdir())


def test_a_job_is_only_called_cancelled_if_slurm_had_it_and_lets_it_go(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[1]"]', f"log_path={here}/out")
    queue(job_file, *words)
    queue_sweep(job_file, *words, seeds="1")
    runner = CliRunner()
    answer(here / "bin", "scancel", "scancel: error: Kill job error on job id 12: Access/permission denied", 1)
    refused = runner.invoke(app, ["stop", "tiny"]).exception
    assert (
        str(refused) == "Slurm does not end job tiny (pending): Kill job error on job id 12: Access/permission denied"
    )
    both = str(runner.invoke(app, ["stop", "tiny-sweep"]).exception)
    assert both.startswith("Slurm does not end job tiny-batch_size_5-s1 (pending) and 1 more: Kill job error")
    for code in (0, 1):
        answer(here / "bin", "scancel", "", code)
        answer(here / "bin", "squeue", "COMPLETED")
        assert (
            runner.invoke(app, ["stop", "tiny"]).output == "job tiny is not in Slurm's queue; its state is completed\n"
        )
    none = runner.invoke(app, ["stop", "tiny-sweep"]).output
    assert none == "none of the jobs of sweep tiny-sweep was in Slurm's queue\n"


def test_jobs_that_slurm_has_forgotten_can_be_stopped(here, job_file, monkeypatch, capfd):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[1]"]', f"log_path={here}/out")
    queue(job_file, *words)
    queue_sweep(job_file, *words, seeds="1")
    capfd.readouterr()
    runner = CliRunner()
    answer(here / "bin", "sacct", "Slurm accounting storage is disabled", 1)
    answer(here / "bin", "squeue", "slurm_load_jobs error: Invalid job id specified", 1)
    answer(here / "bin", "scancel", "scancel: error: Kill job error on job id 12: Invalid job id specified", 1)
    stopped = runner.invoke(app, ["stop", "tiny"])
    assert stopped.output == "job tiny is not in Slurm's queue; its state is unknown\n"
    forgets = 'case "$*" in *12_0*) echo Invalid job id specified >&2; exit 1;; esac'
    (here / "bin/squeue").write_text(f"#!/bin/sh\n{forgets}\necho RUNNING\n")
    (here / "bin/scancel").write_text(f"#!/bin/sh\n{forgets}\n")
    assert runner.invoke(app, ["stop", "tiny-sweep"]).output == (
        "sweep tiny-sweep: 1 of 2 jobs is taken out of Slurm's queue; no other was in it\n"
    )
    assert capfd.readouterr() == ("", "")


def test_scancel_is_believed_where_the_queue_does_not_answer(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    queue(job_file, 'worker_ips=["a:[1]"]', f"log_path={here}/out")
    answer(here / "bin", "squeue", "slurm_load_jobs error: Socket timed out on send/recv operation", 1)
    runner = CliRunner()
    assert runner.invoke(app, ["stop", "tiny"]).output == "job tiny is taken out of Slurm's queue\n"
    answer(here / "bin", "scancel", "scancel: error: Kill job error on job id 12: Socket timed out", 1)
    assert str(runner.invoke(app, ["stop", "tiny"]).exception).startswith("Slurm does not end job tiny (unknown): Kill")
    (here / "bin/sacct").write_text("#!/bin/sh\necho CANCELLED by 1000\n")
    assert slurm_queue.state(jobs.find("tiny")) == "cancelled"
    (here / "bin/sacct").unlink()
    assert slurm_queue.state(jobs.find("tiny")) == "unknown"


def said(job: jobs.Job) -> str:
    return "".join(path.read_text() for path in Path(job.cluster["folder"]).glob("*_log.*"))


def test_a_job_runs_on_submitits_local_executor(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    with run_locally():
        assert queue(job_file, f"log_path={here}/out") == 0
    job = jobs.find("tiny")
    results = [Path(job.cluster["folder"], f"{job.cluster['slurm']}_{rank}_result.pkl") for rank in (0, 1)]
    wait_for(lambda: all(path.exists() for path in results))  # what submitit writes at a task's end
    assert slurm_queue.state(job) == "finished", said(job)
    summary = json.loads((job.log_dir / "summary.json").read_text())
    assert summary["rounds"] == 2


def queue_sweep(job_file: Path, *overrides: str, **more) -> int:
    display = Display(Console(), Console(stderr=True))
    keys = {"seeds": "1-2", "grid": ["batch_size=5,9"], "at_once": 3, "resume": False, "hours": 2.0,
            "options": ["partition=gpu"], **more}  # fmt: skip
    return slurm.submit_sweep(str(job_file), list(overrides), display, **keys)


def test_a_sweep_is_one_array_of_which_some_run_at_once(here, job_file, monkeypatch, capsys):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    assert queue_sweep(job_file, 'worker_ips=["a:[2]", "b:[2]"]', f"log_path={here}/out") == 0
    assert "sweep tiny-sweep: 4 jobs queued as one array" in capsys.readouterr().err
    sweep = sweep_records.read("tiny-sweep")
    assert sweep is not None and len(sweep.points) == 4
    records = [jobs.find(point.name) for point in sweep.points]
    assert [job.cluster["slurm"] for job in records] == [f"12_{index}" for index in range(4)]
    (script,) = (here / "out/logs/tiny-sweep/slurm").glob("*_submission.sh")
    lines = set(script.read_text().splitlines())
    assert {"#SBATCH --array=0-3%3", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2", "#SBATCH --partition=gpu",
            "#SBATCH --job-name=tiny-sweep"} <= lines  # fmt: skip
    for job, point in zip(records, sweep.points, strict=True):
        assert sweep.run_of(job.name) == job.log_dir
        plan = json.loads((job.log_dir / "slurm/plan.json").read_text())
        assert f"--seed={point.seed}" in plan["aggregator"] and plan["port"] == 0
        assert f"--job_name={job.name}" in plan["aggregator"] and len(plan["executors"]) == 4
        assert (job.log_dir / "slurm/token").read_text().strip() not in script.read_text()
    runner = CliRunner()
    assert runner.invoke(app, ["stop", "tiny-sweep"]).output == (
        "the jobs of sweep tiny-sweep are taken out of Slurm's queue\n"
    )
    calls = (here / "bin/calls").read_text()
    assert all(f"scancel 12_{index}" in calls for index in range(4))


def test_jobs_that_new_options_do_not_name_stay_in_the_sweep(here, job_file, monkeypatch, capsys):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    words = ('worker_ips=["a:[2]"]', f"log_path={here}/out")
    queue_sweep(job_file, *words, seeds="1")
    first = sweep_records.read("tiny-sweep")
    queue_sweep(job_file, *words, seeds="2", grid=["batch_size=9,11"], resume=True)
    sweep = sweep_records.read("tiny-sweep")
    assert [point.seed for point in sweep.points] == [2, 2, 1, 1] and sweep.points[2:] == first.points
    assert sweep.grid == {"batch_size": ["5", "9", "11"]} and first.runs.items() <= sweep.runs.items()
    said = capsys.readouterr().err
    assert "2 jobs of the sweep that these options do not name are left as before: tiny" in said.replace("\n", " ")


def test_the_jobs_of_an_array_ask_for_the_same_nodes(here, job_file, monkeypatch):
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    with pytest.raises(UserError, match="worker_ips and use_cuda must be the same for all"):
        queue_sweep(job_file, grid=["use_cuda=true,false"])


def test_a_sweep_runs_on_submitits_local_executor_and_goes_on(here, job_file, monkeypatch, capsys):
    words = (f"log_path={here}/out", 'worker_ips=["localhost:[1]"]')
    (here / "bin").mkdir()
    fake_queue(here / "bin", monkeypatch)
    with run_locally():
        assert queue_sweep(job_file, *words, seeds="1", at_once=None) == 0
    sweep = sweep_records.read("tiny-sweep")
    records = [jobs.find(point.name) for point in sweep.points]
    # what submitit writes at a task's end
    results = [Path(job.cluster["folder"], f"{job.cluster['slurm']}_0_result.pkl") for job in records]
    wait_for(lambda: all(path.exists() for path in results))
    for job in records:
        assert slurm_queue.state(job) == "finished", said(job)
        assert json.loads((job.log_dir / "summary.json").read_text())["rounds"] == 2
    again = {"seeds": "1", "resume": True}
    capsys.readouterr()
    queue_sweep(job_file, *words, **again)
    assert "nothing is queued, as all of these jobs are done" in " ".join(capsys.readouterr().err.split())
    assert queue(job_file, *words, "batch_size=5", "job_name=tiny-batch_size_5-s1", resume=True) == 0
    assert not (here / "bin/calls").exists()
    (records[1].log_dir / "summary.json").unlink()
    answer(here / "bin", "squeue", "COMPLETED")
    queue_sweep(job_file, *words, **again)
    assert "1 job queued as one array, 1 done before" in " ".join(capsys.readouterr().err.split())
    assert [jobs.find(job.name).cluster["slurm"] == "12" for job in records] == [False, True]
    assert sweep_records.read("tiny-sweep").points == sweep.points


@pytest.mark.parametrize(
    ("options", "workers", "sentence"),
    [
        (["partition"], ["a:[1]"], "write it as sbatch has it, key=value"),
        (["a=b\n#SBATCH --uid=0"], ["a:[1]"], "write it as sbatch has it"),
        (["a b=c"], ["a:[1]"], "write it as sbatch has it"),
        ([], ["a:[1]", "b:[2]"], "all nodes run the same number of executors"),
        ([], ["a:[1]", "b"], "worker_ips names b without slots: write b:[n], n executors"),
        ([], ["a:[0]"], "worker_ips asks for no executors: write node:[n] for n executors"),
    ],
)
def test_what_slurm_cannot_do_is_refused(here, job_file, options, workers, sentence):
    with pytest.raises(UserError) as error:
        queue(job_file, f"worker_ips={json.dumps(workers)}", options=options)
    assert sentence in str(error.value)


def test_no_slurm_is_one_sentence(here, job_file, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="there is no sbatch here: run this command on a login node"):
        queue(job_file)
    fake_queue(here, monkeypatch)
    (here / "srun").unlink()
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(UserError, match="there is no srun here: run this command on a login node"):
        queue(job_file)


@pytest.mark.parametrize("hours", [float("inf"), float("nan"), 1e300, 600_000, 0, -1])
def test_a_time_limit_is_one_that_slurm_can_count(here, job_file, hours):
    with pytest.raises(UserError, match=r"--hours .* must be above 0 and at most 500,000, as in --hours 8"):
        queue(job_file, hours=hours)


def test_later_tasks_wait_for_the_first_ones_address(here, job_file, monkeypatch):
    monkeypatch.setattr(slurm_task, "_ADDRESS_S", 0.0)
    slurm_task.write_plan(load_config(job_file), here / "plan")
    with pytest.raises(RuntimeError, match="has not written"):
        slurm_task.run_rank(here / "plan", 1)


def test_a_requeued_job_does_not_join_where_its_earlier_start_listened(here, job_file, monkeypatch, capfd):
    monkeypatch.setattr(slurm_task, "_ADDRESS_S", 0.0)
    slurm_task.write_plan(load_config(job_file), here / "plan")
    (here / "plan/address-0").write_text("10.0.0.1:5")
    monkeypatch.setattr(joining, "command", lambda words, token: [sys.executable, "-c", f"print('{words[0]}')"])
    slurm_task.run_rank(here / "plan", 1)
    assert capfd.readouterr().out == "10.0.0.1:5\n"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(RuntimeError, match=r"has not written .*address-1"):
        slurm_task.run_rank(here / "plan", 1)
    slurm_task.write_plan(load_config(job_file), here / "plan")  # a resumed job writes to the same folder
    assert not list((here / "plan").glob("address-*"))


def test_a_requeued_aggregator_goes_on_from_its_checkpoint(here, job_file, monkeypatch):
    writes = "import sys; open(sys.argv[0] + '.words', 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    (here / "entry.py").write_text(writes)
    config = load_config(job_file, [f"exp_path={here}", "aggregator_entry=entry.py"])
    slurm_task.write_plan(config, here / "slurm")
    monkeypatch.setattr(slurm_task, "_work", lambda options, address_file, token: None)
    (here / "checkpoints").mkdir()
    (here / "checkpoints/checkpoint-000001.safetensors").touch()
    slurm_task.run_rank(here / "slurm", 0)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    slurm_task.run_rank(here / "slurm", 0)
    os.utime(here / "checkpoints/checkpoint-000001.safetensors", (1, 1))  # another run's
    slurm_task.run_rank(here / "slurm", 0)
    first, second, third = (here / "entry.py.words").read_text().splitlines()
    assert "--resume=True" not in first + third and " --resume=True " in second


def test_a_jobs_own_token_is_that_of_its_tasks(here, job_file):
    token_file = write_token(here / "own", "ab" * 32)
    slurm_task.write_plan(load_config(job_file, [f"token_file={token_file}"]), here / "plan")
    assert read_token(here / "plan/token") == bytes.fromhex("ab" * 32)


def joins(folder: Path, *ends: str) -> list[str]:
    """A program in place of ``executor join``, which ends in these ways one after another."""
    (folder / "join.py").write_text(
        "import os, sys\nfolder, *ends = sys.argv[1:]\npath = os.path.join(folder, 'tries')\n"
        "open(path, 'a').write('x')\nend = ends[os.path.getsize(path) - 1]\n"
        "os.kill(os.getpid(), -int(end)) if end[0] == '-' else sys.exit(int(end))\n"
    )
    return [sys.executable, str(folder / "join.py"), str(folder), *ends]


@pytest.mark.parametrize("last", ["0", "2", "130", "-15"])
def test_an_executor_that_dies_joins_again_until_it_is_over(here, monkeypatch, last):
    pauses = []
    monkeypatch.setattr(slurm_task.time, "sleep", pauses.append)
    monkeypatch.setattr(joining, "command", lambda words, token: joins(here, "-9", "1", last, "0"))
    (here / "address").write_text("10.0.0.1:5")
    slurm_task._work([], here / "address", here / "token")
    assert (here / "tries").read_text() == "xxx" and pauses == [1.0, 5.0]


def test_gpus_are_those_of_one_node(here):
    config = make_config({"worker_ips": ["a:[1,1]", "b:[1,1]"]}, {"use_cuda": True})
    assert slurm_queue.shape(config) == (2, [1, 1])
    slurm_task.write_plan(config, here / "plan")
    gpus = [options[-2:] for options in json.loads((here / "plan/plan.json").read_text())["executors"]]
    assert gpus == [["--gpu", "0"], ["--gpu", "1"]] * 2
