"""`fedscale config`, and the driver's commands with `--on`."""

from pathlib import Path

import pytest

from fedscale_ext.config.job_config import load_config
from fedscale_ext.config.presets import data_presets, render, setting_title, startable_methods
from fedscale_ext.driver import jobs
from fedscale_ext.driver.sweeps import sweep_records

from .conftest import FAKES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    return tmp_path


def test_list_has_every_preset(call) -> None:
    code, out, err = call("config", "list")
    assert (code, err) == (0, "")
    first = {line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")}
    assert max(map(len, out.splitlines())) <= 100
    assert first == {"method", *startable_methods(), "data", *data_presets()}


@pytest.mark.parametrize(("kind", "named", "other"), [("methods", "heterofl", "svhn  "), ("data", "svhn", "heterofl")])
def test_list_has_one_kind(call, kind: str, named: str, other: str) -> None:
    code, out, _ = call("config", "list", kind)
    assert code == 0 and named in out and other not in out.replace("  svhn\n", "")


def test_data_are_listed_with_the_command_that_gets_them(call) -> None:
    _, out, _ = call("config", "list", "data")
    joined = " ".join(out.replace("\\\n", " ").split())
    for name, preset in data_presets().items():
        assert f"{name} {preset.title} {setting_title(preset)} {preset.get[0]}" in joined


def test_show_prints_the_file_or_writes_it(call, folder: Path) -> None:
    code, out, err = call("config", "show", "heterofl", "--on", "speech")
    assert (code, out, err) == (0, render("heterofl", "speech"), "")
    assert call("config", "show", "heterofl", "--on", "speech", "-o", "job.yml")[0] == 0
    assert (folder / "job.yml").read_text(encoding="utf-8") == out
    assert load_config("job.yml").echo() == load_config("heterofl --on speech").echo()
    out = call("config", "show", "heterofl", "--on", "speech", "-o", "my job.yml")[1]
    assert out == "wrote my job.yml; start it with: fedscale driver start 'my job.yml'\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("config", "show", "heterofl"), "say on which data heterofl trains"),
        (("config", "show", "none"), "there is no method 'none'"),
        (("config", "show", "heterofl", "--on", "spech"), "did you mean 'speech'?"),
        (("config", "show", "heterofl", "--on", "speech", "-o", "there.yml"), "there.yml exists; name a new file"),
        (("config", "show", "heterofl", "--on", "speech", "-o", "no/job.yml"), "no/job.yml cannot be written"),
        (("driver", "start", "heterofl"), "say on which data heterofl trains"),
        (("driver", "start", "heterofl", "--on", "spech"), "did you mean 'speech'?"),
        (("driver", "start", "heterofl", "--on", "spech", "--seeds", "0-1"), "did you mean 'speech'?"),
        (("driver", "start", "heterofl", "--on", "speech"), "data/speech does not exist: get it with"),
        (("driver", "check", "heterofl", "--on", "speech"), "data/speech does not exist: get it with"),
        (("driver", "check", "heterofl", "--on", "speech", "--set", "round=3"), "did you mean 'rounds'?"),
        (("driver", "submit", "quickstart", "--on", "speech"), "quickstart is a whole configuration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_a_sentence(call, folder: Path, words: tuple[str, ...], sentence: str) -> None:
    (folder / "there.yml").touch()
    code, _, err = call(*words)
    assert code == 2 and sentence in err and "Traceback" not in err
    assert (folder / "there.yml").read_text() == ""


def test_render_takes_presets(call) -> None:
    code, out, _ = call("driver", "render", "fedavg", "--on", "femnist", "--image", "i", "--claim", "c")
    assert code == 0 and "fedavg-femnist" in out


FAKED = [
    f"--set={setting}"
    for setting in (f"exp_path={FAKES}", "aggregator_entry=aggregator.py", "executor_entry=executor.py",
                    "data_dir=data", "ps_port=auto", "model=cnn_small")
]  # fmt: skip


def test_a_job_is_known_by_its_presets_and_so_is_a_job_of_a_sweep(call, write_conf) -> None:
    write_conf()  # and the folder of its data
    assert call("driver", "start", "fedavg", "--on", "FEMNIST", *FAKED)[0] == 0
    assert jobs.find("fedavg_femnist").conf == "fedavg --on femnist"
    code, _, err = call(
        "driver", "start", "fedavg", "--on", "femnist", "--set", "job_name=two", "--seeds", "0-1", *FAKED
    )
    assert code == 0, err
    assert jobs.find("two-s0").conf == "fedavg --on femnist"
    sweep = sweep_records.read("two-sweep")
    assert sweep is not None and sweep.conf == "fedavg --on femnist"
