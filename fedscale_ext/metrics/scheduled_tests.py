"""Which tests of all clients the settings ask for.

A job also tests after its last round. If it is resumed with more rounds, that test is in the middle of its records,
where the uninterrupted job has none. When a job ends, and when its accuracy settled, must not depend on it.
"""

from collections.abc import Iterator, Sequence

from fedscale_ext.core.types import RoundRecord


def evaluation_is_due(eval_interval: int, eval_macs: float | None, record: RoundRecord, spent_macs: float) -> bool:
    """Return whether ``eval_interval`` or ``eval_macs`` asks for a test of all clients after a round.

    Args:
        eval_interval: Rounds between two tests; the first round has one.
        eval_macs: MACs of all clients' training between two tests, if any.
        record: The round's record.
        spent_macs: MACs of all clients' training before the round.

    """
    if record.round == 1 or record.round % eval_interval == 0:
        return True
    return eval_macs is not None and (spent_macs + record.training_macs) // eval_macs > spent_macs // eval_macs


def scheduled(
    records: Sequence[RoundRecord], eval_interval: int, eval_macs: float | None, *, last: bool = False
) -> list[RoundRecord]:
    """Return the rounds whose test the settings ask for.

    Args:
        records: All rounds from the first one on.
        eval_interval: Rounds between two tests.
        eval_macs: MACs of all clients' training between two tests, if any.
        last: Whether a test after the last of ``records`` counts, too.

    """

    def chosen() -> Iterator[RoundRecord]:
        spent = 0.0
        for record in records:
            due = evaluation_is_due(eval_interval, eval_macs, record, spent) or (last and record is records[-1])
            if due and record.evaluation is not None:
                yield record
            spent += record.training_macs

    return list(chosen())
