"""The GPUs that nvidia-smi tells of, those that CUDA_VISIBLE_DEVICES leaves, and machines without either."""

from pathlib import Path

import pytest

from fedscale_ext.driver.sweeps import gpus
from fedscale_ext.driver.sweeps.gpus import Gpu, read_gpus

ANSWER = "0, GPU-aa11, 510, 81559\n1, GPU-ab22, 3, 81559\n2, GPU-cc33, 40000, 143771\n"
FIRST, SECOND, THIRD = Gpu("GPU-aa11", 510, 81559), Gpu("GPU-ab22", 3, 81559), Gpu("GPU-cc33", 40000, 143771)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command of that name, which prints what the file beside it has."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n/bin/cat {tmp_path}/answer\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answer = tmp_path / "answer"
    answer.write_text(ANSWER)
    return answer


def test_all_gpus_are_read_with_their_memory(nvidia_smi: Path) -> None:
    assert read_gpus() == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("2,0", [THIRD, FIRST]), (" 1 ", [SECOND]), ("GPU-cc", [THIRD]), ("GPU-a", []), ("", []), ("1,7,0", [SECOND]),
     ("MIG-aa11", []), ("-1", [])],
)  # fmt: skip
def test_only_those_that_cuda_shows_count_in_its_order(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[Gpu]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_gpus() == expected


@pytest.mark.parametrize("answer", ["0, GPU-aa11, [N/A], 81559\n", "Failed to initialize NVML: Driver/library\n", ""])
def test_an_answer_of_another_form_tells_of_no_gpus(nvidia_smi: Path, answer: str) -> None:
    nvidia_smi.write_text(answer)
    assert read_gpus() == []


def test_a_machine_without_the_command_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_gpus() == []


def test_a_command_that_fails_or_hangs_tells_of_none(nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = nvidia_smi.with_name("nvidia-smi")
    command.write_text("#!/bin/sh\nexit 9\n")
    assert read_gpus() == []
    command.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setattr(gpus, "_WAIT_S", 0.1)
    assert read_gpus() == []
