"""Checkpoints: a round's server state in one file that is either whole or refused.

A checkpoint is a tensor file (safetensors with a digest of the whole file, util/tensor_files.py) named
after its round. The JSON part is stored as a tensor of bytes, because a safetensors header is limited
to 100 MB. Nothing in it is executable.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedscale_ext.config.changed_settings import changed_settings
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.numbered_files import drop_later, numbered_files
from fedscale_ext.util.reading import load_json
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

_NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
_JSON = "checkpoint.json"  # name of the tensor of JSON bytes
_PREFIX = "tensor."  # before the caller's names, so that none can collide with it
_FORMAT = "4"
_STEP = 4096  # lengths of the JSON: safetensors keeps some kB per length of a tensor that it ever saw

Complete = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Checkpoint:
    """State of the server after ``round``."""

    round: int
    tensors: dict[str, torch.Tensor]
    data: Any


def save(
    directory: Path,
    round: int,
    tensors: Mapping[str, torch.Tensor],
    data: Any,
    settings: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write the checkpoint of ``round`` atomically, then remove later ones and all but the last ``keep``.

    ``settings`` is the configuration that a job must have to continue from here, ``data`` the rest of
    the state. Both are JSON: dicts with text keys, lists, tuples (which come back as lists), numbers, text,
    True, False, None; floats come back exactly, NaN and infinities included. TypeError for anything
    else.
    """
    _check(data, "data")
    text = json.dumps({"settings": settings, "data": data}, separators=(",", ":"))
    content = text.encode()
    padded = content + b" " * (-len(content) % _STEP)  # JSON may end in spaces
    body = torch.frombuffer(bytearray(padded), dtype=torch.uint8)
    stored = {_JSON: body, **{_PREFIX + name: tensor for name, tensor in tensors.items()}}
    metadata = {"format": _FORMAT, "round": str(round)}
    path = directory / f"checkpoint-{round:06d}.safetensors"
    write_tensors(path, stored, metadata)
    drop_after(directory, round)
    for old in list(written_rounds(directory).values())[:-keep]:
        old.unlink(missing_ok=True)
    for left in directory.glob(".checkpoint-*.tmp"):  # of a job that was killed while it wrote
        left.unlink(missing_ok=True)
    return path


def load(
    directory: Path, settings: Mapping[str, Any], round: int | None = None, complete: Complete = dict
) -> Checkpoint | None:
    """The checkpoint of ``round``, by default the newest, of ``directory``; None where it is empty.

    ``complete`` adds to the settings that it states what the release that wrote it had no names for yet.
    UserError where it is absent, damaged, of another format, or of a job with another configuration; the
    sentence offers the checkpoint before it, which is never taken silently.
    """
    rounds = written_rounds(directory)
    if not rounds:
        return None
    wanted_round = max(rounds) if round is None else round
    if wanted_round not in rounds:
        raise UserError(f"{directory} holds no checkpoint of round {wanted_round}; {_others(rounds)}")
    path = rounds[wanted_round]
    before = _others({other: rounds[other] for other in rounds if other < wanted_round})
    try:
        tensors, metadata = read_tensors(path)
        if metadata.get("format") != _FORMAT or metadata.get("round") != str(wanted_round):
            raise UserError(
                f"{path} is no checkpoint of round {wanted_round} in format {_FORMAT}; if an earlier release wrote it, "
                "finish the job with that release, or start anew without --resume"
            )
    except UserError as error:
        raise UserError(f"{error}; {before}") from None
    content = json.loads(tensors.pop(_JSON).numpy().tobytes())
    if changed := changed_settings(complete(content["settings"]), settings):
        earlier = [other for other in rounds if other < wanted_round]
        same = {other: rounds[other] for other in earlier if _has_settings(rounds[other], settings, complete)}
        raise UserError(
            f"{path} was written by a job with another configuration: {changed}; "
            "resume with the configuration that it was started with, or "
            + (_others(same) if same else "start it anew without --resume: no checkpoint before it is of this one")
        )
    return Checkpoint(wanted_round, {name[len(_PREFIX) :]: tensor for name, tensor in tensors.items()}, content["data"])


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, whatever job wrote it; UserError where it is damaged or of another format."""
    tensors, metadata = read_tensors(path)
    try:
        if metadata["format"] != _FORMAT:
            raise ValueError(f"its format is {metadata['format']}")
        data = load_json(tensors.pop(_JSON).numpy().tobytes())["data"]
        return Checkpoint(
            int(metadata["round"]), {name[len(_PREFIX) :]: tensor for name, tensor in tensors.items()}, data
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no checkpoint of this release: {error}") from None


def _has_settings(path: Path, settings: Mapping[str, Any], complete: Complete) -> bool:
    """Whether a checkpoint is whole and of a job with these settings."""
    try:
        stated = json.loads(read_tensors(path)[0][_JSON].numpy().tobytes())["settings"]
        return not changed_settings(complete(stated), settings)
    except (UserError, KeyError, TypeError, ValueError):
        return False


def _others(rounds: Mapping[int, Path]) -> str:
    """What a user whose checkpoint is refused can do with the other ones."""
    if not rounds:
        return "no checkpoint is before it, from which the job could continue; start it anew without --resume"
    newest = max(rounds)
    return f"--resume-from {newest} continues the job from {rounds[newest].name}"


def drop_after(directory: Path, round: int) -> None:
    """Remove the checkpoints of later rounds, which belong to a course of the job that was left."""
    drop_later(directory, _NAME, round)


def written_rounds(directory: Path) -> dict[int, Path]:
    """Round -> file, in rising order; other files in the folder are left alone."""
    return dict(numbered_files(directory, _NAME))


def _check(data: Any, where: str) -> None:
    """TypeError for what json.dumps would refuse, or change without a word (keys that are no text)."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; JSON keys are text")
            _check(value, f"{where}[{key!r}]")
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            _check(value, f"{where}[{index}]")
    elif data is not None and not isinstance(data, str | int | float):
        raise TypeError(f"{where} is a {type(data).__name__}, which is not JSON")
