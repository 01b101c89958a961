"""How clients are cut into cohorts: equal ones, or whole ones and a rest where steps are recorded."""

import pytest
import torch

from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.cuda_graph import recorded_clients


@pytest.mark.parametrize(
    ("clients", "equal", "recorded"),
    [(1, [1], [1]), (32, [32], [32]), (33, [16, 17], [32, 1]), (69, [23] * 3, [32, 32, 5])],
)
def test_cohorts_are_equal_or_whole(clients: int, equal: list[int], recorded: list[int]) -> None:
    on_cpu, on_gpu = (Workbench(torch.device(name)) for name in ("cpu", "cuda"))
    group = range(clients)
    for bench, sizes in ((on_cpu, equal), (on_gpu, recorded)):
        parts = bench.parts(group, 32)
        assert [len(part) for part in parts] == sizes
        assert [client for part in parts for client in part] == list(group)
    steps = [recorded_clients(len(part), 32) for part in on_gpu.parts(group, 32)]
    assert sum(steps) <= sum(recorded_clients(size, 32) for size in equal)  # as few for nothing as with equal ones
