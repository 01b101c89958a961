import subprocess
import sys
from pathlib import Path

import pytest

from evals.speed.small_resnet import SmallResNet18

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("model", ["nasbench201_base", "small_resnet18"])
def test_the_device_script_measures_every_row_on_a_cpu(model: str, tmp_path: Path) -> None:
    out = tmp_path / "cohorts.md"
    command = [sys.executable, "-m", "evals.speed.cohorts", "--device", "cpu", "--clients", "3", "--steps", "1",
               "--sizes", "2", "--repetitions", "1", "--models", model, "--out", str(out)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:3] for line in out.read_text().splitlines() if line.startswith("| ")][1:]
    assert [(name.strip(), row.strip()) for name, row in rows] == [(model, row) for row in ("loop", "resident", "2")]


def test_the_small_resnet_is_as_small_as_it_says() -> None:
    count = sum(parameter.numel() for parameter in SmallResNet18(1, 62).parameters())
    assert 90_000 < count < 110_000
