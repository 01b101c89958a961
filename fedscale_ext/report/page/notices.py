"""Notices of several jobs, each sentence once."""

from collections.abc import Mapping, Sequence

_NAMED = 4  # jobs that a sentence names at most


def grouped(notices: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Sentences and which jobs gave them, in words; ``notices`` are the sentences by the job's name."""
    by_sentence: dict[str, list[str]] = {}
    for job, sentences in notices.items():
        for sentence in dict.fromkeys(sentences):
            by_sentence.setdefault(sentence, []).append(job)
    return [(sentence, _names(jobs, len(notices))) for sentence, jobs in by_sentence.items()]


def _names(jobs: Sequence[str], all_jobs: int) -> str:
    if len(jobs) == all_jobs > 1:
        return f"all {all_jobs} jobs"
    more = len(jobs) - _NAMED
    return ", ".join(jobs[:_NAMED]) + (f" and {more} more" if more > 0 else "")
