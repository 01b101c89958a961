"""The rule of the claims ledger, on FedTrans's claims."""

from pathlib import Path
from typing import Any

import pytest

from evals.fedtrans import ledger
from evals.paper import ledger as judge


def results(values: dict[str, list[float]], column: str = "accuracy %") -> dict[str, Any]:
    rows = [
        {
            "label": label,
            "data": "har",
            "seeds": list(range(len(own))),
            "figures": {column: {"values": own, "mean": sum(own) / len(own)}},
        }
        for label, own in values.items()
    ]
    return {"rows": rows, "scale": "small", "commands": ["python -m x"]}


def judged(claim: str, found: dict[str, Any]) -> str | None:
    return judge.row(claim, ledger.CLAIMS[claim][1], found)


@pytest.mark.parametrize(("one", "other", "outcome"), [
    ([80, 81], [70, 71], "holds"), ([60, 61], [70, 71], "does not hold"),
    ([80, 61], [70, 71], "not decidable"), ([80], [70], "not decidable"),
])  # fmt: skip
def test_the_ledgers_rule(one: list[float], other: list[float], outcome: str) -> None:
    row = judged("F1", results({"FedTrans": one, "HeteroFL": other}))
    assert row is not None
    assert row.split("|")[1:3] == [" F1 ", f" {outcome} "]
    assert row.endswith(f"| {'1 seed' if len(one) == 1 else '2 seeds'}, small | `python -m x` |")
    assert judged("F1", results({"FedTrans": one})) is None


def test_the_ledger_says_where_it_found_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"{tmp_path} holds no results at scale small"):
        judge.main(ledger.CLAIMS, tmp_path, None, [])


def test_a_ratio_is_part_of_an_ordering() -> None:
    same = {"SplitMix": [9.0, 9.0], "FLuID": [9.0, 9.0], "FedTrans": [1.0, 1.0]}
    holds = judged("F4", results({"HeteroFL": [1.7, 1.7], **same}, "TMACs"))
    fails = judged("F4", results({"HeteroFL": [1.5, 1.5], **same}, "TMACs"))
    assert holds and fails and "| holds |" in holds and "| does not hold |" in fails


def test_seeds_of_one_ordering_do_not_decide_another() -> None:
    rows = {"HeteroFL": [9.0, 9.0], "FLuID": [9.0, 9.0], "SplitMix": [0.1], "FedTrans": [1.0, 1.0]}
    assert "| not decidable |" in str(judged("F4", results(rows, "TMACs")))
