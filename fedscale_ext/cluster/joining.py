"""The arguments with which an executor joins a job, wherever it runs."""

from fedscale_ext.config.job_config import JobConfig


def join_arguments(config: JobConfig, host: str, port: int) -> list[str]:
    """Arguments of ``fedscale executor join`` for the job that listens there, but for the file of its token."""
    job = config.job
    files = {"--tls-ca": job.tls_ca, "--tls-cert": job.tls_executor_cert, "--tls-key": job.tls_executor_key}
    given = [word for option, path in files.items() if path is not None for word in (option, path)]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "--wait", f"{job.register_timeout_s:g}", *given]
