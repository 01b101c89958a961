from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.methods.hypemefed.sizes import parameters, peak_bytes
from tests.methods.hypemefed.reference import shapes


def networks(**options: Any) -> HyperNetworks:
    return HyperNetworks(shapes(), HyperNetworkParams(**options), torch.Generator().manual_seed(0), threads=2)


@pytest.mark.parametrize("options", [{}, {"variant": "naive"}, {"generate": "+bn+fc"}])
def test_sizes_are_told_before_the_networks_are_made(options: dict[str, Any]) -> None:
    hypernetworks = networks(hidden=24, **options)
    for pair in hypernetworks.pairs:
        assert parameters(pair, hypernetworks.params) == hypernetworks.networks[pair.target].parameters


def test_memory_is_values_of_all_and_what_training_holds_of_the_largest() -> None:
    assert peak_bytes([1, 5, 3], threads=1) == 4 * (9 + 4 * 5)
    assert peak_bytes([1, 5, 3], threads=2) == 4 * (9 + 4 * 8)
    assert peak_bytes([1, 5, 3], threads=9) == 4 * (9 + 4 * 9)


@pytest.mark.parametrize(("options", "instead"), [
    ({"variant": "naive"}, "take hypemefed.variant low_rank or a smaller model"),
    ({"hidden": 100_000}, "take a smaller hypemefed.hidden or a smaller model"),
])  # fmt: skip
def test_what_memory_does_not_hold_is_refused_before_it_is_drawn(
    options: dict[str, Any], instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = peak_bytes([parameters(pair, HyperNetworkParams(**options)) for pair in networks().pairs], threads=2)
    for total, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda total=total: SimpleNamespace(total=total))
        monkeypatch.setattr(
            "fedscale_ext.methods.hypemefed.hypernetwork_set._network",
            lambda *_: SimpleNamespace(values=torch.zeros(1)),
        )
        if fits:
            networks(**options)
        else:
            with pytest.raises(UserError, match=f"want .* GiB while 2 of them train at once, .*; {instead}"):
                networks(**options)


def test_no_more_networks_than_there_are_train_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1))
    with pytest.raises(UserError, match="while 4 of them train at once"):
        HyperNetworks(shapes(), HyperNetworkParams(), torch.Generator(), threads=16)


def test_networks_on_a_gpu_are_to_fit_into_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda:0")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=2**50))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1))
    with pytest.raises(UserError, match=r"want .* GiB while 1 of them train at once, and the GPU has"):
        HyperNetworks(shapes(), HyperNetworkParams(), torch.Generator(), gpu)
