"""Jobs to compare: two seeds of a method, another method, and one that has not ended."""

from pathlib import Path

import pytest
from written_job import write_job

from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.page.build import build
from fedscale_ext.report.plots import comparison_plots, job_plots


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("jobs")
    return [
        write_job(root / "ft-s0", seed=0, shift=0.02),
        write_job(root / "ft-s1", seed=1),
        write_job(root / "hfl", method="heterofl", shift=-0.1),
        write_job(root / "early", method="fedavg", finished=False, clients=False),
    ]


@pytest.fixture
def arms(folders: list[Path]) -> list[Arm]:
    return arms_of([load_job(folder) for folder in folders])


@pytest.fixture(scope="session")
def report(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of their report."""
    return build(folders, tmp_path_factory.mktemp("out"))[0]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots, for what is about words."""
    monkeypatch.setattr(comparison_plots, "plots", lambda arms: {})
    monkeypatch.setattr(job_plots, "plots", lambda job: {})
