"""Groups of options: a dataclass in a command's signature, options of their own on the command line."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fedscale_ext.cli.option_groups import grouped


@dataclass(frozen=True)
class Size:
    """How large.

    Not in the help.
    """

    width: Annotated[int, typer.Option(help="Metres across.")] = 2
    deep: Annotated[bool, typer.Option("--deep", help="Below the ground.")] = False


@dataclass(frozen=True)
class Paint:
    """Colours."""

    colour: Annotated[str, typer.Option("--colour", help="Of the walls.")]


@pytest.fixture()
def app() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @grouped
    def build(
        name: Annotated[str, typer.Argument()],
        size: Size,
        paint: Paint,
        fast: Annotated[bool, typer.Option("--fast")] = False,
    ) -> None:
        """Build a house."""
        print(name, size, paint, fast)

    return app


def test_a_command_gets_its_groups_built(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["hut", "--colour", "red", "--width", "5", "--deep"])
    assert result.output == "hut Size(width=5, deep=True) Paint(colour='red') False\n"
    result = CliRunner().invoke(app, ["hut", "--colour", "red", "--fast"])
    assert result.output == "hut Size(width=2, deep=False) Paint(colour='red') True\n"


def test_a_field_without_a_default_is_required(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["hut"])
    assert result.exit_code == 2 and "--colour" in result.output


def test_the_help_lists_a_group_under_the_first_line_of_its_docstring(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert "Build a house." in text and "─ How large ─" in text and "─ Colours ─" in text
    assert text.index("How large") < text.index("--width") < text.index("Colours") < text.index("--colour")
    assert "Not in the help" not in text
