"""What methods share whose clients train smaller versions of one model: capacity, levels, notices, pool.

Level 0 is the largest. Every level smaller than the whole model is a part of it in
the pool: its state is cut out of the whole's, and ``means`` is the count-mean over the clients of all levels.
"""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedscale_ext.method import (
    EvaluationPlan,
    IndexMap,
    JobConfig,
    ModelSpec,
    MultiModelAggregator,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    narrowed,
    stream,
    window,
)
from fedscale_ext.methods.groups import check_groups_fit, ranked_levels
from fedscale_ext.methods.type_figures import TypeFiguresAggregator
from fedscale_ext.server.announcements import ModelChoice


def check_rates(key: str, rates: Sequence[float]) -> None:
    """Raise UserError unless ``rates`` are 1 to 26 numbers in (0, 1] that :func:`check_distinct` tells apart."""
    if not 0 < len(rates) <= len(string.ascii_lowercase):
        raise UserError(f"{key} is {list(rates)}; it must hold 1 to 26 rates")
    if not all(0 < rate <= 1 for rate in rates):
        raise UserError(f"{key} is {list(rates)}; every rate must be above 0 and at most 1")
    check_distinct(key, rates)


def check_distinct(key: str, rates: Sequence[float]) -> None:
    """Raise UserError where two rates have the same six significant digits, by which models and results are named."""
    if len({f"{rate:g}" for rate in rates}) < len(rates):
        raise UserError(f"{key} is {list(rates)}; its values must differ in their first six significant digits")


def check_shares(key: str, shares: Sequence[float] | None, levels: int, what: str = "rates") -> None:
    """Raise UserError unless there is a share for each level, none is negative, and they add up to 1."""
    if shares is None:
        return
    if not (len(shares) == levels and min(shares) >= 0):
        raise UserError(f"{key} is {list(shares)}; it must hold a share, not negative, for each of {levels} {what}")
    if not np.isclose(sum(shares), 1.0, atol=0.01):
        raise UserError(f"{key} is {list(shares)}; shares must add up to 1, and these add up to {sum(shares):g}")


def drawn_levels(affordable: np.ndarray, shares: Sequence[float], u: np.ndarray) -> np.ndarray:
    """Draw levels from shares among the affordable ones.

    Args:
        affordable: bool [clients, levels]; each client affords one at least.
        shares: Share of each level, [levels].
        u: A number in [0, 1) for each client, [clients].

    Returns:
        The level of each client, int64 [clients]; the largest affordable one where those have no share.

    """
    weights = affordable * np.asarray(shares, dtype=np.float64)
    largest = np.eye(len(shares))[affordable.argmax(axis=1)]
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, largest)
    edges = weights.cumsum(axis=1)
    return (u[:, None] >= edges / edges[:, -1:]).sum(axis=1)


@dataclass(frozen=True)
class LevelsParams:
    """Hyperparameters of methods with levels.

    Attributes:
        levels: ``capacity`` gives each client the largest level whose MACs it affords. ``groups`` makes levels as large
            as ``groups`` says; it is the default where ``groups`` is given. ``fix`` draws levels once from ``shares``,
            among those that a client affords.
        groups: Clients of each level, smallest level first, in the order of ``groups_by``.
        shares: Shares of the levels that ``levels: fix`` draws from, smallest level first. By default, they are equal.

    """

    levels: Literal["capacity", "groups", "fix"] = "capacity"
    groups: tuple[int, ...] = ()
    shares: tuple[float, ...] | None = None

    method: ClassVar[str]

    @classmethod
    def job_defaults(cls, config: JobConfig) -> dict[str, Any]:
        """Set ``levels`` to groups where the configuration gives ``groups``."""
        return {"levels": "groups"} if config.method_params().get("groups") else {}

    def __post_init__(self) -> None:
        key = f"{self.method}.groups"
        if self.levels == "groups" and not self.groups:
            raise UserError(f"{self.method}.levels is groups; give their sizes, as in {key}: [17, 17, 16]")
        if self.groups and self.levels != "groups":
            clash = f"{key} is given and {self.method}.levels is {self.levels}"
            raise UserError(f"{clash}; give one of them (--set '{key}=[]' takes groups away)")
        if self.shares is not None and self.levels not in ("fix", "dynamic"):
            remedy = "" if self.groups else f"set {self.method}.levels to fix, or "
            raise UserError(
                f"{self.method}.shares is given and {self.method}.levels is {self.levels}, which draws nothing; "
                f"{remedy}remove {self.method}.shares"
            )


@dataclass(frozen=True)
class Level:
    """A level: the ``spec`` that its clients train, and its part of the whole model.

    ``channels``: by channel group, the channels of the whole that it holds; missing groups are whole.
    ``description`` is what people read of the level.
    """

    key: str
    spec: ModelSpec
    channels: IndexMap
    description: str


class ShrinkingAggregator(MultiModelAggregator):
    """Base of methods that give weak clients narrower versions of one model.

    By default, the weakest device affords exactly the narrowest version. Clients that afford less, as with a larger
    ``capacity_model``, train it anyway; a notice lists them.
    """

    reestimates_by_default: ClassVar[bool] = True  # versions share weights, not BatchNorm's statistics

    def smallest_version(self) -> ModelSpec:
        """Spec of the smallest version."""
        raise NotImplementedError

    def whole_spec(self) -> ModelSpec:
        """Spec of the model at rate 1: the configuration's.

        Its convolutions are dense where the method's ``dense`` is on (as FedTrans's appendix A has it for its
        baselines).
        """
        spec = self.initial_spec()
        dense = self._dense_form(spec) if getattr(self.params, "dense", False) else None
        return spec if dense is None else dense(spec)

    def settings_idle_with_models(self) -> Iterator[str]:
        """Beside the base's: ``dense``, where the family has no grouped convolutions that can become dense."""
        yield from super().settings_idle_with_models()
        if getattr(self.params, "dense", False) and self._dense_form(spec := self.initial_spec()) is None:
            yield f"{self.config.job.method}.dense does nothing: the family {spec.family!r} has no dense form"

    @staticmethod
    def _dense_form(spec: ModelSpec) -> Callable[[ModelSpec], ModelSpec] | None:
        return getattr(models.family(spec), "dense", None)

    def smallest_spec(self) -> ModelSpec:
        """Spec of the smallest version, unless ``capacity_model`` names another model."""
        if self.config.job.capacity_model is not None:
            return super().smallest_spec()
        return self.smallest_version()


class LevelsAggregator(ShrinkingAggregator):
    """Base of methods with levels. Subclasses give :meth:`make_levels` and, where they differ, the hooks below.

    ``levels_by`` capacity: each client is on the largest level that it affords; fix: drawn from ``shares`` among
    those, once; dynamic: drawn anew in each round, and the largest one is served; groups: the weakest clients are on
    the smallest level and so on, ``groups`` of them on each, whatever they afford.
    """

    # ---- what subclasses may say ----

    def make_levels(self, spec: ModelSpec) -> list[Level]:
        """The levels of the whole model, largest first."""
        raise NotImplementedError

    levels_by: str = "capacity"
    shares: Sequence[float] | None = None  # of each level; None: equal ones
    groups: Sequence[int] = ()  # clients on each level, smallest level first

    def objective(self, level: int) -> dict[str, Any]:
        """Return what only the method's clients read, for those of a level."""
        return {}

    def overrides(self, level: int) -> dict[str, Any]:
        """Return the fields of a client's configuration that a level sets instead of the job's keys."""
        return {}

    def read_params(self, params: LevelsParams, clients: int) -> None:
        """Take from the hyperparameters who is on which level, once :attr:`levels` are there."""
        if params.levels == "groups":
            check_groups_fit(f"{params.method}.groups", params.groups, len(self.levels), clients)
            self.groups = params.groups
        self.levels_by = params.levels
        if params.shares is not None:
            check_shares(f"{params.method}.shares", params.shares, len(self.levels), "levels, smallest level first")
            self.shares = tuple(reversed(params.shares))

    def item_at(self, client: int, level: int) -> WorkItem:
        """Return the work item of a client that trains a level."""
        return WorkItem(client, self.keys[level], self.objective(level), self.overrides(level))

    # ---- the hooks of the base ----

    def smallest_version(self) -> ModelSpec:
        """Spec of the smallest level."""
        return self.make_levels(self.whole_spec())[-1].spec

    def init_state(self, population: Population, task: Task) -> None:
        """Create the whole model and its levels, and choose the level of each client."""
        spec = self.whole_spec()
        self.levels = self.make_levels(spec)
        if isinstance(self.params, LevelsParams):
            self.read_params(self.params, task.num_clients)
        self.keys = [level.key for level in self.levels]
        self.whole = self.keys[0] if self.levels[0].spec == spec else "global"
        self.pool.add(self.whole, spec, self.initial_state(spec))
        for level in self.levels:
            if level.key != self.whole:
                self.pool.add_part(level.key, self.whole, level.spec, level.channels)
        self.macs = macs = np.array([self.pool[key].cost.forward_macs for key in self.keys])
        self.affordable = self.capacity[:, None] >= macs
        what = "what the sizes of levels give them" if self.levels_by == "groups" else f"level {self.keys[-1]}"
        self.report_weak(macs[-1], f"they would train {what} all the same")
        self.affordable[:, -1] = True
        self.largest_affordable = self.affordable.argmax(axis=1)
        self.level_of = self._choose_levels()
        choices = [
            ModelChoice(f"level {level.key}", self.pool[level.key].cost, level.description) for level in self.levels
        ]
        self.report_assignment(choices, self.level_of, "serves" if self.levels_by == "dynamic" else "gives")
        self.report_unaffordable(f"level {self.keys[0]}", macs[0])

    def _choose_levels(self) -> np.ndarray:
        if self.levels_by == "fix":
            u = stream(self.seed, "levels").random(self.task.num_clients)
            drawn = self._drawn(u)
            if self.shares is not None:
                self._report_lower(drawn, drawn_levels(np.ones_like(self.affordable), self.shares, u))
            return drawn
        if self.levels_by != "groups":
            return self.largest_affordable
        dealt = ranked_levels(self.dealing_order(), self.groups)
        if beyond := self.count_beyond(self.macs[dealt]):
            self.notice(f"{beyond} clients train a level that is beyond their capacity, as the sizes of levels ask")
        return dealt

    def _drawn(self, u: np.ndarray) -> np.ndarray:
        return drawn_levels(self.affordable, self.shares or [1.0] * len(self.keys), u)

    def _report_lower(self, drawn: np.ndarray, intended: np.ndarray) -> None:
        lower = int((drawn > intended).sum())
        if lower:
            self.notice(
                f"{lower} clients are on a smaller level than shares alone give them: they do not afford every level"
            )

    def client_levels(self, round: int) -> np.ndarray:
        """The level that each client trains in a round, int64 [clients]."""
        if self.levels_by != "dynamic":
            return self.level_of
        return self._drawn(stream(self.seed, round, "levels").random(self.task.num_clients))

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its level."""
        levels = self.client_levels(round)[participants - 1].tolist()
        return [self.item_at(client, level) for client, level in zip(participants.tolist(), levels, strict=True)]

    def possible_items(self) -> list[WorkItem]:
        """What all clients that may train would be given in the first round."""
        return self.assign(1, np.flatnonzero(self.eligible) + 1)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Take the mean of each entry over the clients whose level holds it; others keep their value."""
        self.pool.update(self.whole, means[self.whole])

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own level (FedTrans's protocol); test the whole model beside."""
        return EvaluationPlan([self.keys[level] for level in self.level_of.tolist()], {"global": self.whole})

    def lineage(self) -> dict[str, Any]:
        """Return the whole and the size of each level."""
        return {
            level.key: {
                "parent": None if level.key == self.whole else self.whole,
                "birth": 0,
                "steps": [level.description],
            }
            for level in self.levels
        }


class RatesAggregator(TypeFiguresAggregator, LevelsAggregator):
    """Levels that differ only in width: a rate of channels for each, in every channel group."""

    moves: bool = False  # whether a level holds other channels in each round

    def init_state(self, population: Population, task: Task) -> None:
        """Create the levels, and report channels of the whole model that no client trains."""
        super().init_state(population, task)
        trained = self.largest_affordable if self.levels_by == "dynamic" else self.level_of
        empty = self.keys[: int(trained.min())]
        if empty and not self.moves:
            self.notice(
                f"no client is on level {' or '.join(empty)}: channels that no smaller level has keep their initial "
                "values; a smaller model would be trained whole"
            )

    @property
    def type_of(self) -> np.ndarray:  # type: ignore[override]
        """Index of each client's level, int64 [clients]."""
        return self.level_of

    def type_names(self) -> Sequence[str]:
        """Keys of the levels, largest first."""
        return self.keys

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: a round on its own level."""
        return self.item_at(client, int(self.level_of[client - 1]))

    def results(self) -> dict[str, Any]:
        """Report figures by level, where clients stay on theirs."""
        return {} if self.levels_by == "dynamic" else super().results()

    def kept_share(self) -> np.ndarray:
        """Share of the whole model's parameters that each client's level holds, float64 [clients]."""
        sizes = np.array([self.pool[key].cost.parameters for key in self.keys], dtype=np.float64)
        shares: np.ndarray = sizes[self.level_of] / self.pool[self.whole].cost.parameters
        return shares

    @property
    def rates(self) -> Sequence[float]:
        """Rates of the levels, widest first."""
        raise NotImplementedError

    def read_params(self, params: LevelsParams, clients: int) -> None:
        """Take who is on which level; ``shares`` have the order of the rates, highest first."""
        super().read_params(params, clients)
        self.shares = params.shares

    def level_spec(self, spec: ModelSpec, rate: float) -> ModelSpec:
        """The spec that a level of this rate trains."""
        return narrowed(spec, rate)

    def make_levels(self, spec: ModelSpec) -> list[Level]:
        """Leading channels at each rate; a level of rate 1 is the whole."""
        letters = string.ascii_lowercase
        specs = {rate: spec if rate == 1 else self.level_spec(spec, rate) for rate in self.rates}
        return [
            Level(key, specs[rate], window(spec, rate), f"rate {rate:g}")
            for key, rate in zip(letters, self.rates, strict=False)
        ]
