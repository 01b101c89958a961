import logging

import pytest

from fedscale_ext.transport.refused_messages import Refusals


def test_reasons_in_words() -> None:
    refusals = Refusals()
    assert refusals.in_words() == ""
    for reason in ("too old", "unsigned", "too old"):
        refusals.note(reason)
    assert refusals.in_words() == " (messages were refused: too old; unsigned)"


def test_each_is_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            refusals.note("replayed")
        refusals.note("not signed", "x\ny" * 1000)
        now[0] = 60.0
        refusals.note("replayed")
    assert refusals.counts() == {"not signed": 1, "replayed": 1001}
    assert [record.message.split(";")[-1] for record in caplog.records] == [" 1 so far", " 1 so far", " 1001 so far"]
    assert all(len(record.message) < 1000 and "\n" not in record.message for record in caplog.records)
