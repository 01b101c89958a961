"""Names of jobs that differ only in their seed: a sweep calls them ``NAME-sSEED``."""

from collections.abc import Collection


def with_seed(name: str, seed: int) -> str:
    """Return the name of the job with a seed."""
    return f"{name}-s{seed}"


def without_seeds(jobs: Collection[tuple[str, int]]) -> str | None:
    """Return the one name that jobs have without their seeds.

    None where they have only one seed, or where their names differ in more.

    Args:
        jobs: Name and seed of each job.

    """
    bare = {name.removesuffix(with_seed("", seed)) for name, seed in jobs}
    several = len({seed for _, seed in jobs}) > 1
    suffixed = all(name.endswith(with_seed("", seed)) for name, seed in jobs)
    return (bare.pop() or None) if several and suffixed and len(bare) == 1 else None
