"""Hooks last as long as their block."""

import pytest
import torch
from torch import nn

from fedscale_ext.models.layers.hooks import hooked


def test_hooks_are_gone_behind_the_block_whatever_ends_it() -> None:
    layers, calls = [nn.Identity(), nn.Identity()], []

    def run() -> int:
        calls.clear()
        for layer in layers:
            layer(torch.ones(1))
        return len(calls)

    with (
        pytest.raises(ValueError, match="end"),
        hooked(layer.register_forward_hook(lambda *_: calls.append(None)) for layer in layers),
    ):
        assert run() == 2
        raise ValueError("end")
    assert run() == 0
