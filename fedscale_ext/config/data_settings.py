"""Settings that decide a job's clients and samples."""

from typing import Any

from fedscale_ext.config.job_config import JobConfig, set_aside


def data_settings(config: JobConfig) -> dict[str, Any]:
    """Return what clients' data are opened with; jobs with equal settings have the same data, if files are the same.

    ``held_back`` are the number, classes and alpha of public samples; None where the clients keep all of theirs.
    """
    args, job = config.fedscale, config.job
    held_back = (job.public_samples, job.public_classes, job.public_alpha)
    return {
        "data_dir": args.data_dir,
        "data_set": args.data_set,
        "data_map_file": args.data_map_file,
        "test_split": job.test_split,
        "seed": job.data_seed,
        "input_shape": job.sample_shape,
        "held_back": held_back if set_aside(config.echo()) else None,
    }
