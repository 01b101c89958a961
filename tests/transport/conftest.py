"""A running service of the coordinator, and its configuration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aggregator_service import configuration, serving

from fedscale_ext.config.job_config import JobConfig


@pytest.fixture
def config(job_file: Path) -> JobConfig:
    """The configuration of the service's job."""
    return configuration(job_file)


@pytest.fixture
def service(config: JobConfig) -> Iterator[Any]:
    """The service, as long as a test runs."""
    with serving(config) as running:
        yield running
