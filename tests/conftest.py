"""What several tests need: the place of the real data, one torch thread, and examples that no clock decides on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from tiny_job import tiny_data, write_job_file

# What takes long and is seldom touched: `python -m pytest` leaves it out, .ci/run does it after that. The first tier
# keeps one test of each kind: that executors play no part (server/test_jobs.py), resuming (server/test_resume.py).
SECOND_TIER = (
    "cli/test_every_command.py",
    "cluster",
    "driver/test_changed_data.py",
    "driver/test_job_checks.py::test_the_real_command_checks_a_sweep_before_its_first_job",
    "driver/test_run.py",
    "evals",
    "faults",
    "methods/distillation/test_jobs.py",
    "methods/fedoras/test_driver.py",
    "methods/fedoras/test_whole_jobs.py",
    "methods/fedtrans/test_switches_alone.py",
    "methods/moss/test_job.py",
    "methods/pruning/test_lotteryfl.py::test_executors_play_no_part",
    "methods/pruning/test_pruned_types.py::test_executors_play_no_part",
    "methods/search/test_fednas.py::test_jobs_search_and_train_whoever_does_it_and_resume_between",
    "methods/submodel/test_fedrolex.py::test_executors_play_no_part_in_the_result",
    "methods/submodel/test_scalefl.py::test_a_job_resumes_to_the_same_result_and_trains_in_cohorts",
    "methods/submodel/test_splitmix.py::test_a_resumed_job_equals_an_unbroken_one",
    "models/test_named_models.py",
    "models/test_supernet.py",
    "population/test_matching.py::test_half_a_million_names_are_matched_quickly",
    "server/test_guided_selection.py::test_the_real_command_chooses_as_one_process_does",
    "server/test_privacy.py::test_a_resumed_job_has_the_same_noise_norm_and_account",
    "server/test_privacy.py::test_counted_participations_survive_resuming",
    "server/test_privacy.py::test_executors_play_no_part_in_a_private_result",
    "server/test_scaffold.py::test_executors_play_no_part",
    "test_benchmark_configs.py",
    "test_compat.py",
    "test_lint.py",
    "test_notebook.py",
    "test_pages.py",
)

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
    place = Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
    if not place.is_dir():
        pytest.skip(f"real data is not at {place}; set FEDSCALE_EXT_SHARED_DATA")
    return place


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
