"""What methods train on the server runs on its device: nothing of it is left on the CPU, and results return there."""

from argparse import Namespace
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from pretend_device import DEVICE, Misplaced, PretendDevice, serial

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.methods.moss.knowledge_transfer import Options
from fedscale_ext.methods.moss.proxy_models import PairwiseModels, ProxyModels, Transfers
from fedscale_ext.util import torch_devices
from fedscale_ext.util.torch_devices import server_device, threads_on
from methods.harness import equal, play, pool_states
from methods.hypemefed import reference, test_aggregator
from methods.moss import toy
from methods.moss.server_of import moss

ARITHMETIC = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "native_batch_norm",
              "_fused_adam_", "_linalg_svd", "_linalg_eigh", "linalg_qr"}  # fmt: skip
GPU = torch.device("cuda:0")
ON_GPU = "what the method trains on the server runs on the GPU"


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("hypemefed.hypernetwork_set", "moss.proxy_models"):
        monkeypatch.setattr(f"fedscale_ext.methods.{method}.in_threads", serial)


@pytest.mark.parametrize(
    ("gpus", "use_cuda", "cuda_device", "expected"),
    [(0, True, None, "cpu"), (1, False, None, "cpu"), (1, True, None, "cuda:0"), (2, True, "cuda:1", "cuda:1")],
)
def test_the_server_takes_a_gpu_where_there_is_one(
    gpus: int, use_cuda: bool, cuda_device: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert server_device(Namespace(use_cuda=use_cuda, cuda_device=cuda_device)) == torch.device(expected)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="there is no GPU 3"):
        server_device(Namespace(use_cuda=True, cuda_device="cuda:3"))


def test_one_thread_shares_a_gpu_and_each_processor_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_devices.os, "cpu_count", lambda: 7)
    assert (threads_on(torch.device("cpu")), threads_on(GPU)) == (7, 1)


def on_pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every job that asks for a GPU get the pretended device."""
    monkeypatch.setattr("fedscale_ext.server.method_base.method_tools.server_device", lambda args: DEVICE)


@pytest.mark.parametrize("make", [moss, test_aggregator.hypemefed])
def test_without_a_gpu_nothing_is_told(make: Any) -> None:
    assert ON_GPU not in make().notices


def test_moss_hands_the_device_to_its_step(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    expected = moss()
    play(expected, 1)
    on_pretended_gpu(monkeypatch)
    with PretendDevice() as gpu:
        aggregator = moss()
        play(aggregator, 1)
    assert aggregator.public.x.device == DEVICE and aggregator.public.labels.device == DEVICE
    assert ON_GPU in aggregator.notices and "convolution" in gpu.here and not ARITHMETIC & gpu.elsewhere
    for key, state in pool_states(expected).items():
        assert equal(aggregator.pool[key].state, state), key


def test_hypemefed_hands_the_device_to_its_hypernetworks(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    expected = test_aggregator.hypemefed()
    test_aggregator.play(expected, 1)
    on_pretended_gpu(monkeypatch)
    with PretendDevice() as gpu:
        aggregator = test_aggregator.hypemefed()
        test_aggregator.play(aggregator, 1)
    assert aggregator.hypernetworks.device == DEVICE and aggregator.hypernetworks.threads == 1
    assert ON_GPU in aggregator.notices and "_fused_adam_" in gpu.here and not ARITHMETIC & gpu.elsewhere
    assert test_aggregator.equal(test_aggregator.whole(aggregator), test_aggregator.whole(expected))


def moss_step(kind: type[Transfers], names: tuple[str, ...], device: torch.device, **options: Any) -> Any:
    server = kind(toy.types(*names), Options(epochs=1, batch_size=6, lr=0.05, **options), 4, threads=1,
                  statistics="public")  # fmt: skip
    models = {name: toy.start(name) for name in names}
    with PretendDevice() if device == DEVICE else nullcontext() as gpu:
        public = toy.public(6).to(device)
        rounds = [server.step(round, models, dict.fromkeys(names, 10), public) for round in (1, 2)]
    return server, rounds, gpu


@pytest.mark.parametrize(
    ("kind", "names", "options"),
    [
        pytest.param(ProxyModels, ("resnet", "mobilenet", "dropped"), {}, marks=pytest.mark.second_tier),
        (ProxyModels, ("dropped", "cnn"), {"meta_update": "joint", "projection_start": "least_squares"}),
        pytest.param(
            PairwiseModels, ("vit", "mlp"), {"wire": "ce+mse", "ce_target": "teacher"}, marks=pytest.mark.second_tier
        ),
        (ProxyModels, ("cnn", "mlp"), {"wire": "ce", "persistent": False}),
    ],
)
def test_mosss_step_runs_on_its_device_and_gives_what_it_gives_on_the_cpu(
    kind: type[Transfers], names: tuple[str, ...], options: dict[str, Any], one_thread: None
) -> None:
    _, expected, _ = moss_step(kind, names, torch.device("cpu"), **options)
    server, rounds, gpu = moss_step(kind, names, DEVICE, **options)
    assert {"convolution", "mm"} & gpu.here and not ARITHMETIC & gpu.elsewhere
    for there, here in zip(expected, rounds, strict=True):
        assert not here.diverged and here.fidelity == there.fidelity and here.reports == there.reports
        for name in names:
            for key, tensor in here.models[name].items():
                assert tensor.device.type == "cpu" and torch.equal(tensor, there.models[name][key]), (name, key)
    tensors, _ = server.state()
    assert all(tensor.device.type == "cpu" for tensor in tensors.values())


@pytest.mark.parametrize(
    "options",
    [{}, {"loss": "factors", "k": 2}, {"variant": "naive"}, {"generate": "+bn+fc", "optimizer": "kept"},
     {"precision": "bfloat16"}],
)  # fmt: skip
def test_hypernetworks_run_on_their_device_and_give_what_they_give_on_the_cpu(
    options: dict[str, Any], one_thread: None
) -> None:
    states = [reference.state(exits, seed) for seed, exits in enumerate((1, 2, 3, 3))]

    def play(device: torch.device) -> tuple[Any, ...]:
        drawn = torch.Generator().manual_seed(1)
        with PretendDevice() if device == DEVICE else nullcontext() as gpu:
            networks = HyperNetworks(
                reference.shapes(),
                HyperNetworkParams(**{"k": 6, "hidden": 8, "lr": 5e-3, "epochs": 2, **options}),
                drawn,
                device,
            )
            losses = [networks.train(states) for _ in range(2)]
            norms = {name: 3.0 for pair in networks.pairs for name in pair.names(pair.target)}
            tensors, data = networks.state()
            networks.load_state(tensors, data)
            return losses, [*networks.generate(states), *networks.generate(states, norms), tensors], gpu

    expected, (losses, states_made, gpu) = play(torch.device("cpu")), play(DEVICE)
    assert "_fused_adam_" in gpu.here and not ARITHMETIC & gpu.elsewhere and losses == expected[0]
    for here, there in zip(states_made, expected[1], strict=True):
        assert here.keys() == there.keys()
        for name, tensor in here.items():
            assert tensor.device.type == "cpu" and torch.equal(tensor, there[name]), name


def test_the_pretended_device_refuses_what_a_gpu_refuses() -> None:
    with PretendDevice():
        x = torch.ones(3, device=DEVICE)
        with pytest.raises(Misplaced):
            x + torch.ones(3)
        with pytest.raises(Misplaced):
            x.bernoulli_(0.5, generator=torch.Generator())
        with pytest.raises(Misplaced):
            x.index_select(0, torch.tensor([0]))
        assert torch.equal((x * torch.tensor(2.0))[torch.tensor([0, 2])].cpu(), torch.full((2,), 2.0))
