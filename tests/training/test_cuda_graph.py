"""Recorded steps of cohorts, by a stand-in for a recording of a GPU."""

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from client_settings import NO_BENCH
from torch import Tensor

from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.training.augmentation.pictures import Augmentation
from fedscale_ext.training.cohort import CohortStep
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort, Resident
from fedscale_ext.training.samples import ClientSamples

from .cohorts import CPU, FAMILIES, SHAPE, both_ways, conf, samples


class Recorded:
    """A recording without a GPU: warms up as one with a GPU does, then steps plainly."""

    def __init__(self, step: CohortStep, x: Tensor, y: Tensor) -> None:
        self.clients, self.step, self.restart = step.clients, step, step.restart
        for _ in range(3):
            step(x, y)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        assert x.shape[1] == y.shape[1] == self.clients  # a recording is of one shape
        self.step.parameters = self.step._cohort.bind(self.clients, None)  # another recording bound the network
        return self.step(x, y)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are recorded as on a GPU."""
    monkeypatch.setattr("fedscale_ext.training.cuda_graph.RecordedStep", Recorded)


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("changes", [{}, {"prox_mu": 0.3}])
def test_what_recording_a_graph_trains_is_undone(changes: dict[str, object]) -> None:
    assert both_ways(FAMILIES["nasbench201"], [20, 9], records=True, **changes) < 1e-9


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("augments", [False, True])
def test_few_sizes_of_cohorts_are_recorded_and_clients_stay_what_they_are_alone(augments: bool) -> None:
    module = FAMILIES["nasbench201"]()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = stacked(FAMILIES["nasbench201"](), SHAPE)
    assert network is not None
    cohort = Cohort(network, module, SHAPE, 6, CPU, channels_last=True)
    cohort.records = True
    resident = Resident(FAMILIES["nasbench201"](), CPU, channels_last=True)
    for count in (3, 1, 4, 5, 6, 2):
        plain = [samples(client, 20, torch.float32) for client in range(count)]
        flips = Augmentation(False, torch.zeros(1, 1, 1)) if augments else None
        data = [ClientSamples(client_data.x, client_data.y, flips) for client_data in plain]
        confs = [conf(client) for client in range(count)]
        client = MultiModelClient(confs[0], NO_BENCH)
        cohort.restore(start)
        results = client.train_cohort(data, cohort, confs)
        states = cohort.trained([20] * count)
        assert len(results) == count
        for row, (client_data, settings, together) in enumerate(zip(data, confs, results, strict=True)):
            resident.restore(resident.start(start))
            alone = client.train(client_data, resident.module, settings)
            assert isinstance(together, dict) and together["utility"] == pytest.approx(alone["utility"], rel=1e-3)
            for name, tensor in alone["update_weight"].items():
                torch.testing.assert_close(states[name][row], tensor, rtol=1e-3, atol=1e-4)
    assert sorted(recording.clients for recording in cohort.recorded.values()) == [1, 2, 4, 6]


@pytest.mark.usefixtures("recordings")
def test_only_recordings_of_the_present_rate_are_kept() -> None:
    module = FAMILIES["cnn"]()
    network = stacked(FAMILIES["cnn"](), SHAPE)
    assert network is not None
    cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
    cohort.records = True
    counts = []
    for rate, count in ((0.1, 1), (0.1, 2), (0.05, 2), (0.05, 1), (0.05, 2)):
        confs = [conf(client, learning_rate=rate) for client in range(count)]
        cohort.restore(module.state_dict())
        data = [samples(client, 20, torch.float32) for client in range(count)]
        MultiModelClient(confs[0], NO_BENCH).train_cohort(data, cohort, confs)
        counts.append(len(cohort.recorded))
    assert counts == [1, 2, 1, 2, 2]


def test_a_dropped_cohort_with_recorded_steps_frees_its_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(wait_stream=lambda other: None)
    graph = SimpleNamespace(replay=lambda: None)
    for name, stand_in in {
        "Stream": lambda device: stream, "current_stream": lambda: stream, "stream": lambda entered: nullcontext(),
        "CUDAGraph": lambda: graph, "graph": lambda recorded: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr("fedscale_ext.training.cuda_graph._side_streams", {})
    module = FAMILIES["nasbench201"]()
    network = stacked(FAMILIES["nasbench201"](), SHAPE)
    assert network is not None
    cohort = Cohort(network, module, SHAPE, 2, CPU, channels_last=True)
    cohort.records = True
    cohort.restore(module.state_dict())
    MultiModelClient(conf(0), NO_BENCH).train_cohort(
        [samples(c, 20, torch.float32) for c in (0, 1)], cohort, [conf(0), conf(1)]
    )
    assert len(cohort.recorded) == 1
    dropped = weakref.ref(cohort)
    gc.disable()
    try:
        del cohort
        assert dropped() is None
    finally:
        gc.enable()
