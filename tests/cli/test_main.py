"""The command as a whole: speed of start, and how errors reach a person."""

import errno
import os
import resource
import subprocess
import sys

import pytest
from written_job import write_job

import fedscale_ext

from .conftest import ROOT


def test_help_is_fast_and_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['fedscale', '--help']\n"
        "from fedscale_ext.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'fedscale', 'numpy', 'yaml', 'pydantic', 'matplotlib', 'psutil'} & set(sys.modules)))"
    )
    seconds = []  # of computing: what a clock on the wall shows depends on what else the machine does
    for _ in range(5):  # and so do these, if less
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stdout.splitlines()[-1] == "[]"
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 1.0  # 0.35 on an idle core; PyTorch alone would take more


def test_version(call):
    assert call("--version") == (0, f"fedscale_ext {fedscale_ext.__version__}\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ["driver", "status"],
        ["dataset", "list"],
        ["dataset", "synthesize", "femnist", "--writers", "1", "--out", "{}/data"],
    ],
    ids=" ".join,
)
def test_commands_that_need_no_torch_do_not_import_it(state, tmp_path, command):
    code = (
        f"import sys; sys.argv = ['fedscale', *{[word.format(tmp_path) for word in command]!r}]\n"
        "from fedscale_ext.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == ["0", "False"], done.stderr


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("fedscale_ext.cli.app", ["driver", "start", "fedavg", "--on", "digits", "--seeds", "1,2"]),
        ("fedscale_ext.driver.sweeps.sweep", ["driver", "start", "fedavg", "--on", "digits", "--seeds", "1,2"]),
    ],
)
def test_an_interrupt_of_imports_ends_without_a_traceback(state, module, words):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs of a shell ignore it
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.argv = ['fedscale', *{words!r}]\n"
        "from fedscale_ext.cli.main import main\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_unknown_command_is_exit_code_2(call):
    code, _, err = call("drver")
    assert code == 2
    assert "driver" in err


def test_missing_configuration_is_one_sentence(call):
    code, out, err = call("driver", "start", "no/such.yml")
    assert (code, out) == (2, "")
    assert err.startswith("fedscale: no configuration 'no/such.yml'")
    assert err.count("\n") == 1


def test_unexpected_error_is_one_sentence_and_a_logged_traceback(state, monkeypatch, capsys):
    from fedscale_ext.cli.main import main
    from fedscale_ext.driver import jobs

    def fail() -> list[str]:
        raise ValueError("first\nsecond")

    monkeypatch.setattr(jobs, "names", fail)
    monkeypatch.setattr(sys, "argv", ["fedscale", "driver", "status"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    log = state / "error.log"
    assert capsys.readouterr().err == f"fedscale: unexpected ValueError: first; its traceback is in {log}\n"
    assert "Traceback" in log.read_text()
    assert "driver status" in log.read_text()


def test_state_directory_that_cannot_be_made(call, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "file" / "x"))
    code, _, err = call("driver", "status")
    assert code == 2
    assert "set FEDSCALE_EXT_STATE" in err


def test_reader_that_leaves_early_is_no_traceback(fedscale):
    process = fedscale("dataset", "list", PYTHONUNBUFFERED="1")
    process.stdout.close()
    process.wait(20)
    assert "Traceback" not in process.stderr.read()


def terminal(arguments, **env):
    """Run the command in a terminal of 80 columns; its exit code and all that it wrote there."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "fedscale_ext.cli", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", **env}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        out += part
    os.close(ours)
    return process.wait(10), out.decode()


def test_terminal_shows_how_many_jobs_a_report_has_drawn(state, tmp_path):
    jobs = [write_job(tmp_path / name / "now", job_name=name, rounds=3) for name in ("one", "two")]
    code, out = terminal(["report", *jobs, "-o", tmp_path / "out"])
    assert code == 0
    assert "drawing jobs' plots" in out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h")  # the cursor is back


def test_terminal_shows_a_bar_and_keeps_tested_rounds(state, write_conf):
    code, out = terminal(["driver", "start", write_conf()], FAKE_AGGREGATOR="slowly")
    assert code == 0
    assert "━" in out
    assert "\x1b[33mnote:" in out
    assert "round 10/12, 2 clients, 1 model, loss 0.250, accuracy 50.0 %" in out.replace("\r\n", "")
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h")  # the cursor is back


def test_no_color_in_a_terminal(state, write_conf):
    code, out = terminal(["driver", "start", write_conf()], NO_COLOR="1")
    assert code == 0
    assert "note:" in out
    assert "\x1b[3" not in out
    assert "\x1b[9" not in out


@pytest.mark.parametrize(
    ("file", "advice"),
    [("jobs/fake/job.json", ", or set FEDSCALE_EXT_STATE to a folder on another disk"), ("../data/a.csv", "")],
)
def test_a_full_disk_is_one_sentence(state, monkeypatch, capsys, file, advice):
    from fedscale_ext.cli.main import main
    from fedscale_ext.driver import jobs

    path = os.path.normpath(state / file)

    def fail() -> list[str]:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(jobs, "names", fail)
    monkeypatch.setattr(sys, "argv", ["fedscale", "driver", "status"])
    with pytest.raises(SystemExit) as end:
        main()
    said = f"fedscale: the disk takes no more: {path} cannot be written (No space left on device); make room{advice}\n"
    assert (end.value.code, capsys.readouterr().err) == (2, said)


def test_links_that_lead_in_a_circle_are_one_sentence(call, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    said = f"fedscale: {tmp_path}/loop cannot be read or written: Too many levels of symbolic links\n"
    assert call("traces", "convert", tmp_path / "loop", tmp_path / "out.npz") == (2, "", said)


def test_a_name_that_is_too_long_is_one_sentence(call):
    name = "n" * 300
    said = f"fedscale: {name[:199]}… cannot be read or written: File name too long\n"
    assert call("dataset", "verify", name) == (2, "", said)


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 2), (errno.EROFS, 2), (errno.EIO, 1)])
def test_a_path_that_one_may_not_enter_is_one_sentence(state, monkeypatch, capsys, number, code):
    from fedscale_ext.cli.main import main
    from fedscale_ext.driver import jobs

    def fail() -> list[str]:
        raise OSError(number, os.strerror(number), "locked/a.yml")

    monkeypatch.setattr(jobs, "names", fail)
    monkeypatch.setattr(sys, "argv", ["fedscale", "driver", "status"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    said = f"fedscale: locked/a.yml cannot be read or written: {os.strerror(number)}\n"
    assert (capsys.readouterr().err == said, (state / "error.log").exists()) == (code == 2, code == 1)
