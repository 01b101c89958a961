"""Arrays of npz files are looked at before memory is set aside for them."""

import io
import zipfile

import numpy as np
import pytest

from fedscale_ext.util.npz import Npz


def test_text_without_characters_takes_no_memory() -> None:
    """NumPy turns such an array into one of a character per value: 400 MB here, of a file of 200 bytes."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U0", "fortran_order": False, "shape": (100_000_000,)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with (
        Npz(file, most=1000) as arrays,
        pytest.raises(ValueError, match=r"<U0\[100000000\], whose values have no bytes"),
    ):
        arrays["x"]
