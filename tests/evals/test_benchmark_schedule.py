"""Rows try their learning rates before their seeds, jobs fill the workers, and a row that fails stops no other."""

from concurrent.futures import ThreadPoolExecutor

from evals.benchmark.methods import Row
from evals.benchmark.row import NoResult, Outcome
from evals.benchmark.schedule import train_rows

ROWS = {"A": Row("fedavg"), "B": Row("fedprox")}


def trained(
    workers: int, fails: tuple[str, tuple[float, ...]] = ("", ()), rates: tuple[float, ...] = (0.03, 0.1, 0.3)
) -> tuple[list[tuple[str, int, float]], list[str], list[str]]:
    """The jobs (label, seed, learning rate) in the order in which they began, the failures and the told lines."""
    begun: list[tuple[str, int, float]] = []

    def train(task: str, label: str, row: Row, seed: int, rate: float) -> Outcome:
        begun.append((label, seed, rate))
        if label == fails[0] and seed == 6 and rate in fails[1]:
            raise NoResult(f"{label} on {task}: no")
        return Outcome({"own %": {0.03: 1.0, 0.1: 3.0, 0.3: 2.0}[rate] if label == "A" else rate}, recorded=seed == 2)

    messages: list[str] = []
    with ThreadPoolExecutor(workers) as pool:
        failures = train_rows(ROWS, {"har": [1, 2]}, {"har": rates}, train, pool, workers, messages.append)
    return begun, failures, messages


def test_each_seed_has_the_rate_that_was_best_on_a_seed_of_its_own() -> None:
    begun, failures, messages = trained(1)
    tried = [(6, 0.03), (6, 0.1), (6, 0.3)]
    assert [(seed, rate) for label, seed, rate in begun if label == "A"] == [*tried, (1, 0.1), (2, 0.1)]
    assert [(seed, rate) for label, seed, rate in begun if label == "B"] == [*tried, (1, 0.3), (2, 0.3)]
    assert [label for label, *_ in begun] == ["A"] * 5 + ["B"] * 5  # earlier rows first
    assert not failures
    assert messages[0] == "har: A, seed 6, learning rate 0.03 begins: job 1 of 10" and messages[1].endswith(
        "0.03: 1.00 %"
    )


def test_a_single_rate_is_not_tried() -> None:
    begun, failures, messages = trained(1, rates=(0.1,))
    assert begun == [("A", 1, 0.1), ("A", 2, 0.1), ("B", 1, 0.1), ("B", 2, 0.1)] and not failures
    assert messages[1] == "har: A, seed 1, learning rate 0.1: 3.00 %"
    assert messages[3] == "har: A, seed 2, learning rate 0.1: 3.00 % (recorded before, so not trained now)"
    assert messages[0] == "har: A, seed 1, learning rate 0.1 begins: job 1 of 4"


def test_several_workers_train_the_same_jobs() -> None:
    assert sorted(trained(3)[0]) == sorted(trained(1)[0])


def test_a_row_without_a_result_stops_no_other() -> None:
    for workers in (1, 3):
        begun, failures, _ = trained(workers, fails=("A", (0.03, 0.1, 0.3)))
        assert failures == ["A on har: no"]
        assert sorted(label for label, *_ in begun) == ["A"] * 3 + ["B"] * 5


def test_a_learning_rate_without_a_result_is_not_chosen() -> None:
    for workers in (1, 3):
        begun, failures, messages = trained(workers, fails=("A", (0.1,)))
        assert not failures and "har: A, learning rate 0.1 is not chosen: A on har: no" in messages
        assert sorted((seed, rate) for label, seed, rate in begun if label == "A" and seed < 6) == [(1, 0.3), (2, 0.3)]


def test_a_task_with_rows_of_its_own_has_these_and_anybodys() -> None:
    rows = {"FedProto": Row("fedproto"), "HeteroFL": Row("heterofl"), "mine": Row("mine", is_users=True)}
    begun: list[tuple[str, str]] = []

    def train(task: str, label: str, row: Row, seed: int, rate: float) -> Outcome:
        begun.append((task, label))
        return Outcome({"own %": 1.0})

    messages: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        train_rows(rows, {"har": [1], "chars": [1]}, {"har": [0.1], "chars": [0.1]}, train, pool, 1, messages.append)
    assert begun == [("har", label) for label in rows] + [("chars", "FedProto"), ("chars", "mine")]
    assert messages[0].endswith("job 1 of 5")
