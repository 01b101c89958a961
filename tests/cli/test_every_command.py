"""Every command: help, exit codes, and what it prints without a terminal, with NO_COLOR, in 80 columns.

A new command needs an entry in GOOD, what works, and in BAD, what does not and a word of the sentence that says so.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from written_job import write_job

from fedscale_ext.cli.app import app
from fedscale_ext.cli.main import main
from fedscale_ext.driver import jobs
from fedscale_ext.driver.processes import Proc
from fedscale_ext.report.plots import comparison_plots, job_plots

TRACES = Path(__file__).resolve().parents[2] / "device_traces"
GOOD = {
    "report": "own -o report",
    "driver start": "conf.yml",
    "driver check": "conf.yml",
    "driver render": "conf.yml --image fedscale_ext:0.1 --claim data --set log_path=. --set data_dir=data",
    "driver status": "j-s0",
    "driver logs": "j-s0",
    "driver stop": "own",
    "driver forget": "own",
    "config list": "data",
    "config show": "heterofl --on speech -o heterofl.yml",
    "dataset list": "",
    "dataset import": "small.npz --data-set mnist -o data/small",
    "dataset synthesize": "femnist --writers 1 --samples-per-class 1 -o data/made",
    "dataset verify": "data/made",
    "dataset show": "data/made -o made.png",
    "dataset download": "",
    "models": "--data femnist",
    "methods": "",
    "methods options": "fedavg",
    "methods show": "j-s0",
    "methods new": "mine",
    "benchmark": "",
    "leaderboard": "--data-set femnist",
    "leaderboard submit": "j-s0 j-s1 j-s2 j-s3 j-s4 --tuned none -o entries",
    "traces inspect": f"{TRACES}/sample_capacity.csv {TRACES}/sample_availability.csv",
    "traces convert": f"{TRACES}/sample_capacity.csv capacity.npz",
    "traces synthesize": "20 -o traces",
}
# tests/cluster makes hosts, tests/entry and tests/faults a job to join, tests/api trained models
ELSEWHERE = {"driver submit", "executor join", "export", "predict", "verify"}
BAD = {
    "report": ("none", "there is no job 'none'"),
    "driver start": ("none.yml", "no configuration 'none.yml'"),
    "driver check": ("none.yml", "no configuration 'none.yml'"),
    "driver submit": ("none.yml", "no configuration 'none.yml'"),
    "driver render": ("none.yml --image a --claim b", "no configuration 'none.yml'"),
    "driver status": ("none", "there is no job 'none'"),
    "driver logs": ("none", "there is no job 'none'"),
    "driver stop": ("none", "there is no job 'none'"),
    "driver forget": ("none", "there is no job 'none'"),
    "executor join": ("nowhere", "'nowhere' is no address: write HOST:PORT"),
    "config list": ("none", "none"),
    "config show": ("heterofl --on spech", "did you mean 'speech'"),
    "dataset list": ("small.npz", "small.npz"),
    "dataset import": ("none.npz --data-set mnist", "none.npz"),
    "dataset synthesize": ("cifar10", "cifar10"),
    "dataset verify": ("none", "none"),
    "dataset show": ("none", "none"),
    "export": ("none", "none"),
    "predict": ("none small.npz --client 1", "none"),
    "verify": ("own", "has no digests in its records"),
    "dataset download": ("cifar11", "did you mean 'cifar10'"),
    "models": ("--data femnst", "did you mean 'femnist'"),
    "methods": ("none", "has no command 'none'"),
    "methods options": ("none", "there is no method 'none'"),
    "methods show": ("none", "there is no job 'none'"),
    "methods new": ("2fast", "2fast"),
    "benchmark": ("--tasks hra", "did you mean 'har'"),
    "leaderboard": ("--data-set none", "has no data set 'none'"),
    "leaderboard submit": ("j-s0 --tuned none", "seeds 1, 2, 3 and 4 are missing"),
    "traces inspect": ("none.csv", "none.csv"),
    "traces convert": ("none.csv out.npz", "none.csv"),
    "traces synthesize": ("0", "0 devices cannot be drawn"),
}
MODES = {
    "plain": {},
    "terminal": {"TTY_COMPATIBLE": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"},
    "no-color": {"TTY_COMPATIBLE": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"},
}
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-7]|9[0-7])[0-9;]*m")


def every() -> dict[str, bool]:
    """The words of each command -> whether it does something by itself."""

    def walk(command, words):
        inner = getattr(command, "commands", {})
        yield " ".join(words), not inner or command.invoke_without_command
        for name, child in inner.items():
            yield from walk(child, [*words, name])

    return dict(walk(typer.main.get_command(app), []))


@pytest.fixture
def world(tmp_path, monkeypatch, write_conf):
    """A working directory with a state, five jobs that have ended, a configuration of fake processes, and data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})  # pictures are the report's tests'
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
    versions = {"fedscale": "1.0", "fedscale_ext": "0.1.0", "commit": "c0ffee"}
    for seed, name in enumerate(["j-s0", "j-s1", "j-s2", "j-s3", "j-s4", "own"]):
        of_femnist = {} if name == "own" else {"num_clients": 3_400}  # as an entry for the leaderboard needs it
        write_job(tmp_path / "logs" / name / "now", job_name=name, seed=seed, method="fedavg", rounds=10,
                  versions=versions, clients=False, **of_femnist)  # fmt: skip
        jobs.write(jobs.Job(name, "conf", str(tmp_path), "now", [], Proc("driver", 1, 0.0), status="finished"))
        jobs.output_log(name).write_text("a line\n")
    write_conf()
    np.savez(
        tmp_path / "small.npz", x=np.zeros((20, 28, 28), np.uint8), y=np.arange(20) % 10, client=np.arange(20) // 5
    )
    return tmp_path


@pytest.fixture
def run(world, monkeypatch, capfd):
    """Runs the command here; its exit code, its standard output and its standard error."""

    def call(words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedscale", *words.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capfd.readouterr()

    return call


def test_every_command_is_tried():
    doing = {words for words, does in every().items() if does}
    assert set(GOOD) | ELSEWHERE == doing, "give the command an entry in GOOD, or take it out"
    assert set(BAD) == doing, "give the command an entry in BAD, or take it out"


@pytest.mark.parametrize("words", every())
def test_help_fits_80_columns(call, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(*words.split(), "--help")
    assert (code, err) == (0, "")
    assert "Example: fedscale" in out
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"--[\w-]*…", out)  # a name that is cut cannot be typed
    assert "\x1b" not in out


def test_help_tells_the_exit_codes(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("--help")
    text = " ".join(out.split())
    assert "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted" in text


def test_help_groups_the_commands_in_the_order_of_their_use(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    panels = re.split(r"─ (\w+) ─", call("--help")[1])[1:]
    texts = zip(panels[::2], panels[1::2], strict=True)
    commands = {title: re.findall(r"^│ ([a-z]+) ", text, re.M) for title, text in texts}
    assert list(commands.items())[1:] == [
        ("Run", ["driver", "executor"]), ("Choose", ["methods", "models", "config"]), ("Data", ["dataset", "traces"]),
        ("Results", ["report", "predict", "export", "verify", "benchmark", "leaderboard"]),
    ]  # fmt: skip


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_exit_code_2_and_a_sentence(run, words):
    arguments, sentence = BAD[words]
    code, out, err = run(f"{words} {arguments}")
    assert code == 2
    assert sentence in " ".join(err.split()) and "Traceback" not in err
    assert "\x1b" not in out + err


@pytest.mark.parametrize("words", [words for words in every() if words])
def test_an_option_that_does_not_exist_is_exit_code_2(call, words):
    code, _, err = call(*words.split(), "--no-such-option")
    assert code == 2 and "--no-such-option" in err


@pytest.mark.parametrize("mode", MODES)
def test_every_command_works(run, world, monkeypatch, mode):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in MODES[mode].items():
        monkeypatch.setenv(name, value)
    wrong = []
    for words, arguments in GOOD.items():
        code, out, err = run(f"{words} {arguments}".rstrip())
        output = out + err
        if code != 0 or "Traceback" in output or not out:
            wrong.append(f"{words}: exit code {code}\n{output}")
        if mode == "plain" and "\x1b" in output:
            wrong.append(f"{words}: escape codes without a terminal")
        if mode == "no-color" and COLOUR.search(output):
            wrong.append(f"{words}: colours with NO_COLOR: {COLOUR.search(output)}")
        if mode != "plain":
            # lines with paths and commands stay whole, to be copied
            lines = [line for line in ESCAPE.sub("", output).splitlines() if not re.search(r"/|--set|\.npz:", line)]
            wrong += [f"{words}: wider than 80 columns: {line}" for line in lines if len(line) > 80]
    assert not wrong, "\n".join(wrong)
