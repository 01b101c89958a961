"""How clients are cut into cohorts: equal ones, or whole ones and a rest where steps are recorded."""

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.cuda_graph import recorded_clients
from fedscale_ext.transport import wire


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


def test_a_cohort_has_no_factors_of_a_layer_that_its_clients_tap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.training.factored.LARGE", 1)
    spec, bench = models.named_spec("cnn_small", (1, 8, 8), 4), Workbench(torch.device("cpu"))
    section = wire.tensors_to_bytes(models.build(spec).state_dict())
    bench.keep({"models": {"global": {"spec": spec.to_json(), "version": 1}}}, {"global": section})
    for tap, names in ((None, {"linear1.weight", "linear2.weight"}), ("linear2", {"linear1.weight"})):
        cohort = bench.cohort("global", 2, 2, factored=True, tap=tap)
        assert cohort is not None and cohort.factored.keys() == names
