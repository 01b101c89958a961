"""Stands for the process of a check: job_name and FAKE_CHECK say what it does."""

import json
import os
import sys
import time
from pathlib import Path


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


for order in json.loads(Path(sys.argv[1]).read_text()):
    name = order["job"]
    say(event="checking", job=name)
    say(event="progress", what="256 of 512 samples decoded")
    if os.environ.get("FAKE_CHECK") == "die":
        print("out of memory", file=sys.stderr, flush=True)
        sys.exit(3)
    if os.environ.get("FAKE_CHECK") == "wait":
        time.sleep(600)
    if "--num_participants=9" in order["argv"]:
        say(event="refused", job=name, message="num_participants 9 is above the 4 clients")
    else:
        facts = [["data", "real: writers"]] if order["data"] else []
        say(event="checked", job=name, facts=facts, notices=["clients are tested on test.csv"])
