"""Speech: wav files read within bounds, and the log-mel features that models get.

Features are computed by librosa as for the Speech Commands keyword task: frames of 512 samples every 320
without padding, the power spectrum under a Hann window, 40 bands between 60 and 7,600 Hz on the HTK mel scale
(triangles of height 1), and log(energy + 1e-5). One second at 16 kHz gives 49 frames of 40 bands.

FedorAS's data sets have cepstral coefficients instead, with torchaudio's defaults: 51 frames of 400 samples every 320,
centred, 128 bands up to 8 kHz, decibels down to 80 below the loudest, and the first 40 of their cosine transform.

Moss's speech is "32 x 32 images using MFCC": here the first 32 coefficients with librosa's own defaults, which make 32
frames of a second (2,048 samples every 512, centred between zeros; 128 bands up to 8 kHz on Slaney's scale, each of
area 1; decibels and cosines as above). The paper names no parameters.
"""

import io
import warnings
import wave
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.reading import MEGA, read_plain

RATE = 16_000  # samples per second
CLIP = RATE  # samples that features are made of: shorter clips end in silence, longer ones are cut
MAX_WAV_BYTES = 64 * MEGA
BANDS = 40
_FRAME, _HOP = 512, 320
FRAMES = 1 + (CLIP - _FRAME) // _HOP
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 7600.0
LOG_MEL_FLOOR = 1e-5
COEFFICIENTS, MFCC_FRAMES = 40, 1 + CLIP // _HOP
_MFCC_FRAME, _MFCC_BANDS = 400, 128
_LIBROSA_FRAME, _LIBROSA_HOP = 2048, 512
SQUARE = 1 + CLIP // _LIBROSA_HOP  # frames, and as many coefficients

_NO_LIBROSA = (
    "features of speech are computed with librosa: install it with `pip install 'fedscale_ext[audio]'` "
    "or `pip install librosa`"
)

# Part of the cache key: raise it when the same clip would give other features.
FEATURES_VERSION = 2


def read_wav(path: Path) -> np.ndarray:
    """Read the samples of a wav file of 16 kHz and 16 bits, int16 [n]; UserError names the file.

    Of two channels, the mean is returned.
    """
    try:
        data = read_plain(path, MAX_WAV_BYTES)
    except FileNotFoundError as error:
        raise UserError(f"the clip {path} does not exist") from error
    except OSError as error:
        raise UserError(f"the clip {path} cannot be read: {error.strerror}") from error
    try:
        # from memory: a header that claims gigabytes gets no more than there is
        with wave.open(io.BytesIO(data)) as file:
            rate, width, channels, frames = (
                file.getframerate(), file.getsampwidth(), file.getnchannels(), file.getnframes()
            )  # fmt: skip
            raw = file.readframes(min(frames, len(data)))
    except Exception as error:  # the parser raises whatever a broken file leads it to
        why = str(error) or "it is cut off"
        raise UserError(f"the clip {path} is no wav file of plain PCM ({why}): replace it") from error
    if (rate, width) != (RATE, 2) or channels not in (1, 2):
        raise UserError(
            f"the clip {path} has {channels} channels of {8 * width} bits at {rate} Hz: "
            f"convert it to 16 bits at {RATE} Hz, one channel"
        )
    if not frames or len(raw) != frames * width * channels:
        raise UserError(f"the clip {path} is {'cut off' if frames else 'empty'}: replace it or remove its row")
    samples = np.frombuffer(raw, "<i2").reshape(-1, channels)
    return samples[:, 0].copy() if channels == 1 else samples.mean(1).astype(np.int16)


def resampled(clips: np.ndarray, rate: int) -> np.ndarray:
    """Resample clips int16 [N, n] from ``rate`` to 16 kHz, int16; no frequencies are added."""
    if rate == RATE:
        return clips
    count = clips.shape[1]
    length = count * RATE // rate
    spectrum = np.fft.rfft(clips, axis=1)
    if length > count and count % 2 == 0:  # the last bin stands for itself and its mirror image, which now has its own
        spectrum[:, -1] /= 2
    signal = np.fft.irfft(spectrum, length, axis=1) * (length / count)
    return np.rint(signal).clip(-32768, 32767).astype(np.int16)


def write_wav(path: Path, samples: np.ndarray) -> None:
    """Write int16 samples [n] as a wav file of one channel at 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())


def check_librosa() -> None:
    """Raise UserError where librosa is not installed, without the seconds of an import."""
    if find_spec("librosa") is None:
        raise UserError(_NO_LIBROSA)


def _librosa() -> Any:
    try:
        import librosa
    except ImportError as error:
        raise UserError(_NO_LIBROSA) from error
    return librosa


@lru_cache(maxsize=1)
def _bands() -> np.ndarray:
    """Weight of each frequency in each mel band: float32 [40, 257]."""
    return _librosa().filters.mel(
        sr=RATE, n_fft=_FRAME, n_mels=BANDS, fmin=_LOWEST_HZ, fmax=_HIGHEST_HZ, htk=True, norm=None
    )


@lru_cache(maxsize=1)
def _mfcc_matrices() -> tuple[np.ndarray, np.ndarray]:
    """Weights of frequencies in bands, float32 [128, 201], and the orthonormal cosine transform [40, 128]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of so many bands lie between two frequencies and stay empty
        bands = _librosa().filters.mel(
            sr=RATE, n_fft=_MFCC_FRAME, n_mels=_MFCC_BANDS, fmin=0.0, fmax=RATE / 2, htk=True, norm=None
        )
    return bands, cosines()


@lru_cache(maxsize=1)
def cosines() -> np.ndarray:
    """Return the orthonormal cosine transform of decibels in bands, [40, 128]."""
    bands = np.arange(_MFCC_BANDS) + 0.5
    matrix = np.cos(np.pi / _MFCC_BANDS * np.arange(COEFFICIENTS)[:, None] * bands) * np.sqrt(2 / _MFCC_BANDS)
    matrix[0] /= np.sqrt(2)
    return matrix


def mfcc(samples: np.ndarray) -> np.ndarray:
    """Compute cepstral coefficients of a clip, int16 [n] at 16 kHz: float16 [1, 40, 51] of (coefficient, time)."""
    bands, cosines = _mfcc_matrices()
    spectrum = _librosa().stft(
        _clip(samples), n_fft=_MFCC_FRAME, hop_length=_HOP, window="hann", center=True, pad_mode="reflect"
    )
    decibels = 10 * np.log10(np.maximum(_energy(bands, spectrum), 1e-10))
    return (cosines @ np.maximum(decibels, decibels.max() - 80))[None].astype(np.float16)


@lru_cache(maxsize=1)
def _librosa_bands() -> np.ndarray:
    """Weights of frequencies in librosa's default bands, float32 [128, 1025]."""
    return _librosa().filters.mel(sr=RATE, n_fft=_LIBROSA_FRAME)


def square_mfcc(samples: np.ndarray) -> np.ndarray:
    """Compute ``librosa.feature.mfcc`` of a clip, int16 [n] at 16 kHz: float16 [1, 32, 32] of (coefficient, time)."""
    librosa = _librosa()
    spectrum = librosa.stft(_clip(samples), n_fft=_LIBROSA_FRAME, hop_length=_LIBROSA_HOP)
    decibels = librosa.power_to_db(_energy(_librosa_bands(), spectrum))
    return librosa.feature.mfcc(S=decibels, n_mfcc=SQUARE)[None].astype(np.float16)


def _energy(bands: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
    """Energy of each band and frame, float64 [bands, frames].

    The order of a product's sums depends on the processor and its threads: in float64, the features' rounding to
    float16 hides it.
    """
    return bands.astype(np.float64) @ (spectrum.real**2 + spectrum.imag**2).astype(np.float64)


def _clip(samples: np.ndarray) -> np.ndarray:
    """One second in -1..1, float32 [16000]."""
    clip = np.zeros(CLIP, np.float32)
    head = samples[:CLIP]
    clip[: len(head)] = head.astype(np.float32) / 32768.0
    return clip


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Compute log-mel features of a clip, int16 [n] at 16 kHz: float16 [1, 49, 40] of (time, band)."""
    spectrum = _librosa().stft(_clip(samples), n_fft=_FRAME, hop_length=_HOP, window="hann", center=False)
    return np.log(_energy(_bands(), spectrum) + LOG_MEL_FLOOR).T[None].astype(np.float16)
