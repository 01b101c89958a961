"""On which of torch's devices a process computes."""

import os
from argparse import Namespace

import torch

from fedscale_ext.core.errors import UserError

CPU = torch.device("cpu")


def device_type(device: str) -> str:
    """Return "cpu" or "cuda" of a device's name, which may have a number ("cuda:1")."""
    return device.partition(":")[0]


def device_of(args: Namespace) -> torch.device:
    """Where this process trains; UserError for a GPU that is not there."""
    if not args.use_cuda:
        return CPU
    if not torch.cuda.is_available():
        raise UserError("use_cuda is True but torch finds no GPU: set use_cuda: False")
    device, gpus = torch.device(args.cuda_device or "cuda:0"), torch.cuda.device_count()
    if (device.index or 0) >= gpus:
        raise UserError(f"there is no GPU {device.index}, there are {gpus}: correct worker_ips")
    return device


def server_device(args: Namespace) -> torch.device:
    """Where a method's own training on the server runs: as :func:`device_of`, on the CPU if the machine has no GPU.

    Executors may train on GPUs of other machines than the aggregator's.
    """
    return device_of(args) if args.use_cuda and torch.cuda.is_available() else CPU


def threads_on(device: torch.device) -> int:
    """How many threads work on a device at once: one per processor; one on a GPU, which is shared."""
    return os.cpu_count() or 1 if device.type == "cpu" else 1
