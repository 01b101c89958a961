"""An unknown command is answered in one sentence; help shows values in one style."""

import re

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["drver"], "'fedscale' has no command 'drver'; did you mean 'driver'?"),
        (["driver", "strt"], "'fedscale driver' has no command 'strt'; did you mean 'start'?"),
        (["dataset", "lst"], "'fedscale dataset' has no command 'lst'; did you mean 'list'?"),
        (
            ["methods", "xyzzy"],
            "'fedscale methods' has no command 'xyzzy'; 'fedscale methods --help' lists the commands",
        ),
    ],
)
def test_unknown_command_names_the_closest_or_the_help(call, words, message):
    assert call(*words) == (2, "", f"fedscale: {message}\n")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["driver", "start"], [r"--resume\s+Continue", r"--at-once\s+N \[x>=1\]", r"--on\s+DATA", r"CONF\s+Path"]),
        (["dataset", "verify"], [r"FOLDER\s+A data folder", r"--data-set\s+TEXT", r"--help\s+-h\s+Show"]),
        (["traces", "synthesize"], [r"--format\s+npz\|csv", r"--out\s+-o\s+PATH", r"--force\s+Replace"]),
    ],
)
def test_help_shows_flags_as_flags_and_values_in_capitals(call, words, lines):
    _, out, _ = call(*words, "--help")
    assert not re.search(r"<\w", out)
    for line in lines:
        assert re.search(line, out), line
