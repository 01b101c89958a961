"""Configurations from anywhere: one sentence, soon, whatever the YAML holds."""

import os
import re
from pathlib import Path

import pytest

from fedscale_ext.config.job_config import load_config, shipped_configs
from fedscale_ext.core.errors import UserError
from tests.mutations import mutated


def refusal(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert str(caught.value).isprintable()
    return str(caught.value)


PAIRS = list(zip("abcdefghijklm", "bcdefghijklmn", strict=True))
LAUGHS = "a: &a [x, x]\n" + "".join(f"{this}: &{this} [*{last}, *{last}, *{last}]\n" for last, this in PAIRS)
MERGES = "a: &a {x: 1}\n" + "".join(f"{this}: &{this}\n  <<: [*{last}, *{last}]\n" for last, this in PAIRS)
OVERRIDES = ["seed=" + "[" * 99, "time_stamp=2024-13-45", "seed=&a [*a]", f"seed={'9' * 5000}", "seed=1:30"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS + "job_conf:\n  - rounds: *n\n", r"alias \*a stands for more than one short value.*\(line 2\)"),
        (MERGES, r"alias \*a stands for more"),
        (f"a: &a {'x' * 5000}\nb: *a\n", r"alias \*a stands for more"),
        ("a: &a [*a]\n", "alias"),
        ("job_conf: " + "[" * 3000, "nested too deeply"),
        ("job_conf: " + "{a: " * 3000, "nested too deeply"),
        ("job_conf:\n" + "".join(" " * n + "-\n" for n in range(1, 300)), "nested too deeply"),
        ("job_conf:\n  - rounds: 3\n    rounds: 4\n", r"'rounds' is there twice \(line 3\)"),
        ("job_conf:\n  - rounds: 3\n  - rounds: 4\n", "'rounds' is listed twice"),
        ("job_conf: []\njob_conf: []\n", "'job_conf' is there twice"),
        ("? [a]\n: 1\n", "a key is not a single word"),
        (f"job_conf:\n  - rounds: {'9' * 5000}\n", "is not of the kind that it looks like"),
        ("job_conf:\n  - time_stamp: 2024-13-45\n", "'2024-13-45' is not of the kind"),
        ("job_conf:\n  - rounds: !!timestamp x\n", "is not of the kind"),
        ("job_conf:\n  - rounds: !!int ''\n", "is not of the kind"),
        ("job_conf:\n  - rounds: !!bool x\n", "is not of the kind"),
        ("job_conf:\n  - rounds: !!python/object/apply:os.getpid []\n", "could not determine a constructor"),
        ("job_conf:\n  - rounds: 1:30\n", r"'rounds' is '1:30'; it must be a whole number"),
        ("job_conf:\n  - seed: -1:30:00\n", r"'seed' is '-1:30:00'; "),
        ("job_conf:\n  - learning_rate: 0:0.5\n", r"'learning_rate' is '0:0.5'; it must be a number"),
        ("job_conf:\n  - rounds: !!int 1:30\n", "'rounds' is '1:30'"),
        ("job_conf:\n  - rounds: .inf\n", "'rounds' is inf; it must be a whole number"),
        (f"job_conf:\n  - learning_rate: {'9' * 400}\n", "; it must be a number"),
        ("job_conf:\n  - deadline_s: .inf\n", "'deadline_s' is inf; it must be a finite number"),
        (f"job_conf:\n  - seed: {10**30}\n", "'seed' is 1000"),
        ("job_conf:\n  - cohort_size: ²\n", "should be auto, or a whole number"),
        ("worker_ips:\n  - localhost:[999999999999]\njob_conf: []\n", "more than 1,024 executors"),
        (f"worker_ips:\n  - localhost:[{'9' * 5000}]\njob_conf: []\n", "more than 1,024 executors"),
        ("# " + "x" * 300_000, "300,002 bytes, of which 262,144 are allowed"),
        (b"job_conf:\n  - job_name: \xff\n", "not valid YAML"),
        (b"job_conf:\n  - job_name: a\0b\n", "not valid YAML"),
    ],
    ids=range(31),
)
def test_each_way_to_harm_a_reader_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    message = refusal(tmp_path / "job.yml", text)
    assert re.search(said, message), message


def test_an_alias_of_a_short_value_is_fine(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("ps_ip: &here 127.0.0.1\njob_conf:\n  - job_name: *here\n")
    assert load_config(tmp_path / "job.yml").fedscale.job_name == "127.0.0.1"


def test_a_time_of_day_is_text(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("job_conf:\n  - time_stamp: 10:30\n")
    assert load_config(tmp_path / "job.yml").fedscale.time_stamp == "10:30"
    assert load_config(tmp_path / "job.yml", ["time_stamp=1:5", "rounds=1_000"]).fedscale.time_stamp == "1:5"


@pytest.mark.parametrize("override", OVERRIDES)
def test_overrides_are_as_safe(tmp_path: Path, override: str) -> None:
    (tmp_path / "job.yml").write_text("job_conf: []\n")
    if override.startswith("time_stamp"):  # text that looks like a date and is none is text
        assert load_config(tmp_path / "job.yml", [override]).fedscale.time_stamp == "2024-13-45"
        return
    with pytest.raises(UserError, match="'seed'"):
        load_config(tmp_path / "job.yml", [override])


def test_what_is_no_plain_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.yml")
    (tmp_path / "zero.yml").symlink_to("/dev/zero")
    for name in ("job.yml", "zero.yml"):
        with pytest.raises(UserError, match="no configuration"):
            load_config(tmp_path / name)


def test_damaged_configurations_end_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "job.yml"
    refused = 0
    for data in mutated([config.read_bytes() for config in shipped_configs().values()], 250):
        path.write_bytes(data)
        try:
            load_config(path)
        except UserError as error:
            refused += 1
            assert str(error).isprintable()
    assert refused > 30
