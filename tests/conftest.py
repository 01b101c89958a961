"""What several tests need: the place of the real data, one torch thread, and examples that no clock decides on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from tiers import SECOND_TIER
from tiny_job import tiny_data, write_job_file

torch.set_num_threads(1)
settings.register_profile("still", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("still")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the second tier."""
    here = Path(__file__).parent
    paths = [here / entry for entry in SECOND_TIER if "::" not in entry]
    tests = {entry for entry in SECOND_TIER if "::" in entry}
    for item in items:
        name = f"{item.path.relative_to(here).as_posix()}::{item.name.partition('[')[0]}"
        if name in tests or any(item.path.is_relative_to(path) for path in paths):
            item.add_marker("second_tier")


@pytest.fixture(scope="session", autouse=True)
def own_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs of tests are not remembered among the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCALE_EXT_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data; set FEDSCALE_EXT_SHARED_DATA to name another place."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"real data is not at {folder}; set FEDSCALE_EXT_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def tiny_femnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven generated clients in FEMNIST's layout; client 6 has 3 training samples, client 7 has one sample."""
    return tiny_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def job_file(tiny_femnist: Path, tmp_path: Path) -> Path:
    """A configuration of a few seconds on the tiny data; tests override its keys."""
    return write_job_file(tiny_femnist, tmp_path)


@pytest.fixture(scope="session")
def session_job_file(tiny_femnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a folder that lasts for the session."""
    return write_job_file(tiny_femnist, tmp_path_factory.mktemp("session"))
