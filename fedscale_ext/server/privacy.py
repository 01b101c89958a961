"""Differential privacy of one job: who may take part, what a round releases, and what it has cost so far."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.population.selection.participants import select, select_each
from fedscale_ext.privacy.accounting import Accountant
from fedscale_ext.privacy.mechanism import adapted_norm, bit_noise, change_noise, noised_mean
from fedscale_ext.server.method_base.method_traits import Feature, MethodTraits, exclusion, reestimates_statistics

if TYPE_CHECKING:
    from fedscale_ext.core.types import State, WorkItem
    from fedscale_ext.submodels.model_pool import ModelPool
    from fedscale_ext.tasks.reduction import ModelMean

_SWITCH = "dp_noise_multiplier"
_SWITCHES = _SWITCH, "dp_round_epsilon"  # the second one sets the first
_UNPROTECTED = "losses and accuracies that the job writes, who took part, and the virtual clock"
_ASSUMES = {
    "sampling": "who took part in which round stays secret (metrics.jsonl tells it)",
    "participation": "nothing: who took part may be public; it is of the client that took part most often",
}


def check_options(config: JobConfig, method: type[MethodTraits]) -> bool:
    """Whether the job asks for differential privacy; UserError where it cannot have what it asks for."""
    job, args = config.job, config.fedscale
    if job.dp_noise_multiplier is None:
        keys = sorted(key for key in config.given if key.startswith("dp_") and key != _SWITCH)
        if keys and not any(map(config.takes_away, _SWITCHES)):
            raise UserError(f"{keys[0]} needs differential privacy: set {_SWITCH}, or remove {keys[0]}")
        return False
    if not method.reduces:
        raise UserError(
            f"method {job.method} takes each client's model as it is, so {_SWITCH} cannot shield it; choose a "
            f"method that averages, or remove {_SWITCH}"
        )
    if reason := exclusion(method, Feature.PRIVACY):
        raise UserError(
            f"method {job.method} {reason}, which {_SWITCH} does not shield; choose a method that averages, or remove "
            f"{_SWITCH}"
        )
    if not method.needs_states:
        raise UserError(
            f"method {job.method} averages no models of its clients, on which {_SWITCH} would put noise; choose a "
            f"method that averages, or remove {_SWITCH}"
        )
    looks = {
        "own_classes": job.own_classes,
        "control_variates": job.control_variates,
        f"sample_mode: {args.sample_mode}": args.sample_mode != "random",
        f"bn_statistics: {job.bn_statistics}": reestimates_statistics(method, config),
    }  # fmt: skip
    for what, asked in looks.items():
        if asked and what.startswith("bn_statistics"):
            raise UserError(f"{what} tells of clients' data what {_SWITCH} does not shield; set bn_statistics: running")
        if asked:
            raise UserError(f"{what} tells of clients' data what {_SWITCH} does not shield; remove one of them")
    if job.augment == "speech":
        raise UserError(
            f"augment: speech mixes clients' samples with other clients' silence, which {_SWITCH} does not shield; "
            f"set augment: none, or remove {_SWITCH}"
        )
    if job.dp_accounting == "sampling":
        instead = "set dp_accounting: participation, which counts the rounds that a client was in"
        if args.device_avail_file is not None:
            raise UserError(
                "device_avail_file lets earlier participants decide who is online, so epsilon cannot rest on secret "
                f"coins: {instead}, or remove device_avail_file"
            )
        if args.overcommitment != 1 and "overcommitment" in config.given:
            raise UserError(
                f"overcommitment {args.overcommitment:g} lets others' speed decide who counts, so epsilon cannot rest "
                f"on secret coins: {instead}, or set overcommitment: 1.0"
            )
    return True


def check_work(method: str, items: Sequence["WorkItem"], pool: "ModelPool") -> None:
    """Check that each client has one change of one whole model, for which noise is made.

    Args:
        method: Name of the method, for messages.
        items: What clients train in a round.
        pool: The models that the items name.

    Raises:
        UserError: A client trains a part of a model, several models, or counts for its own classes only.

    """
    if any(item.overrides.get("own_classes") for item in items):
        raise UserError(
            f"clients of method {method} count for their own classes only, which tells of their data what {_SWITCH} "
            "does not shield; turn one of them off"
        )
    once = len({item.client for item in items}) == len(items)
    if not once or any(pool[item.model].part for item in items):
        raise UserError(
            f"method {method} trains parts of models or several models per client, for which {_SWITCH} is not made; "
            "remove it, or choose a method with one model per client"
        )


class JobPrivacy:
    """The noise, the norm and the account of a job; ``eligible`` bool [clients], ``reachable`` those who are ever
    online, ``unprotected`` what the method learns of clients in addition to the means (see ``MethodTraits``)."""

    def __init__(self, config: JobConfig, eligible: np.ndarray, reachable: np.ndarray, unprotected: str) -> None:
        self._job, self._wanted = config.job, config.fedscale.num_participants
        self._unprotected = f"{_UNPROTECTED}; {unprotected}" if unprotected else _UNPROTECTED
        if self._job.dp_delta >= 1 / len(eligible):
            raise UserError(
                f"dp_delta {self._job.dp_delta:g} is not below 1 / {len(eligible)} clients, where it would promise "
                "nothing: lower it"
            )
        multiplier = self._job.dp_noise_multiplier
        assert multiplier is not None
        self.sampling = self._job.dp_accounting == "sampling"
        self._probability = self._wanted / int(eligible.sum())
        self._accountant = Accountant(multiplier, self._job.dp_delta, self._probability if self.sampling else None)
        self._bits = bit_noise(multiplier, self._wanted)
        adaptive = self._job.dp_target_quantile is not None
        self._multiplier = change_noise(multiplier, self._bits) if adaptive else multiplier
        self._affordable: int | None = None
        if self._job.dp_epsilon is not None:
            self._affordable = self._accountant.affordable(self._job.dp_epsilon)
            if self._affordable == 0:
                raise UserError(
                    f"dp_epsilon {self._job.dp_epsilon:g} does not pay for one round, which costs "
                    f"{self._accountant.epsilon(1):.3g}: raise dp_epsilon or {_SWITCH}"
                )
        self.key: int | str = self._job.seed if self._job.dp_noise == "seeded" else os.urandom(32).hex()
        self.clip_norm = self._job.dp_clip_norm
        self._releases = 0
        self._taken = np.zeros(len(eligible), dtype=np.int64)  # rounds that each client was in
        self._eligible, self._reachable = eligible, reachable
        self._last: dict[str, float | None] = {}

    def allowed(self) -> np.ndarray:
        """bool [clients]: who may take part in another round; all, where epsilon rests on secret coins."""
        if self.sampling or self._affordable is None:
            return self._eligible
        return self._eligible & (self._taken < self._affordable)

    def select(self, online: np.ndarray, count: int, *key: int | str) -> np.ndarray:
        """Participants among ``online``: each by its own coin, or ``count`` of them; the draw's stream has ``key``."""
        rng = stream(self.key, *key)
        if self.sampling:
            return select_each(online, self._probability, rng)
        return select(online & self.allowed(), count, rng)

    def release(
        self,
        round: int,
        clients: Iterable[int],
        pool: "ModelPool",
        sums: Mapping[str, "ModelMean"],
        shares: Mapping[str, float],
        num_unclipped: int,
        counted: int,
    ) -> dict[str, "State"]:
        """The noised mean state of every model that ``clients`` could have trained; the cost is counted.

        ``shares``: of the participants, by model, as expected before the coins were thrown. ``num_unclipped`` of
        ``counted`` clients had changes no longer than the norm. A sum is divided by the expected number
        of its clients, never by their actual one, and at least by an equal share, so that a model that few
        train is not drowned in noise. A model whom nobody trained is noised like the others.
        """
        deviation = self._multiplier * self.clip_norm
        means = {}
        for model in pool:
            if shares[model.key] > 0:
                count = self._wanted * max(shares[model.key], 1 / len(pool))
                total = sums[model.key].total if model.key in sums else None
                draws = partial(self._noise, round, model.key)
                means[model.key] = noised_mean(model.state, total, deviation, count, draws)
        self._releases += 1
        self._taken[np.fromiter(clients, dtype=np.int64) - 1] += 1
        self._last = {"epsilon": self.epsilon(), "delta": self._job.dp_delta, "clip_norm": self.clip_norm,
                      "noise_std": deviation, "within": self._adapt(round, num_unclipped, counted)}  # fmt: skip
        return means

    def _noise(self, round: int, *name: str) -> np.random.Generator:
        return stream(self.key, round, *name, "privacy")

    def _adapt(self, round: int, num_unclipped: int, counted: int) -> float | None:
        """Let the norm follow its quantile; the noised share of changes that were within it."""
        quantile = self._job.dp_target_quantile
        if quantile is None:
            return None
        noise = self._bits * float(self._noise(round, "within").standard_normal())
        share = (num_unclipped - counted / 2 + noise) / self._wanted + 0.5
        self.clip_norm = adapted_norm(self.clip_norm, share, quantile)
        return share

    def epsilon(self) -> float:
        """Epsilon so far."""
        return self._accountant.epsilon(self._releases if self.sampling else int(self._taken.max()))

    def spent(self) -> str | None:
        """Why no further round may be trained, or None."""
        if self._affordable is None:
            return None
        left = self._releases < self._affordable if self.sampling else (self.allowed() & self._reachable).any()
        if left:
            return None
        return f"the next round could exceed dp_epsilon {self._job.dp_epsilon:g}"

    def figures(self) -> dict[str, float | None]:
        """The last release: epsilon so far and its delta, the norm that changes were clipped to, the noise's
        standard deviation on a sum of changes, and the noised share of changes within the norm (None: not asked)."""
        return dict(self._last)

    def summary(self) -> dict[str, Any]:
        """The promise in full, for summary.json."""
        return {
            "epsilon": self.epsilon(),
            "delta": self._job.dp_delta,
            "noise_multiplier": self._job.dp_noise_multiplier,
            "clip_norm": self.clip_norm,
            "neighbours": "one client's data is there, or its change is zero",
            "assumes": _ASSUMES[self._job.dp_accounting],
            "noise": self._job.dp_noise,
            "unprotected": self._unprotected,
        }

    def announcement(self, rounds: int) -> str:
        """What a person should know before the first round."""
        if not self.sampling:
            cost = f"epsilon {self._accountant.epsilon(1):.3g} for a client's first round"
        else:
            cost = f"epsilon {self._accountant.epsilon(min(rounds, self._affordable or rounds)):.3g} at the end"
        return f"clients have differential privacy, {cost}, delta {self._job.dp_delta:g}; not for {self._unprotected}"

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a checkpoint holds; a secret key is in it, so that a resumed job releases nothing twice."""
        secret = {"key": self.key} if self._job.dp_noise == "secret" else {}
        return {"taken": torch.from_numpy(self._taken)}, {
            "releases": self._releases, "clip_norm": self.clip_norm, "last": self._last, **secret
        }  # fmt: skip

    def load_state(self, tensors: Mapping[str, torch.Tensor], data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self._taken = tensors["taken"].numpy().copy()
        self._releases, self.clip_norm, self._last = data["releases"], data["clip_norm"], data["last"]
        self.key = data.get("key", self.key)
