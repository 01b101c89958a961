"""Oort: selection of participants by utility and speed (Lai et al., OSDI 2021, section 4, Algorithm 1).

Keys and defaults are FedScale's. Where the paper and FedScale's copy of Oort differ, this is the paper's:

* A client's utility is of the losses of all its steps' samples (``training/outcome.py``); FedScale's of its last batch.
* ``cut_off_util`` alone decides which clients may be drawn; FedScale always admits ten times as many clients.
* Utilities are compared among clients that have trained. FedScale mixes in the sample counts of the others, and its
  scale still includes clipped values.
* The pacer relaxes when the utility of exploited clients falls; FedScale's relaxes when it is flat (``flat``).

Three faults of FedScale are not reproduced: its index past the last score, if all clients that have trained are
exploited; its list cut at a fraction (``blacklist_max_len``); and its rounds with too few clients once all are
explored.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedscale_ext.population.selection.participants import quotas, select, select_from_groups

_FLAT, _SHARP = 0.1, 5.0  # FedScale's: a change of utility up to the first share is flat, from the second on sharp


@dataclass(frozen=True)
class OortKeys:
    """FedScale's keys of the same names (checked by the configuration), and ``pacer_rule``."""

    exploration_factor: float
    exploration_decay: float
    exploration_min: float
    sample_window: float
    round_threshold: float
    round_penalty: float
    clip_bound: float
    cut_off_util: float
    pacer_delta: float
    pacer_step: int
    blacklist_rounds: int
    blacklist_max_len: float
    pacer_rule: str = "falls"

    @classmethod
    def of(cls, args: Namespace, pacer_rule: str) -> "OortKeys":
        """Read the keys from FedScale's arguments."""
        values = {field.name: getattr(args, field.name) for field in fields(cls) if field.name != "pacer_rule"}
        return cls(**values, pacer_rule=pacer_rule)


class Oort:
    """Statistics of each client, in columns by id - 1, and the selection by them.

    Args:
        keys: The hyperparameters.
        eligible: Which clients may ever train, bool [clients].
        samples: Samples that a client's round uses, float64 [clients]; they rank clients that have not trained.
        durations_s: Expected duration of a client's round in seconds, float64 [clients]; later, that of its last round.

    """

    def __init__(self, keys: OortKeys, eligible: np.ndarray, samples: np.ndarray, durations_s: np.ndarray) -> None:
        self.keys, self._eligible = keys, eligible
        self.utility = samples.astype(np.float64)
        self.durations_s = durations_s.astype(np.float64)
        self.last = np.zeros(len(eligible), dtype=np.int64)  # last round in which it trained; 0: none
        self.taken = np.zeros(len(eligible), dtype=np.int64)  # number of rounds in which it trained
        self.exploration = keys.exploration_factor  # of the round whose participants were selected last
        self._exploration_before = keys.exploration_factor  # of the last round that is over
        self.round_threshold = keys.round_threshold
        self._history: list[float] = []  # mean utility of exploited clients in recent rounds, for the pacer
        self._exploited = np.zeros(0, dtype=np.int64)

    # ---- selection ----

    def select(
        self, round: int, online: np.ndarray, count: int, rng: np.random.Generator, group_of: np.ndarray | None = None
    ) -> np.ndarray:
        """Select a round's participants.

        Until a client has trained, they are drawn by :func:`select` (FedScale's first round). A round that begins
        anew selects the same: only :meth:`learn` changes what later rounds rest on.

        Args:
            round: Number of the round.
            online: Which clients are online, bool [clients].
            count: Number of clients to select.
            rng: The random stream.
            group_of: The group of each client, int64 [clients]; each group gets its quota, by the scores of all.

        Returns:
            Sorted ids (1..N), int64 [count]; all online clients if there are no more.

        """
        self._exploited = np.zeros(0, dtype=np.int64)
        if not self.taken.any() or int(online.sum()) <= count:
            return select(online, count, rng) if group_of is None else select_from_groups(online, group_of, count, rng)
        self.exploration = max(self._exploration_before * self.keys.exploration_decay, self.keys.exploration_min)
        eligible = self._allowed(online, count)
        scores = self.scores(round, eligible)
        groups = [(np.flatnonzero(eligible), count)] if group_of is None else quotas(eligible, group_of, count, rng)
        chosen = [self._choose(group, quota, scores, rng) for group, quota in groups]
        self._exploited = np.concatenate([exploited for exploited, _ in chosen])
        return np.sort(np.concatenate([clients for pair in chosen for clients in pair])).astype(np.int64) + 1

    def scores(self, round: int, eligible: np.ndarray) -> np.ndarray:
        """Return the scores of clients that have trained.

        A utility is clipped at quantile ``clip_bound`` and scaled to 0..1. It is raised by sqrt(0.1 ln(round) / last
        round), and lowered for clients slower than preferred.

        Args:
            round: Number of the round.
            eligible: Which clients count, bool [clients].

        Returns:
            float64 [clients]; 0 for other clients.

        """
        scores = np.zeros(len(eligible))
        tried = np.flatnonzero(eligible & (self.taken > 0))
        if len(tried):
            utility = self.utility[tried]
            clip_index = min(int(len(tried) * self.keys.clip_bound), len(tried) - 1)
            utility = np.minimum(utility, np.partition(utility, clip_index)[clip_index])
            low = 0.999 * utility.min()
            spread = utility.max() - low
            stale = np.sqrt(0.1 * np.log(round) / self.last[tried])
            scores[tried] = ((utility - low) / spread if spread > 0 else 0.0) + stale
        return scores * self.penalties()

    def preferred_s(self) -> float:
        """Return T, the duration below which ``round_threshold`` percent of eligible clients are; inf from 100 on."""
        if self.round_threshold >= 100:
            return np.inf
        durations = self.durations_s[self._eligible]
        index = min(int(len(durations) * self.round_threshold / 100), len(durations) - 1)
        return float(np.partition(durations, index)[index])

    def penalties(self) -> np.ndarray:
        """Return (T / t_i)^round_penalty of clients whose duration t_i is above T, else 1; float64 [clients]."""
        preferred = self.preferred_s()
        slow = self.durations_s > preferred
        ratio = np.divide(preferred, self.durations_s, out=np.ones(len(slow)), where=slow)
        return ratio**self.keys.round_penalty

    def _allowed(self, online: np.ndarray, count: int) -> np.ndarray:
        """Return ``online`` without the clients that took part too often, if at least ``count`` others are left."""
        keys = self.keys
        if keys.blacklist_rounds < 0:
            return online
        often = np.flatnonzero(self.taken > keys.blacklist_rounds)
        often = often[np.argsort(-self.taken[often], kind="stable")]
        left = online.copy()
        left[often[: int(keys.blacklist_max_len * self._eligible.sum())]] = False
        return left if int(left.sum()) >= count else online

    def _choose(
        self, there: np.ndarray, count: int, scores: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose ``count`` of the clients ``there``; return the exploited and the explored ones.

        The number of explored clients is rounded at random, so that small groups explore too.
        """
        new, tried = there[self.taken[there] == 0], there[self.taken[there] > 0]
        explored = min(int(count * self.exploration + rng.random()), len(new))
        exploited = min(count - explored, len(tried))
        explored = count - exploited
        order = np.argsort(-scores[tried], kind="stable")
        best = tried[order]
        if exploited:
            least = scores[best[min(exploited, len(best) - 1)]] * self.keys.cut_off_util
            best = best[scores[best] >= least]
        worth = self.utility[new] * self.penalties()[new]
        window = np.argsort(-worth, kind="stable")[: int(self.keys.sample_window * explored)]
        return draw(best, scores[best], exploited, rng), draw(new[window], worth[window], explored, rng)

    # ---- results of a round ----

    def learn(self, round: int, clients: np.ndarray, utility: np.ndarray, durations_s: np.ndarray) -> None:
        """Update the statistics with the results of a round.

        Clients without a result count with the mean utility of the others (FedScale's rule). Of a round without any
        result, only its exploration counts.

        Args:
            round: Number of the round.
            clients: Ids of its participants, int64 [n].
            utility: Utility of each, float64 [n]; NaN for clients that were late or failed.
            durations_s: Duration of each in seconds, float64 [n].

        """
        self._exploration_before = self.exploration
        index = np.asarray(clients, dtype=np.int64) - 1
        reported = np.isfinite(utility)
        if not reported.any():
            return
        self.utility[index] = np.where(reported, utility, utility[reported].mean())
        self.durations_s[index] = durations_s
        self.last[index] = round
        self.taken[index] += 1
        exploited = self._exploited[np.isin(self._exploited, index[reported])]
        if len(exploited):
            self._history.append(float(self.utility[exploited].mean()))
            self._pace()

    def _pace(self) -> None:
        """Adapt the preferred duration every ``pacer_step`` rounds that exploited clients (Algorithm 1).

        From the second time on, prefer longer rounds if the rounds before had more utility.
        """
        step, delta = self.keys.pacer_step, self.keys.pacer_delta
        if len(self._history) < 2 * step:
            return
        before, now = sum(self._history[:step]), sum(self._history[step:])
        del self._history[:step]
        if self.keys.pacer_rule == "falls":
            relax, tighten = now < before, False
        else:
            relax, tighten = abs(now - before) <= _FLAT * before, abs(now - before) >= _SHARP * before
        if relax:
            self.round_threshold = min(100.0, self.round_threshold + delta)
        elif tighten:
            self.round_threshold = max(delta, self.round_threshold - delta)

    # ---- checkpoints ----

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state for a checkpoint: columns and JSON."""
        columns = {"utility": self.utility, "durations_s": self.durations_s, "last": self.last, "taken": self.taken}
        return columns, {
            "exploration": self._exploration_before,
            "round_threshold": self.round_threshold,
            "history": list(self._history),
        }

    def load_state(self, columns: dict[str, np.ndarray], data: dict[str, Any]) -> None:
        """Restore a state that :meth:`state` returned."""
        self.utility, self.durations_s = columns["utility"].copy(), columns["durations_s"].copy()
        self.last, self.taken = columns["last"].copy(), columns["taken"].copy()
        self.exploration = self._exploration_before = data["exploration"]
        self.round_threshold = data["round_threshold"]
        self._history = list(data["history"])


def draw(
    clients: np.ndarray, weights: Sequence[float] | np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw clients without replacement, in proportion to their weights.

    Args:
        clients: The clients to draw from, int64 [n].
        weights: Their weights [n]; clients of weight 0 are drawn only if no others are left.
        count: Number of clients to draw.
        rng: The random stream.

    Returns:
        The drawn clients, int64 [count].

    """
    if count == 0:
        return clients[:0]
    shares = np.asarray(weights, dtype=np.float64)
    largest = shares.max()
    shares = shares / largest + 1e-12 if largest > 0 else np.ones(len(clients))
    return rng.choice(clients, size=count, replace=False, p=shares / shares.sum(), shuffle=False)
