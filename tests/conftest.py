"""What several tests need: the place of the real data, and one torch thread."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data; set FEDSCALE_EXT_SHARED_DATA to name another place."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    place = Path(os.environ.get("FEDSCALE_EXT_SHARED_DATA", default))
    if not place.is_dir():
        pytest.skip(f"real data is not at {place}; set FEDSCALE_EXT_SHARED_DATA")
    return place
