"""Which tests the settings ask for, in whatever rounds a job once ended."""

from argparse import Namespace
from typing import Any

import pytest

from fedscale_ext.metrics.scheduled_tests import evaluation_is_due, scheduled


@pytest.mark.parametrize(
    ("round", "every_macs", "spent", "is_due"),
    [(1, None, 0.0, True), (2, None, 1e9, False), (5, None, 1e9, True), (2, 4e9, 3.5e9, True), (2, 4e9, 2e9, False)],
)
def test_a_evaluation_is_due_by_rounds_or_by_macs(
    round: int, every_macs: float | None, spent: float, is_due: bool
) -> None:
    record: Any = Namespace(round=round, training_macs=1e9)
    assert evaluation_is_due(5, every_macs, record, spent) is is_due


def records(*rounds: tuple[int, float, bool]) -> list[Any]:
    """Records of rounds by (round, MACs, whether it was tested)."""
    return [
        Namespace(round=round, training_macs=macs, evaluation=object() if tested else None)
        for round, macs, tested in rounds
    ]


def test_a_test_after_an_earlier_last_round_is_not_scheduled() -> None:
    every = records((1, 1, True), (2, 1, False), (3, 1, True), (4, 1, True), (5, 1, False), (6, 1, True), (7, 1, True))
    assert [record.round for record in scheduled(every, 3, None)] == [1, 3, 6]
    assert [record.round for record in scheduled(every, 3, None, last=True)] == [1, 3, 6, 7]


def test_tests_by_macs_follow_what_all_rounds_spent() -> None:
    every = records((1, 2, True), (2, 2, True), (3, 2, True), (4, 2, True), (5, 2, True))
    assert [record.round for record in scheduled(every, 100, 4)] == [1, 2, 4]  # after 4 and 8 MACs
