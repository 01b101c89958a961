"""What to do about a device that is lost for this process."""

import sys

import torch


def check_device(device: torch.device) -> None:
    """End this process where a GPU refuses all further work, as it does after a failed kernel."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            sys.exit(f"{device} does not work any more: {error}")
