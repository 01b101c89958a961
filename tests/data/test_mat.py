"""Mat files as MATLAB and scipy write them, and damaged ones: arrays or one sentence."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.mat import read_mat
from tests.mutations import mutated

X = np.random.default_rng(1).integers(0, 256, (4, 5, 3, 7), dtype=np.uint8)
Y = np.arange(7.0)[:, None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.mat"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("type_", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_arrays_are_those_that_scipy_wrote(path: Path, packed: bool, type_: str) -> None:
    held = {"text": "aside", "cell": np.array([1, "a"], object), "X": X.astype(type_), "y": Y, "long_name": Y[:2]}
    scipy.io.savemat(path, held, do_compression=packed)
    y, x, named = read_mat(path, ["y", "X", "long_name"])
    assert x.dtype == np.dtype(type_) and np.array_equal(x, held["X"]) and np.array_equal(y, Y)
    assert np.array_equal(named, Y[:2])


def test_arrays_are_those_that_matlab_wrote(tmp_path: Path) -> None:
    """Files of several MATLABs, of both byte orders, that come with scipy."""
    folder = Path(scipy.io.__file__).parent / "matlab" / "tests" / "data"
    files = [
        path for name in ("testdouble", "testmatrix", "testminus") for path in sorted(folder.glob(f"{name}_[67]*"))
    ]
    if not files:
        pytest.skip("this scipy comes without its test files")
    for file in files:
        name = file.name.split("_")[0]
        assert np.array_equal(read_mat(file, [name])[0], scipy.io.loadmat(file)[name])


def test_whole_numbers_of_a_double_may_be_stored_as_bytes_of_either_order(path: Path) -> None:
    """MATLAB stores doubles in the smallest type that holds them, and short elements within their tags."""
    for order, sign in (("<", b"\x00\x01IM"), (">", b"\x01\x00MI")):
        flags, axes = struct.pack(f"{order}IIII", 6, 8, 6, 0), struct.pack(f"{order}IIii", 5, 8, 3, 1)
        small = [(1 << 16 | 1, b"y\0\0\0"), (3 << 16 | 2, b"\x0a\x01\x02\0")]
        body = flags + axes + b"".join(struct.pack(f"{order}I", tag) + data for tag, data in small)
        path.write_bytes(b" " * 124 + sign + struct.pack(f"{order}II", 14, len(body)) + body)
        assert read_mat(path, ["y"])[0].tolist() == [[10], [1], [2]]


def pieces(packed: bytes) -> bytes:
    """The first element of a file anew, from the bytes in it."""
    return struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:100], "not of MATLAB's format 5"),
        (lambda data: b"", "not of MATLAB's format 5"),
        (lambda data: data[:124] + b"\x00\x02IM" + data[128:], r"format 7\.3: save it with -v7"),
        (lambda data: data[:131], "it is cut off"),
        (lambda data: data[:-20], "it is cut off"),
        (lambda data: data[:128] + pieces(zlib.compress(b"\x0e\0\0\0")), "it is cut off"),
        (lambda data: data[:128] + pieces(zlib.compress(b"\x0e\0\0\0" + b"\xff" * 60)), "an array in it is damaged"),
        (lambda data: data[:136] + bytes([data[136] ^ 64]) + data[137:], "while decompressing"),
        (lambda data: data[:128], "has no array X nor y"),
    ],
)
def test_a_broken_file_is_one_sentence(path: Path, change, said: str) -> None:
    scipy.io.savemat(path, {"X": X, "y": Y}, do_compression=True)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=said) as caught:
        read_mat(path, ["X", "y"])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("value", ["text", {"a": 1}, np.array([1, "a"], object), np.array([1j])])
def test_only_real_numbers_are_read(path: Path, value) -> None:
    scipy.io.savemat(path, {"X": value})
    with pytest.raises(UserError, match="X is not an array of real numbers"):
        read_mat(path, ["X"])


def test_a_claim_of_more_than_follows_sets_no_memory_aside(path: Path) -> None:
    scipy.io.savemat(path, {"X": np.zeros((1000, 1000))}, do_compression=False)
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<II", 1000, 1000))
    data[at : at + 8] = struct.pack("<II", 1 << 30, 1 << 30)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"X claims the shape \[1073741824, 1073741824\]"):
        read_mat(path, ["X"])
    data[at : at + 8] = struct.pack("<II", 1000, 1001)
    path.write_bytes(data)
    with pytest.raises(UserError, match="but 1000000 numbers follow"):
        read_mat(path, ["X"])


def test_damage_ends_in_arrays_or_one_sentence(path: Path) -> None:
    samples = []
    for packed in (False, True):
        scipy.io.savemat(path, {"X": X, "y": Y}, do_compression=packed)
        samples.append(path.read_bytes())
    refused = 0
    for data in mutated(samples, 400):
        path.write_bytes(data)
        try:
            read_mat(path, ["X", "y"])
        except UserError as error:
            refused += 1
            assert str(error).isprintable()
    assert refused > 200


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plain file"):
        read_mat(tmp_path, ["X"])
    with pytest.raises(UserError, match=r"none\.mat cannot be read \(No such file"):
        read_mat(tmp_path / "none.mat", ["X"])
