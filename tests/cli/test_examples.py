"""The help of each command has examples, and each of them is a command that the package takes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from fedscale_ext.cli.app import app
from fedscale_ext.config.job_config import load_config

_EXAMPLE = re.compile(r"^Example: fedscale (.+)$", re.M)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the words of each command, and its help."""
    yield " ".join(words), command.help or ""
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*words, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
EXAMPLES = [example for text in COMMANDS.values() for example in _EXAMPLE.findall(text)]


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_has_an_example_of_itself(words: str) -> None:
    examples = _EXAMPLE.findall(COMMANDS[words])
    of_any = words in ("", "methods")  # which do little by themselves
    assert examples and (of_any or all(example.startswith(words) for example in examples)), words


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_words_of_an_example_are_taken(example: str) -> None:
    command, words = typer.main.get_command(app), shlex.split(example.partition(" > ")[0])
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    with command.make_context("fedscale", words):  # UsageError for an option or a value that it does not take
        pass


@pytest.mark.parametrize("example", [example for example in EXAMPLES if " --on " in example])
def test_the_job_of_an_example_has_a_configuration(example: str) -> None:
    method, data = re.findall(r"(\w+) --on (\w+)", example)[0]
    settings = re.findall(r"--set (\S+)", example)
    load_config(f"{method} --on {data}", settings)
    for key, values in re.findall(r"--grid (\w+)=(\S+)", example):
        for value in values.split(","):
            load_config(f"{method} --on {data}", [*settings, f"{key}={value}"])
