"""Sizes of hypernetworks: their parameters, and the memory that all of them need, checked before they are created."""

from collections.abc import Collection, Sequence

import psutil
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.hypemefed.hypernetwork import parts
from fedscale_ext.methods.hypemefed.pairs import Pair
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from fedscale_ext.util.torch_devices import CPU


def parameters(pair: Pair, params: HyperNetworkParams) -> int:
    """Number of parameters of the pair's network."""
    return sum(part.parameters for part in parts(pair, params))


def peak_bytes(sizes: Sequence[int], threads: int) -> int:
    """Peak memory of the networks in float32.

    It has the values of all; and of those that train at once a gradient, Adam's two moments, and a copy to go back to.

    Args:
        sizes: Number of parameters of each network.
        threads: How many train at once.

    Returns:
        Bytes.

    """
    return 4 * (sum(sizes) + 4 * sum(sorted(sizes)[-threads:]))


def check_memory(pairs: Collection[Pair], params: HyperNetworkParams, threads: int, device: torch.device = CPU) -> None:
    """Raise UserError where the networks need more memory than the machine has, or the GPU that they train on."""
    on_gpu = device.type == "cuda"
    total = torch.cuda.get_device_properties(device).total_memory if on_gpu else psutil.virtual_memory().total
    threads = min(threads, len(pairs))
    needed = peak_bytes([parameters(pair, params) for pair in pairs], threads)
    if needed > total:
        instead = "hypemefed.variant low_rank" if params.variant == "naive" else "a smaller hypemefed.hidden"
        raise UserError(
            f"the hypernetworks want {needed / 2**30:,.1f} GiB while {threads} of them train at once, and "
            f"{'the GPU' if on_gpu else 'this machine'} has {total / 2**30:,.1f} GiB; take {instead} or a smaller model"
        )
