"""Stands for an aggregator: FAKE_AGGREGATOR in the environment says what it does."""

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

what = os.environ.get("FAKE_AGGREGATOR", "finish")
# from its file, because importing the package that it lies in loads torch
parent_pipe = runpy.run_path(str(Path(__file__).resolve().parents[3] / "fedscale_ext/entry/parent_pipe.py"))
parent_pipe["exit_with_parent"]()


def say(**event: object) -> None:
    if os.environ.get("FEDSCALE_EXT_EVENTS"):
        print(json.dumps(event), flush=True)


print("plain words", file=sys.stderr)
print(json.dumps(sys.argv[1:]), file=sys.stderr, flush=True)
say(event="waiting", **{"for": "executors"})
arguments = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv if word.startswith("--"))
logs = Path(arguments["log_path"], "logs", arguments["job_name"], arguments["time_stamp"])
if what.startswith("refuse"):  # bad input, before the first round
    (logs / "aggregator").mkdir(parents=True)
    (logs / "aggregator" / "log").touch()  # as FedScale does when it is imported
    if what.endswith("over results"):
        (logs / "header.json").touch()
    say(event="error", message="filter_less 9 leaves no client", exit_code=2)
    sys.exit(2)
marker = Path(os.environ.get("FAKE_MARKER", "none"))  # "… once": what happened before does not happen again
if what.endswith(" once"):
    what = "slowly" if marker.exists() else what.removesuffix(" once")
    marker.touch()
if what == "kill early":
    os.kill(os.getpid(), 9)
resumed = "--resume=True" in sys.argv
for earlier in () if "--resume" in " ".join(sys.argv) else logs.glob("checkpoints/*"):  # of another run
    earlier.unlink()
say(event="ready", clients=4, executors=1, data="generated: fake", population="resampled: 4", model="tiny",
    rounds=12, log_dir="somewhere")  # fmt: skip
if "FAKE_JOINED" in os.environ:
    say(event="executors", executors=[{"executor": "3", "host": "there", "joined": True}])
if what == "grandchild":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "fake-grandchild"])
if what == "deaf":
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
# "done before": resumed from the checkpoint of its last round
for number in range(13 if what == "done before" else 4 if resumed else 1, 13):
    say(event="round", round=number, rounds=12, participants=2, models=1, assignments={"m0": 2}, loss=2.5 / number,
        accuracy=number / 20 if number % 5 == 0 else None, virtual_clock_s=61.0 * number, wall_s=0.001)  # fmt: skip
    if what == "slowly":
        time.sleep(0.1)
    if number == 12 and os.environ.get("FAKE_EXECUTOR") == "lose gpu":  # the job outlasts the executor's second start
        while not marker.with_suffix(".refused").exists():
            time.sleep(0.02)
        time.sleep(2)  # its driver hears of it
    if number == 3:
        say(event="transform", round=3, parent="m0", child="m1", what="widened cell 2")
        if what in ("wait", "grandchild", "deaf"):
            time.sleep(600)
        if what == "die":
            raise ValueError("the fake aggregator breaks")
        if what in ("kill", "kill with checkpoint"):
            if "checkpoint" in what:
                folder = logs / "checkpoints"
                folder.mkdir(parents=True)
                (folder / "checkpoint-000003.safetensors").touch()
                os.utime(folder / "checkpoint-000003.safetensors", (1.0, 1.0))  # the clock was set back
            os.kill(os.getpid(), 9)
        if what == "left alone":
            (logs / "checkpoints").mkdir(parents=True)
            (logs / "checkpoints" / "checkpoint-000003.safetensors").touch()
            say(event="error", message="no executor is left", exit_code=1, final=True)
            sys.exit(1)
        if what == "bad input":
            say(event="error", message="num_participants 9 is above the 4 clients; lower it", exit_code=2)
            sys.exit(2)
say(event="notice", message="[nothing] happened")
say(event="trained")
if "FAKE_MARKER" in os.environ:
    time.sleep(0.2)  # the word of it is heard before the executors end
    Path(os.environ["FAKE_MARKER"]).with_suffix(".trained").touch()
if what == "plotting":  # the results are written, and the pictures take long
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "summary.json").write_text("{}")
    time.sleep(600)
if what != "no summary":
    say(
        event="summary",
        summary={"rounds": 12, "accuracy": {"mean": 0.5}},
        table=[["accuracy", "50.0 %"], ["rounds", 12]],
        files={"plot": "/tmp/plot.png", "tensorboard": "/tmp/a b"},
    )
if what == "slow end":  # as an upload
    time.sleep(600)
