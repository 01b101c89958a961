"""The data set on the training device: decoded once, on a GPU if it fits there."""

import numpy as np
import torch

from fedscale_ext.data.store import DataSet
from fedscale_ext.training.augmentation.pictures import Augmentation
from fedscale_ext.training.samples import ClientSamples

_SHARE = 0.5  # largest share of a GPU's free memory for pixels; several executors may share the GPU


class DeviceData:
    """Samples of a data set on a device, gathered there from the pixels, or gathered on the CPU and sent.

    Args:
        data: The data set.
        device: The training device.
        augment: Kind of augmentation by default.

    Raises:
        UserError: If the data set does not fit the augmentation.

    """

    def __init__(self, data: DataSet, device: torch.device, augment: str = "none") -> None:
        self._data, self._device, self._augment = data, device, augment
        self._augmentations = {augment: Augmentation.of(augment, data, device)}
        self._pixels = self._labels = None
        if device.type == "cuda" and data.x.nbytes <= _SHARE * torch.cuda.mem_get_info(device)[0]:
            self._pixels = torch.from_numpy(np.array(data.x)).to(device)
            self._labels = torch.from_numpy(np.array(data.y)).to(device)

    def samples(self, rows: np.ndarray, augment: str | None = None) -> ClientSamples:
        """Return normalised samples.

        Args:
            rows: Row numbers in the data set.
            augment: Kind of augmentation, if not the default.

        """
        kind = self._augment if augment is None else augment
        if kind not in self._augmentations:
            self._augmentations[kind] = Augmentation.of(kind, self._data, self._device)
        augmentation = self._augmentations[kind]
        if self._pixels is None or self._labels is None:
            x, y = self._data.tensors(rows)
            return ClientSamples(x.to(self._device), y.to(self._device), augmentation)
        indices = torch.from_numpy(rows).to(self._device)
        x = self._data.normalised(self._pixels[indices])
        return ClientSamples(x, self._labels[indices], augmentation)
