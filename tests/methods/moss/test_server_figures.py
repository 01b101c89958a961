"""What the summary says of Moss's server: each transfer's figures in its first and last round."""

import json
from typing import Any

import numpy as np
import pytest

from methods.harness import play

from .server_of import TYPES, moss

CNN, MLP, LENET = TYPES
WAYS = [(key, way) for key in (CNN, MLP, LENET) for way in ("to its proxy", "from the proxies' mean")]


def test_first_and_last_round_of_each_transfer() -> None:
    aggregator = moss()
    assert aggregator.figures.rows() == []
    internals = [play(aggregator, 1), play(aggregator, 2), play(aggregator, 3)]
    rows = aggregator.figures.rows()
    assert [(row["type"], row["transfer"]) for row in rows] == WAYS
    assert all((row["first_round"], row["last_round"], row["diverged"]) == (1, 3, 0) for row in rows)
    for which, round in (("first", internals[0]), ("last", internals[2])):
        for row, back in zip(rows[::2], rows[1::2], strict=True):
            forward, backward = (round["transfers"][f"{way}.{row['type']}"] for way in ("forward", "backward"))
            assert row[f"fidelity_{which}"] == round["fidelity"][row["type"]] and back[f"fidelity_{which}"] is None
            assert (row[f"ce_{which}"], back[f"ce_{which}"]) == (forward["ce"], backward["ce"])
            assert (row[f"matching_{which}"], back[f"matching_{which}"]) == (forward["matching"], backward["matching"])


def test_a_type_that_was_not_there_in_the_first_round() -> None:
    aggregator = moss()
    clients = [item.client for item in aggregator.assign(1, np.arange(1, 7)) if item.model != MLP]
    play(aggregator, 1, participants=clients)
    play(aggregator, 2)
    rounds = {row["type"]: (row["first_round"], row["last_round"]) for row in aggregator.figures.rows()}
    assert rounds == {CNN: (1, 2), LENET: (1, 2), MLP: (2, 2)}


def test_a_type_that_is_copied_has_no_row() -> None:
    aggregator = moss(same_arch_transfer="copy")
    play(aggregator, 1)
    assert [(row["type"], row["transfer"]) for row in aggregator.figures.rows()] == WAYS[2:]


def test_without_proxies_each_pair_has_its_fidelity() -> None:
    aggregator = moss(proxy=False)
    internals = play(aggregator, 1)
    rows = {(row["type"], row["transfer"]): row for row in aggregator.figures.rows()}
    assert len(rows) == 9
    assert rows[LENET, f"from {MLP}"]["fidelity_first"] == internals["fidelity"][f"{MLP}.{LENET}"]


@pytest.mark.parametrize("keys", [{}, {"proxy": False}], ids=str)
def test_what_diverged_is_counted(keys: dict[str, Any]) -> None:
    aggregator = moss(lr=1e30, **keys)
    play(aggregator, 1)
    play(aggregator, 2)
    rows = aggregator.figures.rows()
    assert rows and all(row["diverged"] == 2 and row["ce_last"] is None and row["first_round"] is None for row in rows)


def test_a_resumed_job_tells_the_same() -> None:
    unbroken, broken, resumed = moss(), moss(), moss()
    play(unbroken, 1)
    play(unbroken, 2)
    play(broken, 1)
    tensors, data = broken.state()
    for key in TYPES:
        resumed.pool.update(key, broken.pool[key].state)
    resumed.load_state({name: each.clone() for name, each in tensors.items()}, json.loads(json.dumps(data)))
    play(resumed, 2)
    assert resumed.figures.rows() == unbroken.figures.rows()
    earlier = moss()  # from a checkpoint of before these were kept
    earlier.load_state(tensors, {name: each for name, each in data.items() if name != "figures"})
    play(earlier, 2)
    assert {row["first_round"] for row in earlier.figures.rows()} == {2}
