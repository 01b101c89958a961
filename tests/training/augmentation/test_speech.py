"""Speech changed at random in training: what is done to features is what is done to clips."""

import numpy as np
import pytest
import torch

from fedscale_ext.data.decoding.audio import CLIP, LOG_MEL_FLOOR, log_mel, mfcc
from fedscale_ext.training.augmentation.speech import LOUDEST, OFTEN, SHIFT, SpeechAugmentation

HOP = 320
FEATURES = {"log-mel": log_mel, "cepstra": mfcc}


def clip(seed: int, level: float = 3000.0) -> np.ndarray:
    """A second of smoothed noise whose loudness comes and goes: int16 [16000]."""
    rng = np.random.default_rng(seed)
    raw = np.convolve(rng.standard_normal(CLIP), np.ones(8) / 8, mode="same")
    swell = 0.2 + np.sin(np.linspace(0, 9, CLIP)) ** 2
    return (level * raw * swell).clip(-32768, 32767).astype(np.int16)


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))[None]


def views(shift: int = 0, loud: int = 0) -> torch.Tensor:
    return torch.tensor([[shift, loud, 0]])


def augmentation(kind: str, noise: np.ndarray | None = None, mean: float = 0.0, std: float = 1.0) -> SpeechAugmentation:
    features = tensor(FEATURES[kind](noise)) if noise is not None else torch.zeros(0, 1, 1, 1)
    return SpeechAugmentation(features, mean, std, kind == "cepstra")


@pytest.mark.parametrize("by", [-SHIFT, -1, 3])
@pytest.mark.parametrize("kind", FEATURES)
def test_moved_features_are_those_of_a_moved_clip(kind: str, by: int) -> None:
    pytest.importorskip("librosa")
    original = clip(1)
    moved = np.zeros_like(original)
    if by > 0:
        moved[by * HOP :] = original[: -by * HOP]
    else:
        moved[: by * HOP] = original[-by * HOP :]
    shifted = augmentation(kind).apply(tensor(FEATURES[kind](original)), views(by))[0, 0]
    expected = tensor(FEATURES[kind](moved))[0, 0]
    if kind == "cepstra":
        shifted, expected = shifted.T, expected.T
    inside = slice(by + 2, -2) if by > 0 else slice(2, by - 3)  # frames that reach into what moved in differ
    assert torch.allclose(shifted[inside], expected[inside], atol=0.1)
    silent = shifted[0] if by > 0 else shifted[-1]
    assert silent[0] == (pytest.approx(np.log(LOG_MEL_FLOOR)) if kind == "log-mel" else shifted[:, 0].min())


@pytest.mark.parametrize(("kind", "tolerance"), [("log-mel", 0.35), ("cepstra", 16.0)])
def test_noise_is_added_to_energies(kind: str, tolerance: float) -> None:
    pytest.importorskip("librosa")
    original, noise = clip(1, 400.0), clip(2, 6000.0)
    augment = augmentation(kind, noise)
    before = tensor(FEATURES[kind](original))
    noisy, same = augment.apply(before, views(loud=100)), augment.apply(before, views())
    expected = tensor(FEATURES[kind]((original + 0.1 * noise).astype(np.int16)))
    assert torch.allclose(same, before, atol=1e-4)
    assert (noisy - expected).abs().mean() < 0.5 * (before - expected).abs().mean()
    if kind == "cepstra":  # the level, and the rest
        noisy, expected = noisy[:, :, :1], expected[:, :, :1]
    assert (noisy - expected).abs().mean() < tolerance


def test_networks_see_values_as_they_are_normalised() -> None:
    x = torch.randn(4, 1, 49, 40)
    draws = torch.tensor([[2, 0, 0], [0, 0, 0], [-5, 0, 0], [1, 0, 0]])
    plain, scaled = augmentation("log-mel"), augmentation("log-mel", mean=-5.0, std=2.0)
    assert torch.allclose(scaled.apply(x, draws), (plain.apply(2 * x - 5, draws) + 5) / 2, atol=1e-5)
    assert torch.equal(plain.apply(x, draws)[1], x[1])


def test_draws_are_within_their_ranges_and_from_the_stream_alone() -> None:
    quiet = SpeechAugmentation(torch.zeros(0, 1, 49, 40), 0.0, 1.0, False)
    noisy = SpeechAugmentation(torch.zeros(7, 1, 49, 40), 0.0, 1.0, False)
    drawn = noisy.draw(50, 20, np.random.default_rng(1))
    assert np.array_equal(drawn, noisy.draw(50, 20, np.random.default_rng(1)))
    assert set(np.unique(drawn[..., 0])) == set(range(-SHIFT, SHIFT + 1))
    assert drawn[..., 1].max() <= LOUDEST and abs((drawn[..., 1] > 0).mean() - OFTEN) < 0.05
    assert set(np.unique(drawn[..., 2])) == set(range(7))
    assert not quiet.draw(5, 5, np.random.default_rng(1))[..., 1:].any()
