"""Linear CKA (Kornblith et al., ICML 2019) between the first layers of trained networks."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from evals.paper.data import data_set
from fedscale_ext import models
from fedscale_ext.metrics.job_folder.model_files import load_model

MOST = 2000  # samples: their products are held


def cka(x: torch.Tensor, y: torch.Tensor) -> float:
    """|Y^T X|^2 / (|X^T X| |Y^T Y|) of features [samples, any] after centring, by the samples' inner products."""
    a, b = ((centred @ centred.T).double() for centred in (each - each.mean(0) for each in (x, y)))
    return float((a * b).sum() / (a.norm() * b.norm()))


def test_samples(log_dir: Path) -> torch.Tensor:
    """Test samples of all clients of a job [samples, C, H, W], every so-manieth where there are many."""
    data = data_set(log_dir)
    rows = np.sort(np.concatenate([data.test_rows(client) for client in range(1, data.num_clients + 1)]))
    return data.batch(rows[:: -(-len(rows) // MOST)])


def first_features(model: Path, x: torch.Tensor) -> torch.Tensor:
    """What a saved model's first convolution gives behind BatchNorm and ReLU: [samples, any]."""
    spec, state = load_model(model)
    network = models.build(spec).eval()
    network.load_state_dict(state)
    features: list[torch.Tensor] = []
    first = next(module for module in network.modules() if isinstance(module, nn.BatchNorm2d))
    first.register_forward_hook(lambda module, inputs, output: features.append(functional.relu(output).flatten(1)))
    with torch.no_grad():
        for part in x.split(256):
            network(part)
    return torch.cat(features)
