"""In which memory networks stay in an executor, and how each client begins."""

import pytest
import torch
from client_settings import NO_BENCH
from torch import Tensor, nn

from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Resident, channels_last_helps
from fedscale_ext.training.samples import ClientSamples

from .cohorts import CPU, conf


def test_a_cpu_has_channels_last_and_a_gpu_has_not() -> None:
    assert channels_last_helps(torch.device("cpu"))
    assert not channels_last_helps(torch.device("cuda:0"))


class Scaled(nn.Module):
    """Its buffers follow its inputs: one in place, the other by new tensors."""

    def __init__(self, persistent: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("scale", torch.full((), 1 / 3, dtype=dtype), persistent=persistent)
        self.register_buffer("shift", torch.full((), 1 / 3, dtype=dtype), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale.mul_(0.9).add_(x.std())
            self.shift = self.shift + x.mean()
        return self.linear((x / self.scale - self.shift).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("persistent", [True, False])
def test_each_client_begins_alike_whatever_others_left_in_buffers(persistent: bool, dtype: torch.dtype) -> None:
    resident = Resident(Scaled(persistent, dtype), CPU, channels_last=True)
    start = resident.start({name: tensor.clone() for name, tensor in resident.module.state_dict().items()})
    states = []
    for client in (1, 2, 1):
        generator = torch.Generator().manual_seed(client)
        data = ClientSamples(client * torch.randn(20, 6, generator=generator), torch.arange(20) % 4)
        resident.restore(start)
        trained = MultiModelClient(conf(client), NO_BENCH).train(data, resident.module, conf(client))["update_weight"]
        states.append({name: tensor.clone() for name, tensor in trained.items()})
    for name, tensor in states[0].items():
        assert torch.equal(states[2][name], tensor) and not torch.equal(states[1][name], tensor)
        assert tensor.dtype == start.state[name].dtype
