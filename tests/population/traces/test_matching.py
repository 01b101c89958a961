"""Which row of a trace is which client's."""

import time
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.population import load_population
from fedscale_ext.population.traces.matching import match_rows

NAMES = ["3", "1", "2"]


@pytest.mark.parametrize(
    ("ids", "clients", "match", "rows", "how"),
    [
        (["a", "b", "c"], ["c", "a", "b"], "auto", [2, 0, 1], "by client_id"),
        ([1, 2, 3], NAMES, "auto", [2, 0, 1], "by client_id"),
        (
            [9, 3, 1, 2],
            NAMES,
            "auto",
            [1, 2, 3],
            "by client_id (1 more row, of clients that the data lack)",
        ),
        ([1, 2, 3], NAMES, "client_id", [2, 0, 1], "by client_id"),
        ([1, 2, 3], NAMES, "order", [0, 1, 2], "by order"),
        (["x", "y"], NAMES, "order", [0, 1, 0], "by order (2 devices, repeated)"),
        ([1, 2, 3], ["0", "1", "2"], "auto", [0, 1, 2], "by order"),  # it numbers its rows, from 1 on
        ([0, 1, 2, 3], ["1", "2", "4"], "auto", [0, 1, 2], "by order"),
        ([7, 5], ["a", "b", "c"], "auto", [0, 1, 0], "by order (2 devices, repeated)"),  # FedScale's traces
        ([1, 2], ["01", "02", "a"], "auto", [0, 1, 0], "by order (2 devices, repeated)"),  # 01 is not 1
    ],
)
def test_rows_are_matched_by_name_where_the_trace_names_clients(
    ids: list[int] | list[str], clients: list[str], match: str, rows: list[int], how: str
) -> None:
    matched = match_rows(np.array(ids), clients, match, "trace")
    assert (matched.rows.tolist(), matched.how, matched.by_id) == (rows, how, how.startswith("by client_id"))


@pytest.mark.parametrize(
    ("ids", "clients", "match", "words"),
    [
        (
            ["a", "b"],
            ["a", "b", "c", "d"],
            "auto",
            "no row for 2 of 4 clients: 'c', 'd'; add a row for each$",  # by order, they would have others' devices
        ),
        ([1, 2], NAMES, "auto", "no row for 1 of 3 clients: '3'; add a row for each, or set device_match: order"),
        ([5, 1, 2], NAMES, "auto", "no row for 1 of 3 clients: '3';"),
        (
            ["x"],
            list("abcdefgh"),
            "auto",
            r"none of its client ids \(x\) is the name of a client \(a, b, c and 5 more\)",
        ),
        ([1, 2, 3], ["0", "1", "2"], "client_id", "no row for 1 of 3 clients: '0';"),
        ([7, 8, 9, 10], ["a"], "client_id", r"none of its client ids \(7, 8, 9 and 1 more\) is the name of a client"),
        (["a"], ["a", *map(str, range(7))], "auto", "no row for 7 of 8 clients: '0', '1', '2', '3', '4' and 2 more;"),
    ],
)
def test_clients_without_a_row_are_counted_and_named(
    ids: list[int] | list[str], clients: list[str], match: str, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        match_rows(np.array(ids), clients, match, "trace")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Three clients' devices, and when they are online: client c from 0 to 10, a from 20 to 30, b never."""
    capacity, behaviour = tmp_path / "c.csv", tmp_path / "a.csv"
    capacity.write_text("client_id,computation,communication\nc,30,300\na,10,100\nb,20,200\nspare,1,1\n")
    behaviour.write_text("client_id,active,inactive,finish_time\nc,0,10,100\nb,5,1,100\na,20,30,100\n")
    return str(capacity), str(behaviour)


def test_each_client_has_the_device_of_its_name(files: tuple[str, str]) -> None:
    capacity, behaviour = files
    population = load_population(["a", "b", "c"], capacity, behaviour, 1)
    assert population.computation_ms.tolist() == [10, 20, 30]
    assert population.communication_kbps.tolist() == [100, 200, 300]
    assert population.source == (
        f"traced: {capacity} by client_id (1 more row, of clients that the data lack), "
        f"online by {behaviour} by client_id"
    )
    online = population.availability
    assert online is not None
    assert [online.online(time).tolist() for time in (5.0, 25.0)] == [[False, False, True], [True, False, False]]
    ordered = load_population(["a", "b", "c"], capacity, behaviour, 1, "order")
    assert ordered.computation_ms.tolist() == [30, 10, 20] and ordered.source.count("by order") == 2


def test_a_trace_that_lacks_clients_is_named_with_its_key(files: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=r"device_avail_file .*a.csv has no row for 1 of 4 clients: 'spare';"):
        load_population(["a", "b", "c", "spare"], *files, 1)
    with pytest.raises(UserError, match=r"device_conf_file .*c.csv has no row for 1 of 2 clients: 'd';"):
        load_population(["a", "d"], *files, 1)


def test_a_name_is_matched_however_its_accented_letters_are_coded() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    matched = match_rows(np.array(["x", decomposed]), [composed, "x"], "auto", "trace")
    assert matched.by_id and matched.rows.tolist() == [1, 0]
    both = match_rows(np.array([decomposed, composed]), [composed, decomposed], "auto", "trace")
    assert both.rows.tolist() == [1, 0]  # to the letter, where that suffices
    shared = match_rows(np.array(["x", decomposed, "y"]), [composed, decomposed, "x"], "auto", "trace")
    assert shared.rows.tolist() == [1, 1, 0] and shared.how == (
        "by client_id (1 more row, of clients that the data lack; "
        "1 client has the row of another whose name is coded otherwise)"
    )


def test_half_a_million_names_are_matched_quickly() -> None:
    names = [f"client-{number:07d}" for number in range(500_000)]
    ids, seconds = np.array(names[::-1]), []
    for _ in range(3):  # the least, as a busy machine takes longer
        begin = time.process_time()
        matched = match_rows(ids, names, "auto", "trace")
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 4  # about 0.4
    assert matched.rows[0] == 499_999
