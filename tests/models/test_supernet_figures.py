"""The published figures of FedorAS's spaces: MMACs as ptflops counts, and thousands of parameters."""

import numpy as np
import pytest

from fedscale_ext import models
from fedscale_ext.models.supernet import family as supernet
from tests.models.spaces import space

PRINTED = 0.0055  # of a figure with two digits: half of the last one, and what was lost where it was rounded twice

CNN_L_MMACS = [
    [4.46, 3.08, 5.31, 10.36, 17.86, 21.43, 42.61, 84.97, 0],
    [2.46, 1.55, 2.78, 5.46, 9.91, 11.97, 23.86, 47.65, 0],
    [1.36, 0.80, 1.48, 2.93, 5.62, 6.71, 13.41, 26.86, 0],
    [0.76, 0.43, 0.81, 1.60, 3.42, 3.78, 7.59, 15.36, 0],
]
CNN_L_KPARAMS = [
    [4.2, 2.8, 4.9, 9.7, 49.8, 22.8, 49.5, 115.3, 0],
    [9.4, 5.8, 10.5, 20.7, 111.6, 51.1, 111.2, 259, 0],
    [21, 12.1, 22.6, 44.9, 250, 115, 250, 582, 0],
    [47, 26, 50, 99, 562, 258, 561, 1309, 0],
]
FIRST, LATER = [5.75, 4.31, 2.79, 0.28, 0.09, 0.42], [10.67, 8.00, 5.24, 3.96, 1.32, 6.56]


def dearest(table: supernet.Tables) -> float:
    return float(table.fixed_macs + np.where(table.held, table.macs, 0).max(1).sum()) / 1e6


def mean_path(table: supernet.Tables) -> float:
    return float(table.fixed_macs + (np.where(table.held, table.macs, 0).sum(1) / table.held.sum(1)).sum()) / 1e6


def whole_kparams(table: supernet.Tables) -> float:
    return (table.fixed_parameters + int(table.parameters.sum())) / 1e3


def digits(figure: float) -> float:
    """How far a printed number of thousands of parameters may be off, for the same reasons."""
    return 0.055 if figure != int(figure) else 0.55


def test_every_operator_of_cnn_l() -> None:
    table = supernet.tables(space("cnn_l"), published=True)
    for group, (mmacs, kparams) in enumerate(zip(CNN_L_MMACS, CNN_L_KPARAMS, strict=True)):
        for layer in range(4 * group, 4 * group + 4):
            np.testing.assert_allclose(table.macs[layer] / 1e6, mmacs, rtol=0, atol=PRINTED)
            for value, printed in zip(table.parameters[layer] / 1e3, kparams, strict=True):
                assert value == pytest.approx(printed, rel=0, abs=digits(printed))


def test_every_operator_of_rnn() -> None:
    table = supernet.tables(space("rnn"), published=True)
    expected = [FIRST, [*FIRST, 0], [*LATER, 0], [*LATER, 0, 0]]
    for row, held, mmacs in zip(table.macs, table.held, expected, strict=True):
        assert held.sum() == len(mmacs)
        np.testing.assert_allclose(row[held] / 1e6, mmacs, rtol=0, atol=PRINTED)
        assert np.isinf(row[~held]).all()
    assert space("rnn")["ops"][0] == ("lstm", "gru", "ligru", "qrnn", "linear", "causal_conv")
    assert [len(held) for held in space("rnn")["ops"]] == [6, 7, 7, 8]


def test_the_totals_of_every_space() -> None:
    table = supernet.tables(space("cnn_l"), published=True)
    assert (len(table.ops), {len(held) for held in table.ops}) == (16, {9})
    assert table.fixed_macs / 1e6 == pytest.approx(18.9, abs=0.05)
    assert table.fixed_parameters / 1e6 == pytest.approx(0.62, abs=0.005)
    assert whole_kparams(table) / 1e3 == pytest.approx(20.8, abs=0.05)
    assert dearest(table) == pytest.approx(718.2, abs=0.05)
    assert mean_path(table) == pytest.approx(192, abs=0.5)
    hundred = supernet.tables(models.named_spec("cnn_l", (3, 32, 32), 100), published=True)
    assert hundred.fixed_parameters / 1e6 == pytest.approx(0.65, abs=0.005)

    table = supernet.tables(space("cnn_s"), published=True)
    assert (len(table.ops), {len(held) for held in table.ops}) == (6, {11})
    assert table.ops[0] == (
        "conv1", "dsconv3_half", "dsconv3", "dsconv1_double", "dsconv3_double", "mbconv1_double", "mbconv3_half",
        "conv3", "mbconv3", "mbconv3_double", "identity",
    )  # fmt: skip
    assert table.fixed_macs / 1e6 == pytest.approx(0.55, abs=0.005)
    assert table.fixed_parameters / 1e6 == pytest.approx(0.048, abs=0.0005)
    assert whole_kparams(table) / 1e3 == pytest.approx(3.17, abs=0.005)
    assert dearest(table) == pytest.approx(20.1, abs=0.05)

    assert whole_kparams(supernet.tables(space("rnn"))) / 1e3 == pytest.approx(1.24, abs=0.005)
    # the public code's fixed cost holds the cheapest operator of the first layer too, which its paths then count again
    table = supernet.tables(space("rnn_positions"), published=True)
    assert (table.fixed_macs + table.macs[0].min()) / 1e6 == pytest.approx(1.0, abs=0.05)
    assert dearest(table) + table.macs[0].min() / 1e6 == pytest.approx(33.9, abs=0.05)

    # twice what the public code's budget of bytes calls half of the supernet
    assert whole_kparams(supernet.tables(space("cifar10_extra_range"))) * 1e3 == 2 * 95_620_644
