"""Stands for an executor: FAKE_EXECUTOR in the environment says what it does."""

import json
import os
import runpy
import sys
import time
from pathlib import Path

what = os.environ.get("FAKE_EXECUTOR", "finish")
# from its file, because importing the package that it lies in loads torch
parent_pipe = runpy.run_path(str(Path(__file__).resolve().parents[3] / "fedscale_ext/entry/parent_pipe.py"))
parent_pipe["exit_with_parent"]()
rank = next(word for word in sys.argv if word.startswith("--this_rank="))
print(f"executor says {rank} threads={os.environ.get('OMP_NUM_THREADS')}", flush=True)
if what == "die" and rank == "--this_rank=2":
    print("Traceback: the fake executor breaks", file=sys.stderr)
    sys.exit(3)
if what == "die once" and rank == "--this_rank=2" and not Path(os.environ["FAKE_MARKER"]).exists():
    Path(os.environ["FAKE_MARKER"]).touch()
    sys.exit(3)
if what == "lose gpu" and rank == "--this_rank=2":
    if not Path(os.environ["FAKE_MARKER"]).exists():
        Path(os.environ["FAKE_MARKER"]).touch()
        time.sleep(0.3)
        sys.exit(3)
    print(json.dumps({"event": "error", "message": "cuda:1 is not there", "exit_code": 2}), flush=True)
    Path(os.environ["FAKE_MARKER"]).with_suffix(".refused").touch()
    sys.exit(2)
if what == "bad input":
    print(json.dumps({"event": "error", "message": "no data at nowhere; make some", "exit_code": 2}), flush=True)
    print("error: no data at nowhere; make some", file=sys.stderr)
    sys.exit(2)
if what == "late error":  # the aggregator is gone, as it should be
    time.sleep(0.7)
    print(json.dumps({"event": "error", "message": "the aggregator does not answer", "exit_code": 1}), flush=True)
    sys.exit(1)
while what in ("stay", "die once", "lose gpu") and not Path(os.environ["FAKE_MARKER"]).with_suffix(".trained").exists():
    time.sleep(0.02)
if what in ("wait", "die"):
    time.sleep(600)
