"""Oort's choice, against the formulas written out client by client."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.streams import stream
from fedscale_ext.population.selection.oort import Oort, OortKeys, draw
from fedscale_ext.population.selection.participants import select, select_from_groups

KEYS = OortKeys.of(make_config({}, {}).fedscale, "falls")


def oort(clients: int = 20, seed: int = 1, tried: int | None = None, **keys: Any) -> Oort:
    """A selector for whom the first ``tried`` clients have trained in rounds 1 to 4."""
    rng = stream("oort", seed)
    selector = Oort(
        replace(KEYS, **keys), np.ones(clients, dtype=bool), rng.integers(1, 99, clients), rng.uniform(1, 9, clients)
    )
    count = clients if tried is None else tried
    for round in range(1, 5):
        ids = np.arange(round, count + 1, 4)
        selector.learn(round, ids, rng.uniform(1, 50, len(ids)), selector.durations_s[ids - 1])
    return selector


def everybody(selector: Oort) -> np.ndarray:
    return np.ones(len(selector.utility), dtype=bool)


@settings(max_examples=40)
@given(st.integers(2, 30), st.integers(0, 99), st.floats(0, 1), st.floats(0, 4), st.integers(5, 50), st.floats(1, 99))
def test_scores_are_clipped_scaled_refreshed_and_lowered_for_the_slow(
    clients: int, seed: int, clip: float, penalty: float, round: int, threshold: float
) -> None:
    selector = oort(clients, seed, clip_bound=clip, round_penalty=penalty, round_threshold=threshold)
    ordered = sorted(selector.utility)
    most = ordered[min(int(clients * clip), clients - 1)]
    low = 0.999 * ordered[0]
    preferred = sorted(selector.durations_s)[min(int(clients * threshold / 100), clients - 1)]
    assert selector.preferred_s() == preferred
    for index, score in enumerate(selector.scores(round, everybody(selector))):
        expected = (min(selector.utility[index], most) - low) / (most - low) + math.sqrt(
            0.1 * math.log(round) / selector.last[index]
        )
        expected *= min(1.0, preferred / selector.durations_s[index]) ** penalty
        assert score == pytest.approx(expected, rel=1e-12)


def test_the_preferred_duration_is_the_asked_percentile() -> None:
    keys = replace(KEYS, round_threshold=50.0)
    assert Oort(keys, np.ones(100, dtype=bool), np.ones(100), np.arange(100.0)).preferred_s() == 50.0


@settings(max_examples=40)
@given(st.integers(3, 40), st.integers(0, 99), st.floats(0.1, 0.95), st.floats(1, 1e9))
def test_what_lies_above_the_clip_counts_no_more(clients: int, seed: int, clip: float, factor: float) -> None:
    selector = oort(clients, seed, clip_bound=clip)
    best = int(np.argmax(selector.utility))
    at_bound = int(clients * clip) >= clients - 1  # the best one is the bound itself
    before = selector.scores(9, everybody(selector))
    selector.utility[best] *= factor
    if not at_bound:
        assert (selector.scores(9, everybody(selector)) == before).all()


@settings(max_examples=60)
@given(
    st.integers(1, 40), st.integers(0, 40), st.integers(1, 45), st.integers(0, 99), st.sampled_from([-1, 0, 2]),
    st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_a_round_has_the_wanted_clients_whoever_has_trained(
    clients: int, tried: int, count: int, seed: int, blacklist: int, groups: int, all_online: bool
) -> None:
    """FedScale's index past the last score, and its short rounds, are absent for every count."""
    selector = oort(clients, seed, min(tried, clients), blacklist_rounds=blacklist)
    online = everybody(selector) if all_online else stream("online", seed).random(clients) < 0.7
    for strata in (None, np.arange(clients) % groups):
        chosen = selector.select(5, online, count, stream("draw", seed), strata)
        assert len(chosen) == min(count, online.sum())
        assert (np.diff(chosen) > 0).all() and online[chosen - 1].all()


def test_all_that_have_trained_can_be_exploited() -> None:
    """exploitLen == len: FedScale's public code reads one score too many and ends in an IndexError."""
    selector = oort(12, tried=5, exploration_factor=0.0, exploration_min=0.0)
    chosen = selector.select(5, everybody(selector), 5, stream("draw"))
    assert chosen.tolist() == [1, 2, 3, 4, 5]


@settings(max_examples=30)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 8))
def test_exploration_decays_to_its_least_and_says_how_many_are_new(
    factor: float, decay: float, least: float, rounds: int
) -> None:
    selector = oort(60, tried=20, exploration_factor=factor, exploration_decay=decay, exploration_min=least)
    expected = factor
    for round in range(5, 5 + rounds):
        chosen = selector.select(round, everybody(selector), 10, stream("draw", round))
        expected = max(expected * decay, least)
        assert selector.exploration == expected
        selector.learn(round, np.zeros(0), np.zeros(0), np.zeros(0))  # a round without any result
        new = int((selector.taken[chosen - 1] == 0).sum())
        assert math.floor(10 * expected) <= new <= math.ceil(10 * expected)


def test_exploration_is_of_the_worthy_and_fast() -> None:
    selector = oort(60, tried=20, exploration_factor=1.0, exploration_min=1.0, sample_window=1.0)
    worth = selector.utility * selector.penalties()
    best = np.argsort(-worth[20:], kind="stable")[:6] + 21
    assert selector.select(5, everybody(selector), 6, stream("draw")).tolist() == sorted(best)


def test_a_small_group_explores_now_and_then() -> None:
    selector = oort(40, tried=20, exploration_factor=0.3, exploration_decay=1.0, exploration_min=0.3)
    strata = np.arange(40) % 10  # one of each
    new = [
        (selector.taken[selector.select(5, everybody(selector), 10, stream(n), strata) - 1] == 0).sum()
        for n in range(200)
    ]
    assert np.mean(new) == pytest.approx(3.0, abs=0.35)


def test_strata_keep_their_quotas() -> None:
    selector = oort(40, tried=20)
    strata = (np.arange(40) >= 30).astype(np.int64)
    for number in range(5):
        chosen = selector.select(5, everybody(selector), 8, stream(number), strata)
        assert np.bincount(strata[chosen - 1]).tolist() == [6, 2]


@pytest.mark.parametrize("cut", [0.05, 0.7, 1.0])
def test_nobody_below_the_cut_off_is_exploited(cut: float) -> None:
    selector = oort(60, exploration_factor=0.0, exploration_min=0.0, cut_off_util=cut)
    scores = selector.scores(5, everybody(selector))
    least = np.sort(scores)[::-1][10] * cut
    seen = [selector.select(5, everybody(selector), 10, stream(number)) for number in range(50)]
    assert min(scores[chosen - 1].min() for chosen in seen) >= least
    assert (len({tuple(chosen) for chosen in seen}) > 12) == (cut < 1)


def test_the_first_round_is_drawn_alike() -> None:
    selector = Oort(KEYS, np.ones(9, dtype=bool), np.arange(9), np.arange(9))
    online, strata = np.arange(9) != 4, np.arange(9) % 2
    assert (selector.select(1, online, 4, stream("draw")) == select(online, 4, stream("draw"))).all()
    chosen = selector.select(1, online, 4, stream("draw"), strata)
    assert (chosen == select_from_groups(online, strata, 4, stream("draw"))).all()
    assert selector.exploration == KEYS.exploration_factor


def paced(means: list[float], **keys: Any) -> list[float]:
    """round_threshold after each round in which exploited clients had such utilities."""
    selector = oort(8, exploration_factor=0.0, exploration_min=0.0, **keys)
    thresholds = []
    for round, mean in enumerate(means, 5):
        chosen = selector.select(round, everybody(selector), 3, stream(round))
        selector.learn(round, chosen, np.full(3, mean), selector.durations_s[chosen - 1])
        thresholds.append(selector.round_threshold)
    return thresholds


def test_the_pacer_relaxes_where_utility_falls() -> None:
    means = [2.0, 2.0, 2.0, 2.0, 1.0, 2.0, 4.0, 4.0, 1.0, 1.0]
    expected = [30, 30, 30, 30, 30, 35, 35, 35, 35, 40]  # 4 to 4, 4 to 3, 3 to 8, 8 to 2
    assert paced(means, pacer_step=2) == expected
    assert max(paced([1.0 / n for n in range(1, 60)], pacer_step=1, pacer_delta=9.0)) == 100


def test_fedscales_pacer_relaxes_where_utility_is_flat_and_tightens_where_it_is_not() -> None:
    means = [2.0, 2.0, 2.0, 2.1, 3.0, 3.0, 50.0, 50.0]
    assert paced(means, pacer_step=2, pacer_rule="flat") == [30, 30, 30, 35, 35, 35, 35, 30]
    steep = [10.0**n for n in range(9)]
    assert min(paced(steep, pacer_step=1, pacer_rule="flat")) == KEYS.pacer_delta


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 5), st.floats(0, 50))
def test_the_threshold_moves_by_whole_deltas_within_bounds(means: list[float], step: int, delta: float) -> None:
    """Each time that 2 x pacer_step rounds are known, the halves are compared once."""
    expected, threshold = [], 30.0
    for number in range(1, len(means) + 1):
        if number % step == 0 and number >= 2 * step:
            before, now = means[number - 2 * step : number - step], means[number - step : number]
            if sum(now) < sum(before):
                threshold = min(100.0, threshold + delta)
        expected.append(threshold)
    assert paced(means, pacer_step=step, pacer_delta=delta) == expected


def test_without_a_threshold_nobody_is_slow() -> None:
    selector = oort(round_threshold=100.0)
    assert selector.preferred_s() == math.inf
    assert (selector.penalties() == 1).all()


def test_those_who_were_late_or_failed_count_as_the_mean_of_the_others() -> None:
    selector = oort(6, tried=0)
    before = selector.utility.copy()
    selector.learn(3, np.array([1, 2, 5]), np.array([4.0, np.nan, 8.0]), np.array([1.0, 7.0, 2.0]))
    assert selector.utility[[0, 1, 4]].tolist() == [4.0, 6.0, 8.0]
    assert selector.durations_s[[0, 1, 4]].tolist() == [1.0, 7.0, 2.0]
    assert selector.taken.tolist() == [1, 1, 0, 0, 1, 0] and selector.last.tolist() == [3, 3, 0, 0, 3, 0]
    assert (selector.utility[[2, 3, 5]] == before[[2, 3, 5]]).all()
    selector.learn(4, np.array([3]), np.array([np.nan]), np.array([1.0]))  # a round that brought nothing
    assert selector.taken[2] == 0


def test_who_took_part_too_often_stays_out_unless_others_are_missing() -> None:
    selector = oort(10, blacklist_rounds=1, blacklist_max_len=0.3)
    selector.taken[:] = [9, 8, 7, 6, 1, 1, 1, 1, 1, 1]  # a share of a count is no index: FedScale's raises TypeError
    for number in range(20):
        assert not set(selector.select(5, everybody(selector), 6, stream(number)).tolist()) & {1, 2, 3}
    online = np.arange(10) < 5
    assert selector.select(5, online, 4, stream(1)).size == 4


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(1, 4))
def test_a_selector_that_was_stored_goes_on_alike(seed: int, rounds: int) -> None:
    first, second = oort(seed=seed, pacer_step=1), oort(seed=seed + 1, tried=3, pacer_step=1)
    second.keys = first.keys

    def play(selector: Oort, begin: int, end: int) -> list[list[int]]:
        selected = []
        for round in range(begin, end):
            chosen = selector.select(round, everybody(selector), 6, stream("draw", seed, round))
            selector.learn(round, chosen, stream(seed, round).uniform(1, 9, 6), selector.durations_s[chosen - 1])
            selected.append(chosen.tolist())
        return selected

    play(first, 5, 5 + rounds)
    second.load_state(*first.state())
    assert play(first, 5 + rounds, 12) == play(second, 5 + rounds, 12)
    assert first.state()[1] == second.state()[1]


def test_a_round_that_begins_anew_selects_the_same() -> None:
    """As after a checkpoint that its method wrote in the midst of it."""
    first, second = (oort(40, tried=20, exploration_decay=0.5, exploration_min=0.0) for _ in range(2))
    chosen = first.select(5, everybody(first), 10, stream("draw"))
    second.load_state(*first.state())
    again = second.select(5, everybody(second), 10, stream("draw"))
    assert chosen.tolist() == again.tolist() and first.exploration == second.exploration == 0.45
    for selector in (first, second):
        selector.learn(5, chosen, np.ones(10), np.ones(10))
    assert first.state()[1] == second.state()[1]


def test_draws_are_in_proportion_and_need_no_positive_weights() -> None:
    clients = np.arange(4)
    rng = stream("weights")
    counts = np.bincount([draw(clients, [1.0, 0.0, 3.0, 6.0], 1, rng)[0] for _ in range(2000)], minlength=4)
    assert counts / 2000 == pytest.approx([0.1, 0.0, 0.3, 0.6], abs=0.03)
    assert sorted(draw(clients, [0.0, 0.0, 0.0, 5.0], 3, rng))[-1] == 3
    assert sorted(draw(clients, np.zeros(4), 4, rng)) == [0, 1, 2, 3]
    assert draw(clients[:0], [], 0, rng).size == 0
