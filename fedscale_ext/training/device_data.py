"""The data set where training happens: decoded once, on a GPU if it fits there."""

import numpy as np
import torch

from fedscale_ext.data.store import DataSet
from fedscale_ext.training.augment import Augmentation
from fedscale_ext.training.samples import ClientSamples

_SHARE = 0.5  # of a GPU's free memory that pixels may take; several executors may share it


class DeviceData:
    """Samples of a data set on ``device``, seen as ``augment`` says unless who asks for them says otherwise: gathered
    there from the pixels, or gathered on the CPU and sent."""

    def __init__(self, data: DataSet, device: torch.device, augment: str = "none") -> None:
        self._data, self._device, self._augment = data, device, augment
        self._augmentations = {augment: Augmentation.of(augment, data, device)}
        self._pixels = self._labels = None
        if device.type == "cuda" and data.x.nbytes <= _SHARE * torch.cuda.mem_get_info(device)[0]:
            self._pixels = torch.from_numpy(np.array(data.x)).to(device)
            self._labels = torch.from_numpy(np.array(data.y)).to(device)

    def samples(self, rows: np.ndarray, augment: str | None = None) -> ClientSamples:
        """Normalised samples of these rows."""
        seen = self._augment if augment is None else augment
        if seen not in self._augmentations:
            self._augmentations[seen] = Augmentation.of(seen, self._data, self._device)
        augmentation = self._augmentations[seen]
        if self._pixels is None or self._labels is None:
            x, y = self._data.tensors(rows)
            return ClientSamples(x.to(self._device), y.to(self._device), augmentation)
        places = torch.from_numpy(rows).to(self._device)
        x = self._data.normalised(self._pixels[places])
        return ClientSamples(x, self._labels[places], augmentation)
