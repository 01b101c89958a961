"""Lists written as text: a comma within brackets belongs to a value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.util.commas import at_commas, rejoined

VALUE = st.recursive(
    st.text("ab:.=9 ", max_size=4),
    lambda inner: st.builds(lambda name, parts: f"{name}({','.join(parts)})", st.sampled_from("ab"), st.lists(inner)),
)


@given(st.lists(VALUE, min_size=1))
def test_values_joined_by_commas_are_found_again(values: list[str]) -> None:
    assert at_commas(",".join(values)) == values


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        (["n:Net(9", 2, "x=[1", "3])", "lenet", 0.5], ["n:Net(9, 2, x=[1, 3])", "lenet", 0.5]),
        (["Net(a, b)", ["(", "x"], None], ["Net(a, b)", ["(", "x"], None]),
        (["never(closed", "b"], ["never(closed, b"]),
        (["a)", "b"], ["a)", "b"]),
        ([], []),
    ],
)
def test_what_yaml_parted_is_whole_again(parts: list[object], values: list[object]) -> None:
    assert rejoined(parts) == values
