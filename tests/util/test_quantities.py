import pytest

from fedscale_ext.util.quantities import percent, quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (950.4, "950"),
        (999.6, "1 k"),
        (999_900, "1 M"),
        (2_512_000, "2.51 M"),
        (9.68e14, "968 T"),
        (1e18, "1e+03 P"),
    ],
)
def test_quantity(value: float, text: str):
    assert quantity(value) == text


def test_percent():
    assert (percent(0.12345), percent(None)) == ("12.35 %", "–")
