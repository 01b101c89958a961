"""Presets: one file per method and one per data set, from which a whole configuration is composed.

A data preset names its ``setting``: the schedule of a paper, or of its evaluation on two cores (``settings/``). Later
keys win: those of the setting and of what it is ``like``, the method's ``keys``, the data preset's ``keys``, then the
method's ``exceptions``, listed by setting or data preset. ``$role`` stands for what the data preset's
``models`` hold, else the method's; a key whose role neither holds is left out, and so is a key that is null.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedscale_ext.config.methods import method_names
from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.util.yaml_reading import load_yaml

ON = " --on "
"""What stands between a method's and a data set's name where one text names both."""

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Setting:
    """The schedule that data presets share, without keys of data or method; ``like`` names the one it builds on."""

    title: str
    like: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataPreset:
    """A data set with its clients.

    ``get`` are the commands that fill its folder, ``models`` the roles that methods refer to, ``aliases`` other names
    of it (those of ``fedscale dataset list``), ``notes`` comments of the file.
    """

    title: str
    setting: str
    get: tuple[str, ...]
    keys: Mapping[str, Any]
    models: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MethodPreset:
    """A method's keys on any data.

    ``data`` is the data preset nearest to its paper, ``method`` the method's registered name where the preset's name is
    another one, ``models`` the roles for data that do not name them. ``exceptions`` are keys and ``notes`` comments, by
    setting or data preset.
    """

    title: str
    data: str
    keys: Mapping[str, Any]
    method: str = ""
    models: Mapping[str, Any] = field(default_factory=dict)
    exceptions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def data_presets() -> dict[str, DataPreset]:
    """Return the data presets by name."""
    return {path.stem: DataPreset(**_read(path)) for path in sorted((_HERE / "data").glob("*.yml"))}


@cache
def method_presets() -> dict[str, MethodPreset]:
    """Return the method presets by name."""
    return {path.stem: MethodPreset(**_read(path)) for path in sorted((_HERE / "methods").glob("*.yml"))}


@cache
def _settings() -> dict[str, Setting]:
    return {path.stem: Setting(**_read(path)) for path in sorted((_HERE / "settings").glob("*.yml"))}


def _read(path: Path) -> dict[str, Any]:
    return load_yaml(path.read_text(encoding="utf-8"))


def method_preset(name: str) -> MethodPreset:
    """Return the preset of a method; one without keys for a registered method that has none."""
    presets = method_presets()
    if name in presets:
        return presets[name]
    known = startable_methods()
    if name not in known:
        hint = did_you_mean(name, known) or "; `fedscale config list methods` shows all"
        raise UserError(f"there is no method {name!r} to start on a data set{hint}")
    return MethodPreset(name, "femnist", {"model": "$base"})


def data_name(name: str) -> str:
    """Return the name of a data preset for this name of it, or for that of its data set; UserError for none."""
    names = {preset.lower(): preset for preset in data_presets()}
    for preset, data in data_presets().items():
        names |= {alias.lower(): preset for alias in data.aliases}
    spelt = data_set_name(name).lower()
    if spelt not in names:
        hint = did_you_mean(spelt, names) or "; `fedscale config list data` shows all"
        raise UserError(f"--on {name}: there is no such data preset{hint}")
    return names[spelt]


def startable_methods() -> list[str]:
    """Return the names that ``--on`` may follow: method presets, and registered methods that have none."""
    return sorted({*method_presets(), *method_names()})


def is_method(name: str) -> bool:
    """Tell whether ``--on`` may follow a name."""
    return name in startable_methods()


def how_to_get(data_dir: Path) -> str:
    """Return the commands that fill the folder of a data preset; an empty text for any other folder."""
    for data in data_presets().values():
        if Path(data.keys["data_dir"]) == data_dir:
            return "get it with: " + "; ".join(data.get)
    return ""


def setting_title(data: DataPreset) -> str:
    """Return whose schedule a data preset has."""
    return _settings()[data.setting].title


def ask_for_data(method: str) -> str:
    """Say on which data a method without ``--on`` may start, its paper's first."""
    first = method_preset(method).data
    others = [name for name in ("femnist", "femnist_small", "speech_small", "uci_har_small") if name != first]
    return (
        f"say on which data {method} trains: --on {first} is nearest to its paper; others are {', '.join(others)}, "
        "and `fedscale config list data` shows all"
    )


def preset_words(method: str, on: str) -> str:
    """Return what names the composed configuration: METHOD --on DATA, the data preset by its own name."""
    method_preset(method)
    return f"{method}{ON}{data_name(on)}"


def compose(method: str, on: str) -> dict[str, Any]:
    """Return the job_conf keys of a method on a data set; UserError for a name that is not known."""
    how, on = method_preset(method), data_name(on)
    data = data_presets()[on]
    roles = {**how.models, **data.models}
    chain = compose_chain(on)
    keys: dict[str, Any] = {"job_name": f"{method}_{on}", "method": how.method or method}
    parts = [*(_settings()[name].keys for name in chain[:-1]), how.keys, data.keys]
    for part in (*parts, *(how.exceptions.get(name, {}) for name in chain)):
        keys |= {key: _filled(value, roles) for key, value in part.items()}
    return {key: value for key, value in keys.items() if value is not None}


def compose_chain(data: str) -> list[str]:
    """Return the settings that a data preset builds on, the most general first, then its own name."""
    names, setting = [data], data_presets()[data].setting
    while setting:
        names.insert(0, setting)
        setting = _settings()[setting].like
    return names


def _filled(value: Any, roles: Mapping[str, Any]) -> Any:
    return roles.get(value[1:]) if isinstance(value, str) and value.startswith("$") else value


_TOP = """\
# ---- machines: aggregator, and host:[executors on GPU 0, executors on GPU 1, ...] ----
ps_ip: 127.0.0.1
worker_ips:
  - localhost:[2]
exp_path: fedscale_ext
aggregator_entry: entry/aggregator.py
executor_entry: entry/executor.py
auth:
  ssh_user: ""
setup_commands:

# ---- the job; docs/configuration.md lists the keys beside FedScale's own ----
job_conf:
"""


def render(method: str, on: str) -> str:
    """Return the configuration of a method on a data set as the text of a YAML file."""
    keys = compose(method, on)
    lines = "".join(f"  - {key}: {_text(value)}\n" for key, value in keys.items())
    head = "".join(f"# {line}".rstrip() + "\n" for line in _head(method, data_name(on)))
    return f"{head}\n{_TOP}{lines}"


def _head(method: str, on: str) -> Iterator[str]:
    """What the file is, how to start it and how to get its data."""
    how, data = method_preset(method), data_presets()[on]
    yield f"{how.title} on {data.title}. Setting: {setting_title(data)}."
    yield f"  fedscale driver start {preset_words(method, on)}"
    yield "Data:"
    yield from (f"  {line}" for line in data.get)
    types = ",".join({**how.models, **data.models}.get("types", ()))
    for name in compose_chain(on):
        for note in how.notes.get(name, ()):
            yield note.replace("$types", types)
    yield from data.notes


def _text(value: Any) -> str:
    """A value as YAML 1.1 reads it back, which takes 1e-08 for text: it needs a point."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return str(value)
