"""Wav files and features of speech."""

import struct
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding import audio
from fedscale_ext.data.decoding.audio import CLIP, log_mel, mfcc, read_wav, resampled, square_mfcc, write_wav

pytest.importorskip("librosa", reason="features are computed with librosa")


def tone(hertz: float, samples: int = CLIP) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / 16000)).astype(np.int16)


def test_a_clip_is_written_and_read_as_it_is(tmp_path: Path) -> None:
    clip = np.random.default_rng(1).integers(-32768, 32768, 1234).astype(np.int16)
    write_wav(tmp_path / "a.wav", clip)
    assert np.array_equal(read_wav(tmp_path / "a.wav"), clip)


def test_features_are_those_of_the_formula() -> None:
    """Against the transform written out: frames of 512 every 320, HTK bands of height 1 from 60 to 7,600 Hz."""
    clip = np.random.default_rng(2).integers(-3000, 3000, CLIP).astype(np.int16)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    frames = np.stack([clip[start : start + 512] / 32768 * hann for start in range(0, CLIP - 511, 320)])
    power = np.abs(np.fft.rfft(frames)) ** 2
    mel = np.linspace(*(2595 * np.log10(1 + f / 700) for f in (60, 7600)), 42)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.arange(257) * 16000 / 512
    rise = (hertz - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - hertz) / np.diff(edges)[1:, None]
    expected = np.log(power @ np.maximum(0, np.minimum(rise, fall)).T + 1e-5)
    features = log_mel(clip)
    assert features.shape == (1, 49, 40) and features.dtype == np.float16
    assert np.abs(features[0] - expected).max() < 0.01


def test_short_clips_end_in_silence_and_long_ones_are_cut() -> None:
    assert np.allclose(log_mel(tone(440, 4000))[0, -1], np.log(1e-5), atol=0.01)
    assert np.array_equal(log_mel(tone(440, 2 * CLIP)), log_mel(tone(440)))


def test_features_of_real_clips_agree_with_published_ones(shared_data: Path) -> None:
    raw = np.load(shared_data / "speech_commands_raw_12speakers.npz", allow_pickle=False)
    mel = np.load(shared_data / "speech_commands_logmel.npz", allow_pickle=False)
    row = {name: number for number, name in enumerate(mel["files"])}
    expected = mel["logmel"][[row[name] for name in raw["files"]]][::6]
    features = np.concatenate([log_mel(clip) for clip in raw["audio"][::6]])
    apart = np.abs(features.astype(np.float32) - expected)
    assert apart.mean() < 0.005 and apart.max() < 0.2  # of -11.5 to 10; both are rounded to 11 bits


def _header(**changes: int) -> bytes:
    values = {"format": 1, "channels": 1, "rate": 16000, "bits": 16, "claims": 200} | changes
    width = values["channels"] * values["bits"] // 8
    fields = values["format"], values["channels"], values["rate"], values["rate"] * width, width, values["bits"]
    data = b"data" + struct.pack("<I", values["claims"]) + bytes(200)
    return b"RIFF" + struct.pack("<I", 236) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, *fields) + data


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no wav file"),
        (b"RIFF\xff\xff\xff\xffWAVE", "no wav file"),
        (b"\x89PNG not a sound", "no wav file"),
        (_header(format=3), "no wav file"),
        (_header(rate=8000), "at 8000 Hz"),
        (_header(rate=0), "at 0 Hz"),
        (_header(bits=8), "8 bits"),
        (_header(channels=7), "7 channels"),
        (_header(channels=0), "no wav file"),
        (_header(claims=2**32 - 2), "cut off"),
        (_header(claims=202), "cut off"),
        (_header(claims=0), "empty"),
        (_header()[:30], r"no wav file of plain PCM \(it is cut off\)"),
    ],
)
def test_hostile_clips_are_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        read_wav(tmp_path / "a.wav")
    assert "a.wav" in str(caught.value)


def test_two_channels_are_averaged(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(_header(channels=2)[:44] + struct.pack("<100h", *([100, 300] * 50)))
    assert read_wav(tmp_path / "a.wav").tolist() == [200] * 50


def test_cepstra_are_those_of_the_formula() -> None:
    """Against the transform written out: centred frames of 400 every 320, 128 bands to 8 kHz, decibels, a DCT-II."""
    clip = np.random.default_rng(2).integers(-3000, 3000, CLIP - 100).astype(np.int16)
    padded = np.pad(np.pad(clip / 32768, (0, 100)), 200, mode="reflect")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(np.stack([padded[at : at + 400] * hann for at in range(0, CLIP + 1, 320)]))) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130) / 2595) - 1)
    hertz = np.arange(201) * 40.0
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bands = np.clip(np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)), 0, None)
    decibels = 10 * np.log10(np.maximum(power @ bands.T, 1e-10))
    decibels = np.maximum(decibels, decibels.max() - 80)
    n = np.arange(128)
    expected = np.stack([(decibels * np.cos(np.pi * k * (n + 0.5) / 128)).sum(1) * np.sqrt((1 + (k > 0)) / 128)
                         for k in range(40)])  # fmt: skip
    cepstra = mfcc(clip)
    assert cepstra.shape == (1, 40, 51) and cepstra.dtype == np.float16
    assert np.abs(cepstra[0].astype(np.float64) - expected).max() < 0.3  # rounded to float16 near 400


def test_moss_has_librosas_own_cepstra() -> None:
    import librosa

    clip = np.random.default_rng(3).integers(-3000, 3000, CLIP - 900).astype(np.int16)
    second = np.pad(clip / np.float32(32768), (0, 900))
    cepstra = square_mfcc(clip)
    assert cepstra.shape == (1, 32, 32) and cepstra.dtype == np.float16
    expected = librosa.feature.mfcc(y=second, sr=16000, n_mfcc=32)
    assert np.abs(cepstra[0].astype(np.float64) - expected).max() < 0.3  # rounded to float16 near 400
    # centred frames of 2,048 every 512: a quiet clip that begins at 8,192 is heard from the frame at 7,168 on
    late = np.zeros(CLIP, np.int16)
    late[8192:] = tone(440)[8192:]
    heard = square_mfcc(late)[0, 0].astype(np.float64)
    assert np.ptp(heard[:15]) == 0 and (heard[15:31] > heard[0]).all()


@pytest.mark.parametrize("features", [log_mel, mfcc, square_mfcc])
def test_features_do_not_depend_on_the_order_of_sums(features, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other processors and numbers of threads have it; sums in float32 differ then."""
    rng, energy = np.random.default_rng(4), audio._energy
    clips = [(tone(200 + 50 * row) + rng.normal(0, 300, CLIP)).astype(np.int16) for row in range(10)]
    usual = [features(clip) for clip in clips]
    order = rng.permutation(2048)

    def in_another_order(bands: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
        columns = order[order < bands.shape[1]]
        return energy(bands[:, columns], spectrum[columns])

    monkeypatch.setattr(audio, "_energy", in_another_order)
    assert all(np.array_equal(features(clip), of) for clip, of in zip(clips, usual, strict=True))


@pytest.mark.parametrize("count", [800, 801])
def test_a_resampled_clip_goes_through_its_samples(count: int) -> None:
    clips = np.random.default_rng(5).integers(-8000, 8000, (2, count)).astype(np.int16)
    clips[1] = np.where(np.arange(count) % 2 == 0, 1000, -1000)  # the highest frequency
    assert np.abs(resampled(clips, 8000)[:, ::2].astype(int) - clips).max() <= 1
