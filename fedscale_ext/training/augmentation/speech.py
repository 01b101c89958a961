"""Random changes of speech in training, as in FedorAS's public code: shifts of up to 100 ms, and background noise.

Both change features, because a data set's cache does not contain the clips. Both kinds of features have a hop of 20 ms.
A shift by whole frames thus equals a shift of the clip except at its ends, where silence is filled in. Silence is the
floor of log-mel features, and for cepstra the level of the clip's quietest frame.

Energies of clip and noise add up in each band, as they do on average. Cepstra hold a smooth version of their bands, to
which the noise is added. Noise comes from the data set's samples of the class silence, which are seconds of the
archive's background noise; a data set without them is shifted only. Frequency and loudness are those of the published
keyword
tasks: 0.8 of the clips, at up to a tenth of the amplitude.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.audio import BANDS, COEFFICIENTS, FRAMES, LOG_MEL_FLOOR, MFCC_FRAMES, cosines
from fedscale_ext.data.registry import SILENCE, known
from fedscale_ext.data.store import DataSet

SHIFT = 5  # frames of 20 ms, each way
OFTEN, LOUDEST = 0.8, 100  # share of the clips with noise; of its amplitude, in thousandths
_DECIBEL = 10.0 / np.log(10.0)


@dataclass(frozen=True)
class SpeechAugmentation:
    """Random shifts and background noise of speech features.

    Attributes:
        noise: Features of background noise [m, 1, H, W], before normalisation; m may be 0.
        mean: Mean of the features before normalisation.
        std: Their standard deviation.
        mfcc: Whether features are cepstra [40, 51] of (coefficient, time) instead of log-mel [49, 40] of (time, band).

    """

    noise: Tensor
    mean: float
    std: float
    mfcc: bool

    columns = 3

    @classmethod
    def of(cls, data: DataSet, device: torch.device) -> "SpeechAugmentation":
        """Return the augmentation of a data set; raise UserError if it has no speech features."""
        entry = known(data.data_set)
        mfcc = data.input_shape == (1, COEFFICIENTS, MFCC_FRAMES)
        if entry is None or not (entry.values and (mfcc or data.input_shape == (1, FRAMES, BANDS))):
            raise UserError(
                f"augment: speech is for features of speech, and {data.data_set} holds none: set augment: none"
            )
        zero, one = data.normalised(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).half()).flatten().tolist()
        std = 1.0 / (one - zero)
        rows = np.concatenate([data.train_rows(client) for client in range(1, data.num_clients + 1)])
        if SILENCE in entry.label_names:
            rows = rows[np.asarray(data.y)[rows] == entry.label_names.index(SILENCE)]
        else:
            rows = rows[:0]
        noise = torch.from_numpy(np.asarray(data.x[np.sort(rows)])).float().to(device)
        return cls(noise, -zero * std, std, mfcc)

    def draw(self, steps: int, batch: int, rng: np.random.Generator) -> np.ndarray:
        """Draw how each sample is changed.

        Args:
            steps: Number of steps.
            batch: Number of samples of a step.
            rng: The client's random stream.

        Returns:
            int64 [steps, batch, 3]: its shift in frames, the loudness of its noise in thousandths, and the number of
            the noise.

        """
        views = np.zeros((steps, batch, self.columns), dtype=np.int64)
        views[..., 0] = rng.integers(-SHIFT, SHIFT + 1, (steps, batch))
        if len(self.noise):
            often, loud = rng.random((steps, batch)) < OFTEN, rng.integers(0, LOUDEST + 1, (steps, batch))
            views[..., 1] = np.where(often, loud, 0)
            views[..., 2] = rng.integers(0, len(self.noise), (steps, batch))
        return views

    def apply(self, x: Tensor, views: Tensor) -> Tensor:
        """Shift features and add noise.

        Args:
            x: Normalised features [n, 1, H, W].
            views: The changes that :meth:`draw` drew, int64 [n, 3].

        Returns:
            The changed features [n, 1, H, W].

        """
        values = self._moved(x * self.std + self.mean, views[:, 0])
        if len(self.noise):
            values = self._with_noise(values, views[:, 1].to(x.dtype) / 1000, self.noise[views[:, 2]].to(x.dtype))
        return (values - self.mean) / self.std

    def _moved(self, values: Tensor, by: Tensor) -> Tensor:
        frames = values if not self.mfcc else values.transpose(2, 3)  # [n, 1, time, feature]
        length = frames.shape[2]
        frame_index = torch.arange(length, device=by.device) - by[:, None]
        inside = ((frame_index >= 0) & (frame_index < length))[:, None, :, None]
        picked = frame_index.clamp(0, length - 1)[:, None, :, None].expand_as(frames)
        moved = torch.where(inside, frames.gather(2, picked), self._silent(frames))
        return moved.transpose(2, 3) if self.mfcc else moved

    def _silent(self, frames: Tensor) -> Tensor:
        if not self.mfcc:
            return torch.full_like(frames[:, :, :1], float(np.log(LOG_MEL_FLOOR)))
        silent = torch.zeros_like(frames[:, :, :1])
        silent[..., 0] = frames[..., 0].amin(2, keepdim=True)
        return silent

    def _with_noise(self, values: Tensor, amplitude: Tensor, noise: Tensor) -> Tensor:
        power = (amplitude**2)[:, None, None, None]
        loud = power > 0
        if not self.mfcc:
            mixed = torch.log(torch.exp(values) + power * torch.exp(noise))
            return torch.where(loud, mixed, values)
        basis = torch.from_numpy(cosines()).to(values)  # [40, bands]
        clean, other = (
            (basis.T @ features) / _DECIBEL for features in (values, noise)
        )  # logarithms of energies in bands
        louder = torch.logaddexp(clean, other + torch.log(power.clamp(min=1e-12))) - clean
        return torch.where(loud, values + _DECIBEL * (basis @ louder), values)
