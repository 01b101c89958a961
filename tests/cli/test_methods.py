"""The list of methods."""

import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from synthetic_job import models

import fedscale_ext
from fedscale_ext.cli import methods
from fedscale_ext.config import methods as registry
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.model_files import save_models
from fedscale_ext.report.job.loading import load_job

from .conftest import done


class Good:
    """A method that is good.

    More of it.
    """

    @dataclass(frozen=True)
    class Params:
        """Hyperparameters of a good method.

        What concerns ``beta``
        and others.

        Attributes:
            beta: Weight of
                [the] loss.

        """

        beta: float
        rate: float = 0.5
        sharing: Literal["soft", "none"] = "soft"
        most: int | None = None
        shares: tuple[float, ...] = field(default_factory=tuple)
        on: bool = True


def test_methods_with_their_first_line(monkeypatch, capsys):
    def find(name: str) -> type:
        if name == "broken":
            raise UserError("method broken cannot be loaded: no module named gone")
        return Good

    monkeypatch.setattr(registry, "method_names", lambda: ["broken", "good"])
    monkeypatch.setattr(registry, "method_class", find)
    methods.list_methods()
    output = capsys.readouterr()
    assert output.err == "note: method broken cannot be loaded: no module named gone\n"
    lines = [line.split(maxsplit=1) for line in output.out.splitlines() if line]
    assert ["good", "–       –     –      A method that is good."] in lines


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """The sentence about the method ``damped``, which is installed and imports a module that there is not."""
    package = tmp_path / "site" / "damped"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "aggregator.py").write_text("import torhc\n")
    about = package.parent / "damped-0.1.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("[fedscale_ext.methods]\ndamped = damped.aggregator:DampedAggregator\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: damped\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(package.parent)
    paths = [str(package.parent), str(Path(fedscale_ext.__file__).parents[1])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    fault = "line 1: ModuleNotFoundError: No module named 'torhc'"
    yield f"method damped cannot be loaded: {package}/aggregator.py, {fault}"
    sys.modules.pop("damped", None)


def test_a_method_that_cannot_be_imported_is_a_sentence(call, fedscale, job_file, broken):
    assert call("methods", "options", "damped") == (2, "", f"fedscale: {broken}\n")
    code, out, err = call("methods")
    assert code == 0 and "FedAvg" in out and err == f"note: {broken}\n"
    code, _, err = done(fedscale("driver", "start", job_file, "--set", "method=damped"))
    assert code == 2 and err == f"fedscale: {broken}\n"


def test_options_with_defaults_values_and_meaning(monkeypatch, capsys):
    monkeypatch.setattr(registry, "method_class", lambda name: Good)
    methods.options("good")
    table, about = capsys.readouterr().out.split("\n\n")
    titles, *rows = [re.split("  +", line) for line in table.splitlines()]
    assert titles == ["name", "default", "values", "meaning"]
    assert rows == [
        ["good.beta", "required", "number", "Weight of [the] loss."], ["good.rate", "0.5", "number"],
        ["good.sharing", "soft", "soft, none"], ["good.most", "null", "whole number or null"],
        ["good.shares", "[]", "list of numbers"], ["good.on", "true", "true, false"],
    ]  # fmt: skip
    assert about == "What concerns `beta` and others.\n"


def test_options_of_a_built_in_method(call):
    code, out, _ = call("methods", "options", "fedtrans")
    rows = [re.split("  +", line) for line in out.splitlines()]
    read = "Read only with `warmup: on` or `similarity: one`."
    meaning = f"`soft` shares weights between models (Eq. 5). `none` is [s]. {read}"
    assert code == 0 and ["fedtrans.sharing", "soft", "soft, none", meaning] in rows
    assert rows[-1] == ["Letters in brackets, as [s], are the ablations of Table 3."]
    code, _, err = call("methods", "options", "fedtras")
    assert code == 2 and err == "fedscale: there is no method 'fedtras'; did you mean 'fedtrans'?\n"


def test_options_of_a_method_without_any(call):
    assert call("methods", "options", "fedavg") == (0, "fedavg has no hyperparameters of its own\n", "")


def test_show_of_a_method_names_the_command_that_shows_it(call, state):
    sentence = "'fedtrans' is a method, not a job: `fedscale methods options fedtrans` shows its hyperparameters"
    assert call("methods", "show", "fedtrans") == (2, "", f"fedscale: {sentence}\n")


def test_show_prints_the_lineage_of_a_finished_job(call, state, job_file):
    grow = {"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9}
    done = fedscale_ext.run(job_file, method="fedtrans", rounds=3, **grow)
    code, out, _ = call("methods", "show", done["log_dir"])
    lines = out.splitlines()
    assert code == 0 and lines[0] == "fedtrans, 3 rounds, 2 models"
    assert lines[1].split()[:3] == ["model", "parent", "round"]
    assert lines[3].split()[:4] == ["m1", "m0", "2", "widen"]
    assert lines[-2].endswith("growth.png")
    model, devices = shlex.split(lines[-1])[-3::2]
    assert model == f"model={done['log_dir']}/models/m1.json" and Path(model.removeprefix("model=")).is_file()
    assert devices == f"capacity_model={done['log_dir']}/models/m0.json"
    alone = fedscale_ext.run(job_file, rounds=1, job_name="alone")
    assert call("methods", "show", alone["log_dir"])[1].startswith("fedavg, 1 round, 1 model\n")


@pytest.mark.parametrize("device_keys", [{}, {"capacity_model": "cnn_small"}, {"deadline_s": 1000.0}])
def test_the_largest_model_elsewhere_meets_the_same_devices(call, state, job_file, device_keys):
    keys = {"rounds": 1, "model": "nasbench201_base", **device_keys}
    widths = fedscale_ext.run(job_file, method="heterofl", job_name="widths", **keys)
    line = call("methods", "show", widths["log_dir"])[1].splitlines()[-1]
    settings = dict(setting.split("=", 1) for setting in shlex.split(line.split(": ", 1)[1])[1::2])
    assert ("on the same devices" in line) is ("capacity_model" in settings) is ("deadline_s" not in device_keys)
    if "capacity_model" in settings:
        again = fedscale_ext.run(job_file, job_name="again", **{**keys, **settings})
        theirs, ours = (load_job(Path(each["log_dir"])).affords for each in (widths, again))
        assert theirs == ours


def test_models_that_never_travel_say_nothing_of_the_devices_elsewhere(call, state, job_file):
    types = {"fd.types": ["cnn_small", "lenet_6k"], "fd.ranges": ["1-3", "4-7"]}
    done = fedscale_ext.run(job_file, method="fd", rounds=1, model="cnn_small", **types)
    line = call("methods", "show", done["log_dir"])[1].splitlines()[-1]
    assert line.startswith("train its largest model elsewhere: --set ") and "capacity_model" not in line


def test_the_largest_model_is_named_by_its_file(tmp_path, monkeypatch):
    model = models()[0]
    model.key = "nets:Net(width=6, depth=2)/x"
    save_models(tmp_path, [model])
    monkeypatch.setattr(methods, "_weakest_model", lambda *_: None)
    summary = {"models": [{"key": model.key, "cost": {"forward_macs": 5}}]}
    line = methods._settings_of_largest(tmp_path, summary)
    assert Path(shlex.split(line)[-1].removeprefix("model=")).is_file()


def test_show_of_what_is_no_job_is_one_sentence(call, state, tmp_path):
    code, _, err = call("methods", "show", "nothing")
    assert code == 2 and "no job 'nothing'" in err and len(err.splitlines()) == 1
    (tmp_path / "summary.json").write_text("{}")
    code, _, err = call("methods", "show", tmp_path)
    assert code == 2 and "is damaged" in err and len(err.splitlines()) == 1


def test_the_list_of_methods_has_family_year_and_needs(call):
    _, out, _ = call("methods")
    assert re.search(r"^depthfl +depth +2023 +a model with exits +Clients train", out, re.M)
    assert re.search(r"^local +no federation +– +– +Every client", out, re.M)
    families = [line.split("  ")[1:] for line in out.splitlines()[1:31]]
    assert all(words for words in families)


@pytest.mark.parametrize("method", registry.method_names())
def test_every_method_of_ours_says_its_family(method):
    assert vars(registry.method_class(method))["about"].family
