"""Tables in a terminal and in a pipe."""

import io

import pytest
from rich.console import Console

from fedscale_ext.driver.tables import console, print_entries, print_table

TITLES = ["name", "default", "values", "meaning"]
SENTENCE = "It changes which of the clients train in a round, and how long each of them trains there."
ROWS = [
    ["fedtrans.transform_policy", "random_split", "deepen_only, rand_flip_crop", SENTENCE],
    ["fedtrans.b", "1", "true, false", "Short."],
]


def printed(width: int, terminal: bool, sentences: bool = True) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_table(out, TITLES, ROWS, sentences=sentences)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120])
def test_sentences_wrap_and_words_stay_whole(width: int) -> None:
    lines = printed(width, terminal=True)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert {"fedtrans.transform_policy", "deepen_only,", "rand_flip_crop", *SENTENCE.split()} <= set(words)
    last = lines[0].index("meaning")
    assert " ".join(line[last:].strip() for line in lines[2:] if line).split() == [*SENTENCE.split(), "Short."]
    assert "" in lines[2:]  # rows stand apart


def test_in_a_narrow_terminal_nothing_is_lost() -> None:
    lines = printed(40, terminal=True)
    assert max(map(len, lines)) <= 40
    columns = [line[: lines[0].index("default")].strip() for line in lines[2:]]
    assert "".join(columns) == "fedtrans.transform_policyfedtrans.b"


def test_a_pipe_gets_a_line_per_row() -> None:
    lines = printed(40, terminal=False)
    assert len(lines) == 3 and lines[1].endswith(f"deepen_only, rand_flip_crop  {SENTENCE}")
    assert lines == printed(80, terminal=False, sentences=False)


@pytest.mark.parametrize(("terminal", "columns"), [(True, 60), (False, 100), (True, 200)])
def test_entries_fit_and_a_command_that_goes_on_can_be_copied(terminal: bool, columns: int) -> None:
    command = (
        "fedscale dataset import path/to/file --partition classes --clients 10 --test local --min-samples 5 -o data/x"
    )
    out = Console(file=io.StringIO(), width=columns if terminal else 30, force_terminal=terminal, color_system=None)
    print_entries(out, ("data", "how to get it"), [("first", ["Its title.", command]), ("second", [SENTENCE])])
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    lines = printed.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert lines[:2] == ["data    how to get it", "first   Its title."]
    assert [line.split()[0] for line in lines if line[0] != " "] == ["data", "first", "second"]
    assert " ".join(printed.replace("\\\n", " ").split()).endswith(f"{command} second {SENTENCE}")
    assert all(len(set(line.split()) & {"--test", "local"}) != 1 for line in lines)


def test_a_command_in_a_notebooks_cell_is_not_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter's kernels set it
    assert console().is_terminal
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert not console().is_terminal and console().color_system is None
