"""Values become YAML that is read back as they were."""

from pathlib import Path

import pytest

from fedscale_ext.util.yaml_reading import as_yaml, load_yaml


@pytest.mark.parametrize(
    "value",
    [
        "/runs/😀/ä",
        "a\\ud83d\\ude00",
        "\x7f\x85\u2028\ufffe",
        "\udc80",
        'a"b: #',
        "1128_132854",
        [1, None, "😀"],
        {"a.b": True},
    ],
)
def test_any_value_is_read_back(value: object):
    assert load_yaml(as_yaml(value)) == value
    assert as_yaml(value).isprintable() and as_yaml(value).isascii()


def test_a_path_is_its_text():
    assert load_yaml(as_yaml(Path("/runs/😀"))) == "/runs/😀"
