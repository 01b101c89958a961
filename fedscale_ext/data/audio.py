"""Speech: wav files read within bounds, and the log-mel features that models get.

Features are computed by librosa as for the Speech Commands keyword task: frames of 512 samples every 320
without padding, the power spectrum under a Hann window, 40 bands between 60 and 7,600 Hz on the HTK mel scale
(triangles of height 1), and log(energy + 1e-5). One second at 16 kHz gives 49 frames of 40 bands.
"""

import io
import wave
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.errors import UserError
from fedscale_ext.reading import MEGA, read_plain

RATE = 16_000  # samples per second
CLIP = RATE  # samples that features are made of: shorter clips end in silence, longer ones are cut
MAX_WAV_BYTES = 64 * MEGA
BANDS = 40
_FRAME, _HOP = 512, 320
FRAMES = 1 + (CLIP - _FRAME) // _HOP
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 7600.0
_FLOOR = 1e-5

_NO_LIBROSA = (
    "features of speech are computed with librosa: install it with `pip install 'fedscale_ext[audio]'` "
    "or `pip install librosa`"
)

# Part of the cache key: raise it when the same clip would give other features.
FEATURES_VERSION = 1


def read_wav(path: Path) -> np.ndarray:
    """Samples of a wav file, int16 [n]: 16 kHz, 16 bits; the mean of two channels. UserError names the file."""
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


def write_wav(path: Path, samples: np.ndarray) -> None:
    """Write int16 samples [n] as a wav file of one channel at 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())


def check_librosa() -> None:
    """UserError where librosa is not installed, without the seconds that importing it takes."""
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


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Features of a clip, int16 [n] at 16 kHz: float16 [1, 49, 40] of (time, band)."""
    clip = np.zeros(CLIP, np.float32)
    head = samples[:CLIP]
    clip[: len(head)] = head.astype(np.float32) / 32768.0
    spectrum = _librosa().stft(clip, n_fft=_FRAME, hop_length=_HOP, window="hann", center=False)
    energy = _bands() @ (spectrum.real**2 + spectrum.imag**2)
    return np.log(energy + _FLOOR).T[None].astype(np.float16)
