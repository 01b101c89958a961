"""A small data folder in FedScale's layout, and files to import."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from driver.conftest import call, state
from PIL import Image

__all__ = ["call", "state"]

Row = tuple[str, str, str, str]
HEADER = "client_id,sample_path,label_name,label_id"


@pytest.fixture(autouse=True)
def own_cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache_home"))


def picture(number: int, size: tuple[int, int] = (28, 28)) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """``make_folder(train rows, test rows)``; rows are (client, label); sample k is ``picture(k)``."""

    def make(train: Sequence[tuple[str, int]], test: Sequence[tuple[str, int]] | None = None) -> Path:
        folder = tmp_path / "data"
        (folder / "client_data_mapping").mkdir(parents=True)
        (folder / "img").mkdir()
        number = 0
        for name, rows in (("train", train), ("test", test)):
            if rows is None:
                continue
            lines = [HEADER]
            for client, label in rows:
                Image.fromarray(picture(number)).save(folder / "img" / f"{number}.png")
                lines.append(f"{client},img/{number}.png,name{label},{label}")
                number += 1
            (folder / "client_data_mapping" / f"{name}.csv").write_text("\n".join(lines) + "\n")
        return folder

    return make
