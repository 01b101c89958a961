"""The archive of a job's results that its host writes."""

import io
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedscale_ext.cluster import results


@pytest.mark.parametrize("folder", ["~/out", "$PLACE/out"])
def test_home_and_variables_are_the_hosts_own(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "PLACE"):
        monkeypatch.setenv(variable, str(tmp_path))
    for file in ("out/summary.json", "out/checkpoints/1"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    archive = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["results", folder])
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=archive))
    results.main()
    archive.seek(0)
    with tarfile.open(fileobj=archive) as written:
        assert written.getnames() == ["summary.json"]
