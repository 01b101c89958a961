"""Where a process of a job can be made to end itself by SIGKILL: a name for each step of the protocol.

A step stands before or after a call. ``round`` of a kill is the first round in which it strikes, once; before
the first unit or round a process is in round 0. ``poison`` strikes each time.
"""

import functools
import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Kill = tuple[str, int]  # step, round

# step -> (when, the call); a call without a module is a method of the process's own class
STEPS: dict[str, tuple[str, str]] = {
    # executors
    "registered": ("after", "client_register"),
    "unit": ("before", "fedscale_ext.tasks.train:Train.run"),
    "training": ("after", "fedscale_ext.executor.worker:Worker.train_client"),
    "computed": ("after", "fedscale_ext.tasks.train:Train.run"),
    "uploaded": ("after", "_hand_in"),
    "poison": ("before", "fedscale_ext.tasks.train:Train.run"),  # if client ``round`` is in the unit
    "evaluation": ("before", "fedscale_ext.tasks.evaluate:Evaluate.run"),
    "evaluated": ("after", "fedscale_ext.tasks.evaluate:Evaluate.run"),
    # the aggregator
    "listening": ("after", "init_control_communication"),
    "register": ("after", "CLIENT_REGISTER"),
    "unit_sent": ("after", "_encode"),
    "result_in": ("before", "fedscale_ext.transport.board:Board.complete"),
    "result_filed": ("after", "fedscale_ext.transport.board:Board.complete"),
    "aggregate": ("before", "aggregate"),
    "aggregated": ("after", "aggregate"),
    "evaluate": ("before", "fedscale_ext.server.round.dispatcher:Dispatcher.evaluate"),
    "evaluated_all": ("after", "fedscale_ext.server.round.dispatcher:Dispatcher.evaluate"),
    "recorded": ("after", "fedscale_ext.server.records:JobRecords.round"),
    "checkpoint": ("before", "fedscale_ext.server.checkpoints.checkpoint_file:write_tensors"),
    "checkpoint_rename": ("before", "os:replace"),
    "checkpoint_renamed": ("after", "os:replace"),
    "finish": ("before", "fedscale_ext.server.records:JobRecords.finish"),
}
_FILES = {
    "checkpoint_rename": "checkpoint-",
    "checkpoint_renamed": "checkpoint-",
}  # renames of other files do not count


def arm(process: Any, name: str, kills: list[Kill], folder: Path, number_of_signal: int = signal.SIGKILL) -> None:
    """Let ``process`` (called ``name``) signal itself at each of ``kills`` that it has not died of before."""
    for number, (step, round) in enumerate(kills):
        marker = folder / f"{name}.{number}.killed"
        if step == "poison" or not marker.exists():
            _wrap(process, step, round, marker, number_of_signal)


def _wrap(process: Any, step: str, round: int, marker: Path, number_of_signal: int) -> None:
    when, call = STEPS[step]
    module, _, attribute = call.rpartition(":")
    *parents, attribute = attribute.split(".")
    owner = importlib.import_module(module) if module else type(process)
    for parent in parents:
        owner = getattr(owner, parent)
    plain: Callable[..., Any] = getattr(owner, attribute)

    def die(arguments: tuple[Any, ...]) -> None:
        prefix = _FILES.get(step)
        if prefix is not None and not Path(arguments[1]).name.startswith(prefix):
            return
        if step == "poison":
            strikes = any(item["client"] == round for item in arguments[2]["items"])
        else:
            strikes = getattr(process, "round", 0) >= round
        if strikes:
            marker.write_text(json.dumps({"step": step, "round": getattr(process, "round", 0)}))
            os.kill(os.getpid(), number_of_signal)

    @functools.wraps(plain)
    def armed(*arguments: Any, **keywords: Any) -> Any:
        if when == "before":
            die(arguments)
        result = plain(*arguments, **keywords)
        if when == "after":
            die(arguments)
        return result

    setattr(owner, attribute, armed)
