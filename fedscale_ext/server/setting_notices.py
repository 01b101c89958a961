"""What a job says of settings that do not do what they seem to, where the method or FedScale's rules decide."""

from collections.abc import Iterator

from fedscale_ext.config.job_config import JobConfig


def setting_notices(config: JobConfig, measures_statistics: bool) -> Iterator[str]:
    """Sentences for the start of a job; ``measures_statistics``: BatchNorm's are measured anew before tests."""
    args, job = config.fedscale, config.job
    if args.learning_rate < args.min_learning_rate:
        yield (
            f"clients train with learning rate {args.min_learning_rate:g}: learning_rate {args.learning_rate:g} is "
            "below min_learning_rate; lower that too"
        )
    if "bn_statistics_clients" in config.given and job.bn_statistics == "auto" and not measures_statistics:
        yield f"bn_statistics_clients does nothing: {job.method} is tested with the running statistics of training"
