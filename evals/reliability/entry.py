"""Entry of a job's process that kills itself where the environment says: a method's own entry, armed.

``FEDSCALE_EXT_KILLS`` holds JSON: process -> list of [step of tests/faults/steps.py, round];
``FEDSCALE_EXT_KILLED`` is the folder in which each kill that has happened leaves a file.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from faults.steps import arm

from fedscale_ext.entry import launch


def run(role: Any, config: Any) -> None:
    """What launch does, with the process armed before it runs."""
    rank = config.fedscale.this_rank
    name = f"executor {rank}" if rank else "aggregator"
    process = role(config)
    kills = json.loads(os.environ["FEDSCALE_EXT_KILLS"]).get(name, [])
    arm(process, name, [(step, round) for step, round in kills], Path(os.environ["FEDSCALE_EXT_KILLED"]))
    process.run()


if __name__ == "__main__":
    launch._run = run
    launch.run_rank()
