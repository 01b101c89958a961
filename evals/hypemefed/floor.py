"""The least processor time of a hypernetwork step: its matrix products at the speed that one core reaches."""

import time
from collections.abc import Mapping, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks

_SIDES = (1024, 100, 768)  # a product as they are in training: out of reach of the first-level cache, 100 rows


def training_gflop(networks: HyperNetworks, states: Sequence[Mapping[str, torch.Tensor]]) -> float:
    """Of all products in a round's training: each pair's step counted once, times its samples and epochs."""
    total = 0.0
    for pair in networks.pairs:
        network = networks.networks[pair.target]
        names = pair.names(pair.source) + pair.names(pair.target)
        holders = [state for state in states if all(name in state for name in names)]
        if holders:
            sample = networks.sample(pair, holders[0])
            with FlopCounterMode(display=False) as counter:
                network.gradients(sample, network.values, torch.empty_like(network.values))
            total += counter.get_total_flops() / 1e9 * len(holders) * networks.params.epochs
    return total


def core_gflops(precision: torch.dtype, repeats: int = 40) -> float:
    """What one thread reaches in a product, the best of some, by processor time."""
    m, k, n = _SIDES
    a, b = torch.ones(k, n, dtype=precision), torch.ones(m, n, dtype=precision)
    best = float("inf")
    for _ in range(repeats):
        begin = time.thread_time()
        for _ in range(4):
            a @ b.T
        best = min(best, time.thread_time() - begin)
    return 4 * 2e-9 * m * k * n / best
