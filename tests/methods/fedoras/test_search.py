"""The search of a path: constraints, objectives, keys, determinism, restarts, refusals."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedoras.brackets import Bracket, upper_only
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.methods.fedoras.search import JudgedPath, Path, PathSearch, pareto
from fedscale_ext.methods.fedoras.tier_searches import TierSearches
from fedscale_ext.models.supernet.family import Tables

from .spaces import best_inside, drawn_table, every_path, judge, run, table

SMALL: dict[str, Any] = {"population": 32, "parents": 16}


def middle(tables: Tables, low: float = 0.3, high: float = 0.6) -> Bracket:
    return Bracket(*np.quantile(path_macs(tables, every_path(tables)), [low, high]).tolist())


def all_macs(tables: Tables, paths: Sequence[Path]) -> np.ndarray:
    return path_macs(tables, np.array([tables.indices(path) for path in paths]))


def tried(search: PathSearch, scores: Any) -> tuple[JudgedPath, list[list[Path]]]:
    """The best and what was asked for."""
    generations: list[list[Path]] = []
    best = run(search, lambda paths: generations.append(paths) or scores(paths))
    return best, generations


@pytest.mark.parametrize(
    ("how", "objectives", "least", "most"), [("nsga2", 1, 6, 6), ("nsga2", 2, 5, 6), ("random", 2, 0, 3)]
)
def test_the_best_path_of_the_bracket_is_found(how: Any, objectives: Any, least: int, most: int) -> None:
    """A third of the bracket's 720 paths is judged, six times; the best of all 2401 is outside."""
    tables, hits = drawn_table(4, 7), 0
    bracket = middle(tables)
    for seed in range(1, 7):
        scores = judge(tables, seed)
        search = PathSearch(tables, bracket, FedorASParams(search=how, objectives=objectives, **SMALL), 240, seed)
        best, generations = tried(search, scores)
        paths = [path for generation in generations for path in generation]
        assert len(paths) == len(set(paths)) == 240
        assert bracket.inside(all_macs(tables, paths)).all()
        assert best.score == max(scores(paths)) < best_inside(tables, Bracket(0, 1e9), scores) - 0.5
        hits += best.score == pytest.approx(best_inside(tables, bracket, scores))
    assert least <= hits <= most


def test_the_second_objective_spreads_over_macs() -> None:
    tables = drawn_table(8, 7)
    scores, bracket = judge(tables), Bracket(1000.0, 6000.0)
    spread = {}
    for objectives in (1, 2):
        search = PathSearch(tables, bracket, FedorASParams(objectives=objectives, **SMALL), 240, 1)  # type: ignore[arg-type]
        _, generations = tried(search, scores)
        spread[objectives] = np.quantile(all_macs(tables, [p for batch in generations[-6:] for p in batch]), 0.1)
    assert spread[2] < 0.7 * spread[1]


def test_evolution_finds_better_paths_than_chance() -> None:
    tables = drawn_table(12, 9)
    scores, bracket = judge(tables), Bracket(1000.0, 4000.0)
    best = {
        how: run(PathSearch(tables, bracket, FedorASParams(search=how, **SMALL), 240, 1), scores).score  # type: ignore[arg-type]
        for how in ("nsga2", "random")
    }
    assert best["nsga2"] > best["random"] + 0.5


def test_the_upper_edge_alone() -> None:
    tables = drawn_table(4, 7)
    (bracket,) = upper_only([middle(tables)])
    scores = judge(tables)
    search = PathSearch(tables, bracket, FedorASParams(**SMALL), 240, 1)
    best, generations = tried(search, lambda paths: [-score for score in scores(paths)])  # the cheap ones are best
    assert best.macs < middle(tables).low
    assert all_macs(tables, [path for batch in generations for path in batch]).max() <= bracket.high


@pytest.mark.parametrize("how", ["nsga2", "random"])
def test_paths_of_eleven_operators_are_kept_apart(how: Any) -> None:
    """Operators 10, 1, 0 and 1, 0, 10 are one text, "1010", and two paths."""
    tables = table([list(range(1, 12))] * 3)
    one, other = tables.path([10, 1, 0]), tables.path([1, 0, 10])
    search = PathSearch(tables, Bracket(0.0, 1e3), FedorASParams(search=how, population=64, parents=64), 1331, 1)
    _, generations = tried(search, lambda paths: [{one: 7.0, other: 9.0}.get(path, 1.0) for path in paths])
    assert sum(map(len, generations)) == 11**3  # as texts there are fewer
    assert len({"".join(map(str, path)) for path in every_path(tables)}) < 11**3
    assert search.judged[one].score == 7.0
    assert search.best().path == other


@pytest.mark.parametrize("how", ["nsga2", "random"])
def test_a_bracket_is_searched_to_its_end(how: Any) -> None:
    tables = drawn_table(3, 4)
    bracket, scores = middle(tables, 0.2, 0.8), judge(tables)
    search = PathSearch(tables, bracket, FedorASParams(search=how, population=8, parents=4), 1000, 1)
    best, generations = tried(search, scores)
    inside = bracket.inside(path_macs(tables, every_path(tables))).sum()
    assert sum(map(len, generations)) == inside
    assert best.score == pytest.approx(best_inside(tables, bracket, scores))
    assert search.ask() == []


def test_unsupported_operators_are_never_asked_for() -> None:
    macs = drawn_table(5, 6).macs.tolist()
    for row, column in zip(macs, (0, 1, 2, 3, 0), strict=True):
        row[column] = np.inf
    tables = table(macs)
    search = PathSearch(tables, Bracket(0.0, 1e4), FedorASParams(**SMALL), 240, 1)
    _, generations = tried(search, judge(tables))
    assert np.isfinite(all_macs(tables, [path for batch in generations for path in batch])).all()


# ---- determinism and restarts ----


def test_searches_that_share_scores_judge_no_path_twice_after_a_restart() -> None:
    tables = drawn_table(3, 4)
    top = float(path_macs(tables, every_path(tables)).max())
    brackets = [Bracket(0.0, top * share) for share in (0.6, 0.8, 1.0)]
    params = FedorASParams(evaluations=30, population=8, parents=4)
    scores, asked = judge(tables), list[Path]()

    def searches() -> TierSearches:
        return TierSearches([tables] * 3, brackets, params, 1, shared=True)

    def judged(tier: int, generation: int, paths: list[Path]) -> list[float]:
        asked.extend(paths)
        return [float("nan"), *scores(paths)[1:]]

    unbroken, broken = searches(), searches()
    unbroken.run(judged, lambda *_: None)
    whole = asked.copy()
    asked.clear()

    def stop(tier: int, search: PathSearch) -> None:
        if tier == 1:
            raise StopIteration

    with pytest.raises(StopIteration):
        broken.run(judged, stop)
    resumed = searches()
    resumed.load_state(json.loads(json.dumps(broken.state(), allow_nan=False)))
    resumed.run(judged, lambda *_: None)
    assert asked == whole and len(set(whole)) == len(whole)
    assert resumed.results == unbroken.results


def noisy(search: PathSearch, tables: Tables) -> Any:
    """Scores that depend on the generation too, as a federated evaluation's; some are not finite."""
    scores = judge(tables)

    def noisy_scores(paths: list[Path]) -> list[float]:
        rng = np.random.default_rng(search.generation)
        noise = rng.normal(size=len(paths))
        return [float("nan") if n > 1.5 else s + 0.1 * n for s, n in zip(scores(paths), noise, strict=True)]

    return noisy_scores


def searched(how: Any = "nsga2", seed: int = 1, evaluations: int = 240, **params: Any) -> PathSearch:
    tables = drawn_table(6, 7)
    return PathSearch(
        tables, Bracket(1000.0, 2500.0), FedorASParams(search=how, **SMALL | params), evaluations, seed, "search", 0
    )


def outcome(search: PathSearch) -> str:
    """Everything, with all digits."""
    return repr((search.state(), search.judged, search.front(), search.best(), search.generation))


def test_equal_keys_give_equal_searches_whatever_else_draws() -> None:
    outcomes = []
    for seed, entropy in ((1, 5), (1, 6), (2, 5)):
        np.random.seed(entropy)
        before = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
        search = searched(seed=seed)
        run(search, noisy(search, search.tables))
        assert np.random.get_state()[1].tolist() == before  # type: ignore[index,union-attr]
        outcomes.append(outcome(search))
    assert outcomes[0] == outcomes[1] != outcomes[2]


@pytest.mark.parametrize("how", ["nsga2", "random"])
@pytest.mark.parametrize("before", [0, 1, 4, 9, 100])
def test_an_interrupted_search_goes_on_bitwise(how: Any, before: int) -> None:
    whole = searched(how)
    _, all_asked = tried(whole, noisy(whole, whole.tables))
    first = searched(how)
    judged = noisy(first, first.tables)
    for _ in range(min(before, len(all_asked))):
        first.tell(judged(first.ask()))
    first.ask()
    state = json.loads(json.dumps(first.state(), allow_nan=False))
    second = searched(how)
    second.load_state(state)
    assert second.generation == first.generation
    assert second.ask() == first.ask()
    _, generations = tried(second, noisy(second, second.tables))
    assert generations == all_asked[before:]
    assert outcome(second) == outcome(whole)


def test_a_search_can_be_prolonged() -> None:
    short = searched(evaluations=100)
    run(short, noisy(short, short.tables))
    longer = searched(evaluations=200)
    longer.load_state(short.state())
    best, generations = tried(longer, noisy(longer, longer.tables))
    assert sum(map(len, generations)) == 100
    assert best.score >= short.best().score


# ---- what is asked and told ----


def test_known_scores_are_not_asked_for() -> None:
    tables, known = drawn_table(4, 7), dict[Path, float]()
    scores = judge(tables)
    first = PathSearch(tables, middle(tables), FedorASParams(**SMALL), 240, 1, scores=known)
    tried(first, scores)
    assert len(known) == 240
    again = PathSearch(tables, middle(tables), FedorASParams(**SMALL), 240, 1, scores=known)
    assert again.ask() == []
    assert outcome(again) == outcome(first)
    other = PathSearch(tables, middle(tables, 0.4, 0.7), FedorASParams(**SMALL), 240, 2, scores=known)
    _, generations = tried(other, scores)
    assert not {path for batch in generations for path in batch} & set(first.judged)
    assert len(other.judged) == 240 > sum(map(len, generations))


def test_asking_twice_is_asking_once() -> None:
    search = searched()
    assert search.ask() == search.ask()
    with pytest.raises(ValueError, match="1 scores were told of 32 paths"):
        search.tell([1.0])


def test_progress_is_shown_and_a_target_ends_the_search() -> None:
    whole = searched()
    target = run(whole, judge(whole.tables)).score
    search, seen = searched(target=target), list[tuple[int, int, float]]()
    run(
        search,
        judge(search.tables),
        lambda progress: seen.append((progress.generation, len(progress.judged), progress.best().score)),
    )
    assert [count for _, count, _ in seen] == sorted({count for _, count, _ in seen})
    assert seen[-1][2] == target > seen[-2][2]
    assert len(search.judged) < 240
    assert search.ask() == []


def test_scores_that_are_not_finite_are_never_the_best() -> None:
    search = searched()
    scores = judge(search.tables)
    spoilt = [float("nan"), float("inf"), float("-inf")]
    run(search, lambda paths: [spoilt[n] if n < 3 else score for n, score in enumerate(scores(paths))])
    assert np.isfinite(search.best().score)
    assert all(np.isfinite(judged.score) for judged in search.front())
    hopeless = searched()
    with pytest.raises(UserError, match="none of the 240 paths that were judged for the tier that takes above"):
        run(hopeless, lambda paths: [float("nan")] * len(paths))


def test_of_equal_scores_the_cheapest_is_best() -> None:
    search = searched()
    best = run(search, lambda paths: [1.0] * len(paths))
    assert best.macs == min(judged.macs for judged in search.judged.values())
    assert search.front() == [best]


# ---- refusals, and what is loaded ----


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"population": 0}, r"fedoras\.population is 0; it must be at least 2"),
        ({"parents": 1}, r"fedoras\.parents is 1; it must be at least 2"),
        ({"evaluations": [9, 0]}, r"fedoras\.evaluations\[1\] is 0; it must be at least 1"),
        ({"evaluations": 0}, r"fedoras\.evaluations is 0; it must be at least 1"),
        ({"mutation": 1.5}, r"fedoras\.mutation is 1\.5; it must be from 0 to 1"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], says: str) -> None:
    keys = {f"fedoras.{name}": value for name, value in settings.items()}
    with pytest.raises(UserError, match=says):
        make_params(FedorASParams, make_config({}, {"method": "fedoras", **keys}))


def test_a_bracket_below_the_cheapest_path() -> None:
    with pytest.raises(UserError, match=r"no path can be searched for that takes .*: the cheapest path takes"):
        PathSearch(drawn_table(3, 4), Bracket(1.0, 9.0), FedorASParams(), 1000, 1)


def test_pymoo_is_loaded_by_nsga2_alone() -> None:
    code = """
import sys
from tests.methods.fedoras.spaces import drawn_table, judge, run
from fedscale_ext.methods.fedoras import brackets, federated_evaluation, params, search, validation
tables = drawn_table(4, 4)
for how in ("random", "nsga2"):
    searched = params.FedorASParams(search=how)
    run(search.PathSearch(tables, brackets.Bracket(0.0, 1e6), searched, 9, 1), judge(tables))
    print(how, [name for name in ("pymoo", "scipy.stats", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "random []"
    assert done.stdout.splitlines()[1].startswith("nsga2 ['pymoo'")


POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    macs, scores = np.array(points, dtype=float).T
    front = pareto(macs, scores)

    def beaten(macs_of: float, score: float) -> bool:
        return bool(((macs <= macs_of) & (scores >= score) & ((macs < macs_of) | (scores > score))).any())

    assert {points[index] for index in front} == {point for point in points if not beaten(*point)}
    assert macs[front].tolist() == sorted(set(macs[front].tolist()))


def test_scores_that_are_not_numbers_are_on_no_front() -> None:
    assert pareto(np.array([1.0, 2.0, 3.0]), np.array([np.nan, 1.0, np.nan])) == [1]


def test_a_search_without_a_score_says_whether_anybody_could_judge() -> None:
    search = searched()
    with pytest.raises(UserError, match=r"none of the 240 paths that were judged .* has not learned anything"):
        run(search, lambda paths: [float("nan")] * len(paths))
    with pytest.raises(UserError, match=r"nobody can judge any of the 240 paths .*; shorten fedoras.unsupported"):
        search.best(240)
    with pytest.raises(UserError, match="none of the 200 paths"):
        search.best(40)
