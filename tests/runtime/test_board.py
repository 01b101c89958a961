import threading

import pytest

from fedscale_ext.runtime.board import Board, BoardTimeout, Unit


def unit(number: int) -> Unit:
    return Unit(number, "train", {}, ())


def work(board: Board, executor: str, count: int, results: dict[int, str]) -> None:
    for _ in range(count):
        taken = board.take(executor, 5.0)
        assert taken is not None
        board.complete(executor, taken.id, results[taken.id])


def test_results_stand_in_the_order_of_the_units_whoever_did_them() -> None:
    board, results = Board(), {number: f"result {number}" for number in range(6)}
    threads = [threading.Thread(target=work, args=(board, f"{rank}", 3, results)) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    assert list(board.run([unit(number) for number in range(6)], 5.0)) == list(results.values())
    for thread in threads:
        thread.join()


def test_a_wait_without_results_ends_and_names_who_holds_what() -> None:
    board = Board()
    thread = threading.Thread(target=lambda: board.take("3", 5.0))
    thread.start()
    with pytest.raises(BoardTimeout, match=r"2 are missing, held by executor 3"):
        list(board.run([unit(1), unit(2)], 0.2))
    thread.join()


def test_only_the_holder_may_complete_a_unit_and_only_once() -> None:
    board = Board()
    board._open.append(unit(1))
    taken = board.take("1", 0.0)
    assert taken is not None
    assert not board.complete("2", 1, "forged")
    assert not board.complete("1", 99, "never asked for")
    assert board.complete("1", 1, "right")
    assert not board.complete("1", 1, "again")
    assert board.dropped == 3


def test_an_executor_that_starts_anew_gives_its_units_back() -> None:
    board = Board()
    board._open.extend([unit(1), unit(2)])
    board.take("1", 0.0)
    board.release("1")
    assert [board.take("2", 0.0), board.take("2", 0.0)] == [unit(1), unit(2)]


def test_closing_lets_every_waiting_executor_go() -> None:
    board = Board()
    taken: list[Unit | None] = []
    threads = [threading.Thread(target=lambda: taken.append(board.take("1", 30.0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    board.close()
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()
    assert taken == [None, None, None]
