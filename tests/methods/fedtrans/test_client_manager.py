"""Section 4.2 of FedTrans: Eqs 2-4, by hand and as properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedscale_ext.methods.fedtrans.client_manager import (
    LossHistory,
    assignment_probabilities,
    compatible,
    sample_models,
    served,
    standardised,
    updated_utilities,
)

quick = settings(deadline=None, derandomize=True, max_examples=60)
SIM = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.75], [0.25, 0.75, 1.0]])


def test_a_model_fits_up_to_and_including_the_capacity_and_the_first_fits_all():
    fits = compatible(np.array([5.0, 10.0, 19.9, 40.0]), [10, 20, 40])
    assert fits.tolist() == [[True, False, False], [True, False, False], [True, False, False], [True, True, True]]


def test_probabilities_are_the_softmax_of_the_utilities_by_hand():
    p = assignment_probabilities(np.log([[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]]), np.array([[1, 1, 1], [1, 1, 0]], bool))
    np.testing.assert_allclose(p, [[1 / 8, 2 / 8, 5 / 8], [1 / 3, 2 / 3, 0]], rtol=1e-12)


@st.composite
def utility_tables(draw):
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 6)))
    allowed = draw(arrays(bool, shape))
    allowed[:, 0] = True
    return draw(arrays(np.float64, shape, elements=st.floats(-1e6, 1e6))), allowed


@given(table=utility_tables(), shift=st.floats(-100, 100))
@quick
def test_probabilities_sum_to_one_ignore_shifts_and_leave_out_incompatible_models(table, shift):
    utilities, allowed = table
    p = assignment_probabilities(utilities, allowed)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (p[~allowed] == 0).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(assignment_probabilities(utilities + shift, allowed), p, atol=1e-8)
    for row, fits, mass in zip(utilities, allowed, p, strict=True):
        assert row[mass.argmax()] == pytest.approx(row[fits].max(), abs=1e-9)


@given(table=utility_tables(), seed=st.integers(0, 99))
@quick
def test_only_compatible_models_are_drawn_whatever_the_utilities(table, seed):
    utilities, allowed = table
    p = assignment_probabilities(utilities, allowed)
    chosen = sample_models(p, np.arange(1, len(p) + 1), seed, 3)
    assert allowed[np.arange(len(p)), chosen].all()


def test_sampling_frequencies_follow_the_probabilities():
    clients = np.arange(1, 4001)
    probabilities = np.array([0.1, 0.0, 0.65, 0.25])
    chosen = sample_models(np.tile(probabilities, (len(clients), 1)), clients, 1, 1)
    seen = np.bincount(chosen, minlength=4) / len(clients)
    np.testing.assert_allclose(seen, probabilities, atol=4 * np.sqrt(0.25 / len(clients)))
    assert seen[1] == 0


def test_a_clients_draw_depends_on_nobody_else():
    p = np.full((3, 4), 0.25)
    together = sample_models(p, np.array([3, 8, 20]), 1, 5)
    alone = [sample_models(p[:1], np.array([client]), 1, 5)[0] for client in (3, 8, 20)]
    assert together.tolist() == alone
    rounds = [tuple(sample_models(p, np.array([3, 8, 20]), 1, round)) for round in range(8)]
    assert len(set(rounds)) > 1


@given(losses=st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=8))
@quick
def test_a_clients_loss_is_compared_with_its_own_so_far(losses):
    history = LossHistory(3)
    for number, loss in enumerate(losses, 1):
        other = history.standardised(np.array([0, 2]), np.array([loss, 7.0 * number]))
        expected = standardised(np.array(losses[:number]))[-1]
        assert other[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert abs(other[0]) <= np.sqrt(number - 1) + 1e-6  # however few there are
    assert history.count.tolist() == [len(losses), 0, len(losses)]


def test_what_is_hard_for_a_client_is_no_longer_held_against_its_models():
    history = LossHistory(2)
    rounds = [history.standardised(np.array([0, 1]), np.array([1.5, -1.5])) for _ in range(5)]
    assert np.allclose(rounds, 0.0)  # the one is always above the others, the other always below
    better = history.standardised(np.array([0, 1]), np.array([0.5, -0.5]))
    assert better[0] < -1 and better[1] > 1


def test_a_history_survives_a_checkpoint():
    one, other = LossHistory(2), LossHistory(2)
    one.standardised(np.array([0, 1]), np.array([1.0, 2.0]))
    one.standardised(np.array([1]), np.array([-1.0]))
    other.load({name: tensor.clone() for name, tensor in one.tensors().items()})
    again = (each.standardised(np.array([0, 1]), np.array([0.3, 0.4])).tolist() for each in (one, other))
    assert next(again) == next(again)


def test_standardised_losses_by_hand_and_where_they_do_not_differ():
    np.testing.assert_allclose(standardised(np.array([1.0, 3.0, 5.0])), [-(1.5**0.5), 0, 1.5**0.5], rtol=1e-12)
    assert standardised(np.array([2.5])).tolist() == [0.0]
    assert standardised(np.full(7, 0.1)).tolist() == [0.0] * 7
    assert standardised(np.array([])).tolist() == []


@given(losses=arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 100)))
@quick
def test_standardised_losses_have_mean_zero_and_deviation_one_or_are_zero(losses):
    z = standardised(losses)
    assert z.mean() == pytest.approx(0, abs=1e-4)
    assert z.std() == pytest.approx(1, abs=1e-6) or not z.any()


def test_utilities_by_hand():
    utilities = np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]])
    allowed = np.array([[True, True, False], [True, True, True]])
    new = updated_utilities(utilities, allowed, np.array([1, 2]), np.array([-2.0, 0.4]), SIM)
    # the first trained M_1 with a loss below the mean: +2 sim; M_2 does not fit it and stays
    # the second trained M_2 with one above: -0.4 sim
    np.testing.assert_allclose(new, [[1 + 1, 2 + 2, 3], [4 - 0.1, 4 - 0.3, 4 - 0.4]], rtol=1e-12)
    assert utilities[0].tolist() == [1.0, 2.0, 3.0]


@given(loss=st.floats(-5, 5), trained=st.integers(0, 2))
@quick
def test_a_loss_below_the_mean_raises_the_trained_model_most(loss, trained):
    new = updated_utilities(np.zeros((1, 3)), np.ones((1, 3), bool), np.array([trained]), np.array([loss]), SIM)[0]
    assert np.sign(new).tolist() == [-np.sign(loss)] * 3
    assert np.abs(new).argmax() == trained or loss == 0


def test_the_best_compatible_model_is_served_and_ties_go_by_size():
    utilities = np.array([[1.0, 3.0, 9.0], [2.0, 2.0, 2.0], [5.0, 5.0, 1.0], [0.0, 0.0, 0.0]])
    allowed = np.array([[True, True, False], [True, True, True], [True, True, True], [True, False, False]])
    macs = [10, 20, 30]
    assert served(utilities, allowed, macs, "largest").tolist() == [1, 2, 1, 0]
    assert served(utilities, allowed, macs, "smallest").tolist() == [1, 0, 0, 0]
    assert served(utilities, allowed, [30, 20, 10], "largest").tolist() == [1, 0, 0, 0]


@given(data=st.data())
@quick
def test_served_is_the_plain_argmax_with_its_ties(data):
    shape = (data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5)))
    utilities = data.draw(arrays(np.float64, shape, elements=st.sampled_from([-1.0, 0.0, 2.0])))
    allowed = data.draw(arrays(bool, shape))
    allowed[:, 0] = True
    macs = data.draw(st.lists(st.sampled_from([10, 20, 30]), min_size=shape[1], max_size=shape[1]))
    for ties, sign in (("largest", -1), ("smallest", 1)):
        plain = [
            min(np.flatnonzero(fits), key=lambda k, row=row, sign=sign: (-row[k], sign * macs[k], k))
            for row, fits in zip(utilities, allowed, strict=True)
        ]
        assert served(utilities, allowed, macs, ties).tolist() == plain
