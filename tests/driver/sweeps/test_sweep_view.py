"""What a person sees of a sweep: notices of its jobs, each sentence once, and the accuracies of its arms."""

import io

from rich.console import Console

from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.sweeps import sweep_records
from fedscale_ext.driver.sweeps.sweep_records import Point
from fedscale_ext.driver.sweeps.sweep_view import State, arm_rows, print_notices


def printed(notices: dict[str, list[str]]) -> list[str]:
    out = io.StringIO()
    print_notices(Console(file=out, width=40), notices)
    return out.getvalue().splitlines()


def test_a_sentence_stands_once_with_its_jobs() -> None:
    both = {"a-s0": ["20 of 60 clients [x]", "slow", "slow"], "a-s1": ["20 of 60 clients [x]"]}
    assert printed(both) == ["note: 20 of 60 clients [x] (all 2 jobs)", "note: slow (a-s0)"]
    assert printed({"alone": ["slow"]}) == ["note: slow (alone)"]
    assert printed({"a": [], "b": []}) == []


def test_many_jobs_and_many_sentences_are_counted() -> None:
    jobs = {f"j{number}": ["slow"] for number in range(6)} | {"other": []}
    assert printed(jobs) == ["note: slow (j0, j1, j2, j3 and 2 more)"]
    lines = printed({"a": [str(number) for number in range(23)], "b": []})
    assert len(lines) == 21 and lines[-1] == "note: 3 more notices stand in the jobs' summaries"


def test_an_arms_accuracy_says_of_how_many_jobs_it_is() -> None:
    points = tuple(Point(f"{arm}-s{seed}", arm, seed, ()) for arm in ("both", "one", "none") for seed in (0, 1))
    states = {point.name: State("finished", accuracy=0.25) for point in points}
    for name in ("one-s1", "none-s0", "none-s1"):
        states[name].accuracy = None
    rows = arm_rows(sweep_records.Sweep("a-sweep", "conf", (), {}, points, Proc("sweep", 1, 0.0)), states)[1]
    assert rows == [["both", "2 of 2", "25.00 ± 0.00"], ["one", "2 of 2", "25.00 (1 of 2)"], ["none", "2 of 2", "–"]]
