"""A process beside the aggregator that brings a job's executors from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass

from fedscale_ext.config.job_config import JobConfig, with_values
from fedscale_ext.driver import preparation


@dataclass(frozen=True)
class Crew:
    """A process that brings executors from a cluster; they join the job, whose aggregator runs on this machine.

    Attributes:
        name: Name of the process.
        cluster_address: Where its executors are: what ``driver status`` shows.
        aggregator_address: Returns where the aggregator of a job listens, so that they reach it.
        command: Returns the process's argument list for a job, its port and the file of its token.

    """

    name: str
    cluster_address: str
    aggregator_address: Callable[[JobConfig], str]
    command: Callable[[JobConfig, int, str], list[str]]

    @property
    def options(self) -> tuple[str, str]:
        """The options of ``fedscale driver submit`` that choose this crew."""
        return f"--{self.name}", self.cluster_address

    def without_executors(self, config: JobConfig) -> JobConfig:
        """The same job without executors of its own, its aggregator where those that join reach it."""
        return preparation.without_executors(with_values(config, ps_ip=self.aggregator_address(config)))
