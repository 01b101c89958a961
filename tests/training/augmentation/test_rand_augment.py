"""RandAugment: each of its operations against Pillow's, and jobs that train with it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

import fedscale_ext
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.training.augmentation.pictures import Augmentation
from fedscale_ext.training.augmentation.rand_augment import CHANGES, OPERATIONS, changed

SHAPE = (3, 16, 16)
BLACK, WHITE = (torch.tensor(values).view(3, 1, 1) for values in ([-2.0, -1.0, -3.0], [2.0, 1.5, 1.0]))


def pictures(count: int = 6) -> Tensor:
    rng = np.random.default_rng(3)
    smooth = rng.integers(0, 200, (count, 3, 4, 4)).repeat(4, axis=2).repeat(4, axis=3)
    return torch.from_numpy(smooth + rng.integers(0, 40, (count, *SHAPE))).float()


def pillow(x: Tensor) -> Image.Image:
    return Image.fromarray(x.byte().permute(1, 2, 0).numpy())


def array(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1).astype(float)


def after(number: int, x: Tensor, negative: int) -> Tensor:
    drawn = torch.tensor([[number, negative, 0, 0]]).repeat(len(x), 1)
    return changed(x, drawn)


@pytest.mark.parametrize("negative", [0, 1])
def test_colours_are_pillows(negative: int) -> None:
    x, factor = pictures(), 1 + (-0.27 if negative else 0.27)
    expected = {
        0: lambda image: image,
        6: lambda image: ImageEnhance.Brightness(image).enhance(factor),
        7: lambda image: ImageEnhance.Color(image).enhance(factor),
        8: lambda image: ImageEnhance.Contrast(image).enhance(factor),
        9: lambda image: ImageEnhance.Sharpness(image).enhance(factor),
        10: lambda image: ImageOps.posterize(image, 7),
        11: lambda image: ImageOps.solarize(image, 179),
        12: ImageOps.autocontrast,
        13: ImageOps.equalize,
    }
    for number, make in expected.items():
        augmented = after(number, x, negative)
        assert (
            bool((augmented == augmented.round()).all())
            and float(augmented.min()) >= 0
            and float(augmented.max()) <= 255
        )
        for picture, view in zip(x, augmented, strict=True):
            # grey values of Pillow have other digits, and it rounds in other places
            assert np.abs(array(make(pillow(picture))) - view.numpy()).max() <= (3 if number in (7, 8, 9) else 1), (
                number
            )


@pytest.mark.parametrize("negative", [0, 1])
def test_places_are_pillows(negative: int) -> None:
    x, sign = pictures(), -1 if negative else 1
    shear, shift = 0.09 * sign, int(150 / 331 * 16 * 0.3) * sign
    matrices = {
        1: (1, shear, -8 * shear, 0, 1, 0),
        2: (1, 0, 0, shear, 1, -8 * shear),
        3: (1, 0, shift, 0, 1, 0),
        4: (1, 0, 0, 0, 1, shift),
    }
    for number, matrix in matrices.items():
        augmented = after(number, x, negative)
        for picture, view in zip(x, augmented, strict=True):
            expected = array(
                pillow(picture).transform((16, 16), Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)
            )
            assert (expected != view.numpy()).mean() < 0.02, number
    for picture, view in zip(x, after(5, x, negative), strict=True):
        assert (array(pillow(picture).rotate(9 * sign)) != view.numpy()).mean() < 0.05


def test_two_of_fourteen_are_drawn_and_a_picture_is_its_own() -> None:
    augmentation = Augmentation(True, BLACK, WHITE)
    views = augmentation.draw(40, 30, np.random.default_rng(1))
    assert views.shape == (40, 30, 3 + 2 * OPERATIONS)
    assert set(views[..., 3::2].ravel()) == set(range(len(CHANGES))) and len(CHANGES) == 14
    assert set(views[..., 4::2].ravel()) == {0, 1}
    x = pictures(30) / 255 * (WHITE - BLACK) + BLACK
    seen = augmentation.apply(x, torch.from_numpy(views[0]))
    alone = torch.cat([augmentation.apply(x[n : n + 1], torch.from_numpy(views[0, n : n + 1])) for n in range(30)])
    assert torch.equal(seen, alone) and not torch.allclose(seen, x)
    still = augmentation.apply(x, torch.zeros(30, 7, dtype=torch.int64))
    assert torch.allclose(still, x, atol=1e-5)


@pytest.mark.parametrize("cohort", [1, 3])
def test_a_job_trains_with_it(tmp_path: Path, job_file: Path, cohort: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (60, 12, 12, 3)).astype(np.uint8)
    np.savez(tmp_path / "colour.npz", x=x, y=rng.integers(0, 4, 60), client=np.arange(60) % 4)
    import_npz(tmp_path / "colour.npz", tmp_path / "colour", "colour")
    keys = {"data_dir": str(tmp_path / "colour"), "data_set": "colour", "model": "cnn_small", "cohort_size": cohort}
    losses = [
        fedscale_ext.run(job_file, job_name=kind, augment=kind, **keys)["loss"]["train"]
        for kind in ("rand_flip_crop", "flip_crop")
    ]
    assert losses[0] != losses[1]
