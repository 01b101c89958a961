"""Random paths of a bracket."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.bracket_sampling import check_reachable, new_paths, paths_towards
from fedscale_ext.methods.fedoras.brackets import Bracket
from fedscale_ext.methods.fedoras.path_sampling import path_macs

from .spaces import drawn_table, every_path, table


@given(st.integers(0, 50), st.floats(0.05, 0.85), st.floats(0.05, 0.3))
@settings(max_examples=25)
def test_most_drawn_paths_are_inside(seed: int, low: float, width: float) -> None:
    tables = drawn_table(6, 5, seed)
    dearest = path_macs(tables, every_path(tables)).max()
    bracket = Bracket(low * dearest, (low + width) * dearest)
    drawn = paths_towards(tables, bracket, 200, stream(seed))
    assert bracket.inside(path_macs(tables, drawn)).mean() > 0.3


def test_all_paths_of_a_small_bracket_are_found() -> None:
    tables = drawn_table(4, 5)
    paths = every_path(tables)
    macs = path_macs(tables, paths)
    bracket = Bracket(*np.quantile(macs, [0.5, 0.7]).tolist())
    expected = set(map(tuple, paths[bracket.inside(macs)].tolist()))
    drawn = new_paths(tables, bracket, 10_000, stream(1))
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == expected
    assert len(new_paths(tables, bracket, 7, stream(1))) == 7
    seen = set(drawn[:-3])
    assert set(new_paths(tables, bracket, 10, stream(2), seen)) == set(drawn[-3:])


def test_unsupported_operators_are_never_drawn() -> None:
    tables = table([[1, np.inf, 3], [np.inf, 2], [5, 6, 7]])
    drawn = paths_towards(tables, Bracket(1e9, 2e9), 300, stream(1))  # also where nothing leads there
    assert np.isfinite(path_macs(tables, drawn)).all()
    assert set(drawn[:, 0].tolist()) == {0, 2}


@pytest.mark.parametrize(
    ("bracket", "why"),
    [
        (Bracket(0.0, 15.5), "the cheapest path takes 1.6e-05"),
        (Bracket(40.0, 50.0), "the dearest path takes 4e-05"),
        (Bracket(26.5, 29.5), "none of 20,480 paths that were drawn towards it is inside"),
    ],
)
def test_a_bracket_without_paths(bracket: Bracket, why: str) -> None:
    tables = table([[2, 16], [4, 14]])  # paths of 16, 26, 30 and 40 MACs
    with pytest.raises(UserError, match=f"no path can be searched for that takes above .*: {why}; choose another"):
        check_reachable(tables, bracket, stream(1))


def test_a_bracket_of_one_path() -> None:
    check_reachable(table([[2, 16], [4, 14]]), Bracket(29.5, 30.0), stream(1))
