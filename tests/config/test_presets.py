"""Presets: composing yields a valid configuration; what is shown is what is started."""

from pathlib import Path

import pytest

from fedscale_ext.config.job_config import ConfFile, load_config, shipped_configs
from fedscale_ext.config.presets import render

DISTILLING = ("moss", "fedmd", "feddf", "dsfl", "fedgems", "fedet")


def preset_of(name: str) -> tuple[str, str, list[str]]:
    """The presets and the overrides that a shipped file corresponds to."""
    small = "_small" if name.endswith("_small") else ""
    method, data = name.removesuffix("_small").rsplit("_", 1)
    data = {"har": "uci_har", "unimib": "unimib_shar"}.get(data, data)
    overrides = []
    if method.endswith("_moss") or method in DISTILLING:
        method, data = method.removesuffix("_moss"), f"{data}_moss"
    elif method in ("fedavg_oort", "fedavg_pyramidfl"):
        overrides.append(f"sample_mode={method.removeprefix('fedavg_')}")
        method, data = "fedavg", "speech_selection"
    elif method == "fedavg_s":
        method = "fedavg"
    elif method == "fedoras" and data != "shakespeare":
        data = f"{data}_fedoras"
    elif method in ("fednas", "zerofl") or (method, data) == ("fjord", "cifar10"):
        data = f"{data}_nas"
    elif method == "spider":
        data = f"{data}_silos"
    return method, f"{data}{small}", overrides


@pytest.mark.parametrize("name", sorted(set(shipped_configs()) - {"quickstart"}))
def test_a_rendered_preset_equals_the_shipped_file(name: str) -> None:
    method, data, overrides = preset_of(name)
    shipped = load_config(name)
    rendered = load_config(ConfFile(Path(name), render(method, data).encode()), overrides)
    assert rendered.cluster == shipped.cluster
    assert {**rendered.echo(), "job_name": name} == shipped.echo()
    assert set(rendered.given) == set(shipped.given)
