"""In which memory order networks stay in an executor."""

import torch

from fedscale_ext.training.resident import channels_last_helps


def test_a_cpu_has_channels_last_and_a_gpu_has_not() -> None:
    assert channels_last_helps(torch.device("cpu"))
    assert not channels_last_helps(torch.device("cuda:0"))
