"""Where progress is shown: in a terminal, in a notebook (a stand-in for IPython), and elsewhere."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from fedscale_ext.driver.screen import Screen, in_notebook


class Counting(Screen):
    number = 0

    def picture(self) -> Text:
        return Text(f"[{self.number}]")


class Cells:
    """What IPython.display.display was asked to show, and to show instead."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> "Cells":
        assert raw and display_id
        self.shown.append(bundle["text/plain"])
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle["text/plain"])


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    cells, shell = Cells(), type("Shell", (), {"kernel": object()})()
    ipython: Any = ModuleType("IPython")
    display: Any = ModuleType("IPython.display")
    ipython.get_ipython, display.display = lambda: shell, cells.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return cells


def screen(**options: Any) -> Counting:
    return Counting(Console(file=io.StringIO(), width=80, **options), Console(file=io.StringIO(), width=80), 4)


def test_a_notebooks_picture_is_replaced_and_gone_in_the_end(cells: Cells):
    shown = screen(force_terminal=True)  # as which a kernel's output passes
    with shown:
        shown.number = 7
        shown.refresh()
        shown.line("stays")
    assert cells.shown == ["[0]", "[7]", ""]
    assert shown.out.file.getvalue() == "stays\n"


def test_a_quiet_notebook_shows_nothing(cells: Cells):
    shown = screen(quiet=True)
    with shown:
        shown.refresh()
    assert cells.shown == []


def test_lines_alone_without_a_terminal():
    assert not in_notebook()
    shown = screen()
    with shown:
        shown.refresh()
        shown.line("[one]")
        shown.aside("[red]two[/]")
    assert (shown.out.file.getvalue(), shown.err.file.getvalue()) == ("[one]\n", "two\n")


def test_a_terminals_picture_takes_asides_too():
    shown = screen(force_terminal=True, color_system=None)
    with shown:
        shown.aside("two")
    assert "two" in shown.out.file.getvalue() and "[0]" in shown.out.file.getvalue()
    assert shown.err.file.getvalue() == ""
