import io

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.images import decode, natural_shape, write_png
from fedscale_ext.data.registry import normalisation


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 16, 20)])
def test_what_is_written_is_read(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    write_png(tmp_path / "a.png", pixels)
    assert np.array_equal(decode(tmp_path / "a.png", shape), pixels)
    assert natural_shape(tmp_path / "a.png") == shape


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind)
    return buffer.getvalue()


def test_grey_becomes_colour_and_back():
    grey = np.full((28, 28), 77, np.uint8)
    assert np.array_equal(decode(encoded(Image.fromarray(grey)), (3, 28, 28)), np.stack([grey] * 3))
    assert np.array_equal(decode(encoded(Image.fromarray(grey).convert("RGB")), (1, 28, 28))[0], grey)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be decoded"),
        (b"no image at all", r"cannot be decoded \(it is none\): replace or remove it"),
        (encoded(Image.new("L", (9000, 9000))), "absurd"),
        (encoded(Image.fromarray(np.zeros((8, 8), np.uint16))), "more than 8 bits"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "cannot be decoded"),
    ],
    ids=["empty", "text", "absurd", "16 bit", "postscript"],
)
def test_what_is_no_proper_image_is_refused(content, said):
    with pytest.raises(UserError, match=f"image x .*{said}"):
        decode(content, (1, 28, 28), "x")


def test_normalisation_is_fedscales():
    assert normalisation("femnist", 1) == ((0.1307,), (0.3081,))
    assert normalisation("mnist", 3) == ((0.1307,) * 3, (0.3081,) * 3)
    assert normalisation("openimage", 3) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert normalisation("something", 1) == ((0.5,), (0.5,))
    assert normalisation("cifar10", 1) == ((0.5,), (0.5,))
