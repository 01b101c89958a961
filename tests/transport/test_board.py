import threading
import time
from collections.abc import Callable

import pytest

from fedscale_ext.transport.board import Board, BoardTimeout, NoExecutors
from fedscale_ext.transport.leases import ExecutorProcess, Leases, NotRegistered, NumberInUse, Superseded
from fedscale_ext.transport.unit_retries import UnitTracker, fault_summary
from fedscale_ext.transport.units import Attempt, Dropped, Unit

A, B = ExecutorProcess("1", "a"), ExecutorProcess("2", "b")


def unit(number: int) -> Unit:
    return Unit(number, "train", {}, ())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(Board):
    """A board on a clock that stands still, whose waiting tests do by hand."""

    def __init__(
        self, *processes: ExecutorProcess, lease_s: float = 30.0, tries: int = 2, replacement_s: float = 100.0
    ) -> None:
        self.clock = Clock()
        self.tracker = UnitTracker(tries)
        super().__init__(Leases(lease_s, self.clock), self.tracker, replacement_s)
        for process in processes:
            self.register(process)

    def take_now(self, process: ExecutorProcess) -> Attempt | None:
        return self.take(process, 0.0)

    def after(self, seconds: float, *alive: ExecutorProcess) -> None:
        """So much later; processes that showed signs of life meanwhile."""
        self.clock.now += seconds
        for process in alive:
            self.renew(process)
        self.lapse()


def ready(*processes: ExecutorProcess) -> Board:
    board = Board()
    for process in processes:
        board.register(process)
    return board


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def work(board: Board, process: ExecutorProcess, count: int, results: dict[int, str]) -> None:
    for _ in range(count):
        taken = board.take(process, 5.0)
        assert taken is not None
        board.complete(process, taken.unit.id, taken.number, results[taken.unit.id])


def test_results_stand_in_the_order_of_the_units_whoever_did_them() -> None:
    board, results = ready(A, B), {number: f"result {number}" for number in range(6)}
    threads = [threading.Thread(target=work, args=(board, process, 3, results)) for process in (A, B)]
    for thread in threads:
        thread.start()
    assert list(board.run([unit(number) for number in range(6)], 5.0)) == list(results.values())
    for thread in threads:
        thread.join()


def test_a_wait_without_results_ends_and_names_who_holds_what() -> None:
    board = ready(A)
    thread = threading.Thread(target=lambda: board.take(A, 5.0))
    thread.start()
    with pytest.raises(BoardTimeout, match=r"2 are missing, held by executor 1"):
        list(board.run([unit(1), unit(2)], 0.2))
    thread.join()


def test_where_a_quorum_decides_the_missing_units_are_given_up_together() -> None:
    board = ready(A)
    thread = threading.Thread(target=work, args=(board, A, 1, {1: "first"}))
    thread.start()
    first, *rest = board.run([unit(1), unit(2), unit(3)], 0.3, lenient=True)
    thread.join()
    assert first == "first"
    assert all(isinstance(one, Dropped) and "2 are missing" in one.reason for one in rest)
    assert board.complete(A, 2, 1, "too late") == "results of finished units dropped"


def test_only_the_holder_may_complete_a_unit_and_only_once() -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1)])
    assert board.take_now(A) == Attempt(unit(1), 1)
    assert board.complete(B, 1, 1, "forged") == "late results dropped"
    assert board.complete(A, 1, 2, "of an attempt that was never made") == "unplanned results dropped"
    assert board.complete(A, 99, 1, "never asked for") == "unplanned results dropped"
    assert board.complete(A, 1, 1, "right") is None
    assert board.complete(A, 1, 1, "again") == "results of finished units dropped"
    assert board.tracker.results == {1: "right"}
    assert sum(board.faults().values()) == 4
    assert board.faults() == {}


def test_a_process_that_asks_again_gets_the_unit_that_it_holds() -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1), unit(2)])
    assert [board.take_now(A), board.take_now(A), board.take_now(B)] == [
        Attempt(unit(1), 1), Attempt(unit(1), 1), Attempt(unit(2), 1)]  # fmt: skip


def test_a_process_that_leaves_in_order_gives_its_unit_back_which_has_not_failed() -> None:
    board = Timed(A, B, tries=1)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.leave(A)
    assert board.here == {"2"}
    assert board.take_now(B) == Attempt(unit(1), 2)
    board.leave(A)  # said twice
    with pytest.raises(NotRegistered):
        board.renew(A)
    board.leave(B)
    board.after(1000.0)
    assert board.faults() == {"work units handed out again": 1}
    assert not board.tracker.results
    board.register(anew := ExecutorProcess("1", "c"))
    assert board.take_now(anew) == Attempt(unit(1), 3)


def test_a_call_that_shows_life_may_end_after_its_process_has_left() -> None:
    board = Timed(A)
    board.stay(A, 0.0, lambda: board.leave(A) is not None)
    assert board.here == set()


def test_a_job_that_all_executors_have_left_names_that() -> None:
    board = Timed(A, replacement_s=0.0)
    board.leave(A)
    with pytest.raises(NoExecutors, match="no executor is left to do them: all have left, and none came back"):
        list(board.run([unit(1)], 5.0))


def test_a_replaced_process_gives_its_unit_back_and_is_sent_away() -> None:
    board, anew = Timed(A, B), ExecutorProcess("1", "c")
    board.tracker.add([unit(1), unit(2)])
    board.take_now(A)
    board.register(anew)
    for call in (board.take_now, board.renew):
        with pytest.raises(Superseded, match="executor 1"):
            call(A)
    assert board.take_now(B) == Attempt(unit(1), 2)  # in front of the others
    assert board.complete(A, 1, 1, "late") == "late results dropped"
    assert board.take_now(anew) == Attempt(unit(2), 1)


def test_registering_again_changes_nothing() -> None:
    board = Timed(A)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.register(A)
    assert board.complete(A, 1, 1, "right") is None
    assert board.faults() == {}


def test_a_message_of_an_older_process_does_not_displace_a_newer_one_that_is_there() -> None:
    board, anew = Timed(A), ExecutorProcess("1", "c")
    board.register(anew)
    with pytest.raises(NumberInUse, match="started later"):
        board.register(A)
    board.after(31.0)  # but of one that is gone, anybody may take the place
    board.register(A)
    assert board.here == {"1"}


def test_who_is_not_registered_gets_nothing() -> None:
    with pytest.raises(NotRegistered, match="register first"):
        Timed().take_now(A)


def test_the_unit_of_an_executor_without_a_sign_of_life_goes_to_another() -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.after(29.0, B)
    assert board.take_now(B) is None
    board.after(1.0, B)
    assert board.here == {"2"}
    assert board.take_now(B) == Attempt(unit(1), 2)
    assert board.complete(A, 1, 1, "late") == "late results dropped"
    assert board.faults() == {"executors lost": 1, "work units handed out again": 1, "late results dropped": 1}


def stay(board: Board, process: ExecutorProcess, alive: list[bool]) -> threading.Thread:
    thread = threading.Thread(target=lambda: board.stay(process, 5.0, lambda: alive[0]))
    thread.start()
    until(lambda: board._leases._held[process.executor].lines)
    return thread


def test_a_broken_connection_is_noticed_before_the_lease_ends_but_is_no_proof_of_death() -> None:
    board, alive = Timed(A, B), [True]
    board.tracker.add([unit(1)])
    board.take_now(A)
    thread = stay(board, A, alive)
    alive[0] = False
    board.wake()
    thread.join()
    board.after(1.0, B)
    assert board.here == {"1", "2"}  # it has a moment to come back
    board.after(1.0, B)
    assert board.here == {"2"}
    assert board.take_now(B) == Attempt(unit(1), 2)
    board.fail(B, 1, 2, "ValueError")
    assert board.take_now(B) is None  # it failed here, and perhaps killed A: that decides
    board.after(1.0, A)
    assert board.here == {"1", "2"}
    assert board.take_now(A) == Attempt(unit(1), 3)
    assert board.complete(A, 1, 3, "right") is None


def test_a_connection_that_was_opened_anew_before_the_old_one_broke_holds() -> None:
    board, alive, anew = Timed(A), [True], [True]
    threads = [stay(board, A, alive)]
    threads += [threading.Thread(target=lambda: board.stay(A, 5.0, lambda: anew[0]))]
    threads[1].start()
    until(lambda: board._leases._held["1"].lines == 2)
    alive[0] = False
    board.wake()
    threads[0].join()
    board.after(10.0)
    assert board.here == {"1"}
    board.close()
    threads[1].join()


def test_a_unit_that_kills_two_executors_is_dropped() -> None:
    board, third = Timed(A, B, ExecutorProcess("3", "c")), ExecutorProcess("3", "c")
    board.tracker.add([unit(1), unit(2)])
    board.take_now(A)
    board.after(20.0, B, third)
    board.after(20.0, B, third)
    assert board.take_now(B) == Attempt(unit(1), 2)
    board.after(20.0, third)
    board.after(20.0, third)
    assert board.take_now(third) == Attempt(unit(2), 1)
    assert board.tracker.results == {1: Dropped("its work unit failed 2 times: each time the executor ended")}


def test_a_unit_that_raises_goes_to_another_executor_and_is_dropped_with_its_reason() -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1)])
    board.take_now(A)
    assert board.fail(A, 1, 1, "ValueError: x") is None
    assert board.take_now(A) is None  # another one is there to try
    board.take_now(B)
    assert board.fail(B, 1, 2, "ValueError: y") is None
    assert board.tracker.results == {1: Dropped("its work unit failed 2 times: ValueError: x")}


def test_a_unit_that_raises_twice_on_the_only_executor_is_dropped() -> None:
    board = Timed(A)
    board.tracker.add([unit(1)])
    for attempt in (1, 2):
        assert board.take_now(A) == Attempt(unit(1), attempt)
        board.fail(A, 1, attempt, "ValueError")
    assert isinstance(board.tracker.results[1], Dropped)


def test_where_the_others_are_gone_an_executor_tries_again_what_failed_on_it() -> None:
    board = Timed(A, B, tries=3)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.fail(A, 1, 1, "ValueError")
    assert board.take_now(A) is None
    board.after(40.0, A)
    assert board.take_now(A) == Attempt(unit(1), 2)


@pytest.mark.parametrize("come_back", [Timed.renew, Timed.register])
def test_one_that_was_lost_and_comes_back_was_not_killed_by_its_unit(
    come_back: Callable[[Timed, ExecutorProcess], None],
) -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.after(40.0, B)
    come_back(board, A)
    board.take_now(B)
    board.after(40.0, A)
    assert board.take_now(A) == Attempt(unit(1), 3)  # only B counts


def test_with_nobody_left_the_wait_for_a_replacement_is_bounded_and_names_them() -> None:
    board = Timed(A, B)
    board.tracker.add([unit(1)])
    board.after(40.0)
    board.after(99.0)
    board.clock.now += 1.0
    with pytest.raises(NoExecutors) as raised:
        board._await(1, {1}, 10.0)  # far less than the wait for a replacement: it counts while somebody works
    assert str(raised.value) == (
        "1 work units are missing and no executor is left to do them: executor 1 was last heard of 140 s ago, "
        "executor 2 was last heard of 140 s ago, and none came back or was replaced within 100 s"
    )


def test_a_replacement_in_time_goes_on() -> None:
    board = Timed(A)
    board.tracker.add([unit(1)])
    board.take_now(A)
    board.after(40.0)
    board.after(90.0)
    anew = ExecutorProcess("1", "b")
    board.register(anew)
    board.lapse()
    assert board.take_now(anew) == Attempt(unit(1), 2)
    board.after(20.0, anew)
    board.complete(anew, 1, 2, "right")
    assert board._await(1, {1}, 10.0) == "right"


def test_a_ping_that_nobody_waits_for_takes_no_unit() -> None:
    board, alive = ready(A, B), [True]
    taken: list[Attempt | None] = []
    thread = threading.Thread(target=lambda: taken.append(board.take(A, 5.0, lambda: alive[0])))
    thread.start()
    alive[0] = False
    board.wake()
    thread.join(2.0)
    assert taken == [None]


def test_closing_lets_every_waiting_executor_go() -> None:
    processes = [ExecutorProcess(str(number), "s") for number in range(3)]
    board = ready(*processes)
    taken: list[Attempt | None] = []
    threads = [threading.Thread(target=lambda w=process: taken.append(board.take(w, 30.0))) for process in processes]
    threads.append(threading.Thread(target=lambda: board.stay(processes[0], 30.0, lambda: True)))
    for thread in threads:
        thread.start()
    board.close()
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()
    assert taken == [None, None, None]


def test_one_fault_is_written_in_the_singular() -> None:
    counts = {"work units handed out again": 1, "executors lost": 2, "results of finished units dropped": 1}
    assert fault_summary(counts) == "2 executors lost, 1 result of finished units dropped, 1 work unit handed out again"


def test_a_unit_goes_to_the_process_that_has_most_of_it_and_to_any_rather_than_to_nobody() -> None:
    def of(number: int, **held: int) -> Unit:
        labels = {process: dict.fromkeys(map(str, range(count)), "label") for process, count in held.items()}
        return Unit(number, "train", {}, (), None, lambda process: labels.get(process.session, {}))

    board = Timed(A, B)
    board.tracker.add([unit(1), of(2, b=2), of(3, a=1, b=1), of(4, a=2)])
    taken = []
    for process in (A, B, A, B):
        attempt = board.take_now(process)
        assert attempt is not None
        board.complete(process, attempt.unit.id, attempt.number, "done")
        taken.append(attempt.unit.id)
    assert taken == [4, 2, 3, 1]
    assert board.take_now(A) is None
