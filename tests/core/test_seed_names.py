import pytest

from fedscale_ext.core.seed_names import with_seed, without_seeds


@pytest.mark.parametrize(
    ("jobs", "name"),
    [
        ([("a-s1", 1), ("a-s2", 2)], "a"),
        ([(with_seed("a-s1", seed), seed) for seed in (1, 11)], "a-s1"),
        ([("a-s1", 1), ("a-s1", 1)], None),
        ([("a-s1", 1), ("b-s2", 2)], None),
        ([("a-s1", 1), ("a", 2)], None),
        ([("-s1", 1), ("-s2", 2)], None),
        ([("a-s12", 2), ("a-s11", 1)], None),
    ],
)
def test_the_one_name_of_jobs_without_their_seeds(jobs: list[tuple[str, int]], name: str | None):
    assert without_seeds(jobs) == name
