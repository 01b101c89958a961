"""An unknown command is answered in one sentence."""

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
