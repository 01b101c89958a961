"""MacCounter against numbers worked out by hand."""

import pytest
import torch
from torch import nn

from fedscale_ext.util.macs import MacCounter, counted_once
from fedscale_ext.util.threads import in_threads


def test_products_and_convolutions_count_forward_and_backward():
    counter = MacCounter()
    weight = torch.ones(3, 4, requires_grad=True)
    x = torch.ones(5, 3)
    with counter.counting():
        (x @ weight).sum().backward()
    assert counter.read() == 2 * 5 * 3 * 4  # x needs no gradient
    assert counter.read() == 0


def test_a_depthwise_convolution_counts_its_groups_once():
    counter, layer = MacCounter(), nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
    with counter.counting():
        layer(torch.ones(2, 6, 8, 8)).sum().backward()
    assert counter.read() == 2 * (2 * 6 * 8 * 8 * 9)


def test_composite_layers_count_in_inference_mode_too():
    counter, layer = MacCounter(), nn.Linear(7, 3)
    with counter.counting(), torch.inference_mode():
        layer(torch.ones(2, 7))
    assert counter.read() == 2 * 7 * 3


def test_what_other_threads_do_for_the_block_counts_and_nothing_else():
    counter = MacCounter()
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    a @ b
    with counter.counting():
        results = in_threads(range(5), lambda factor: factor * (a @ b), 2)
    in_threads(range(5), lambda factor: factor * (a @ b), 2)
    assert counter.read() == 5 * 2 * 3 * 4
    assert [float(result[0, 0]) for result in results] == [0.0, 3.0, 6.0, 9.0, 12.0]


def test_a_counter_that_is_off_counts_nothing():
    counter = MacCounter(on=False)
    with counter.counting():
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert counter.read() is None


def test_a_block_that_repeats_is_looked_at_once_and_added_each_time():
    counter, known = MacCounter(), {}
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    for rows in (2, 2, 1, 2, 1):
        with counter.counting():
            with counted_once(known, rows):
                a[:rows] @ b
            b @ b.T  # after the block, products are looked at again
    assert known == {2: 2 * 3 * 4, 1: 3 * 4}
    assert counter.read() == 3 * 24 + 2 * 12 + 5 * 3 * 4 * 3


def test_a_block_that_ended_early_is_not_known():
    counter, known = MacCounter(), {}
    with counter.counting():
        with pytest.raises(ValueError), counted_once(known, "step"):
            torch.ones(2, 3) @ torch.ones(3, 4)
            raise ValueError
        with counted_once(known, "step"):
            torch.ones(2, 3) @ torch.ones(3, 5)
    assert known == {"step": 2 * 3 * 5}
    assert counter.read() == 2 * 3 * 4 + 2 * 3 * 5


def test_a_block_that_repeats_outside_a_count_is_not_counted():
    known = {}
    with counted_once(known, "step"):
        torch.ones(2, 3) @ torch.ones(3, 4)
    with MacCounter(on=False).counting(), counted_once(known, "step"):
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert known == {}
