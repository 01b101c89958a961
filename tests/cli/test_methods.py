"""The list of methods."""

from dataclasses import dataclass, field

from fedscale_ext import methods as registry
from fedscale_ext.cli import methods


class Good:
    """A method that is good.

    More of it.
    """

    @dataclass(frozen=True)
    class Params:
        beta: float
        rate: float = 0.5
        layers: list = field(default_factory=list)


def test_methods_with_first_line_and_defaults(monkeypatch, capsys):
    def find(name: str) -> type:
        if name == "broken":
            raise ImportError("no module named gone")
        return Good

    monkeypatch.setattr(registry, "method_names", lambda: ["broken", "good"])
    monkeypatch.setattr(registry, "method_class", find)
    methods.methods()
    said = capsys.readouterr()
    assert said.err == "note: method broken cannot be loaded: no module named gone\n"
    lines = [line.split(maxsplit=1) for line in said.out.splitlines() if line]
    assert ["good", "A method that is good."] in lines
    assert ["good.beta", "required"] in lines
    assert ["good.rate", "0.5"] in lines
    assert ["good.layers", "[]"] in lines
