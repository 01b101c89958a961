"""The lines of the executors: who is there, what each does, how fast."""

from types import SimpleNamespace
from typing import Any

from fedscale_ext.server.attendance import Attendance
from fedscale_ext.transport.units import Unit

INFO: Any = SimpleNamespace(host="here", device="cpu")
TRAIN = Unit(7, "client_train", {"round": 3, "items": [{}, {}]}, ())
TEST = Unit(8, "model_test", {"round": 3, "clients": [1, 2, 3]}, ())


class Job:
    def __init__(self) -> None:
        self.now, self.present, self.events = 100.0, set[str](), list[Any]()
        self.later: list[tuple[float, Any]] = []
        self.attendance = Attendance(
            self.events.append, lambda: set(self.present), lambda: self.now, lambda *call: self.later.append(call)
        )

    def come(self, executor: str, joined: bool = False) -> None:
        self.present.add(executor)
        self.attendance.come(executor, INFO, joined)

    @property
    def last(self) -> dict[str, Any]:
        return {line["executor"]: line for line in self.events[-1]["executors"]}


def test_whoever_comes_or_goes_is_told_at_once_and_work_once_in_a_second() -> None:
    job = Job()
    job.come("1")
    job.come("10", joined=True)
    job.come("2")
    assert [list(map(int, (line["executor"] for line in event["executors"]))) for event in job.events] == [
        [1], [1, 10], [1, 2, 10]]  # fmt: skip
    job.attendance.take("1", TRAIN)
    job.attendance.tell()
    assert len(job.events) == 3
    job.now += 1.0
    job.attendance.tell()
    job.present.remove("10")
    job.attendance.tell()
    assert len(job.events) == 5 and job.last.keys() == {"1", "2"}


def test_who_is_lost_is_told_apart_until_it_comes_back_and_who_has_left_is_not() -> None:
    job = Job()
    for number in range(1, 15):
        job.come(str(number))
    job.present.remove("1")
    job.attendance.leave("1")
    assert "1" not in job.last and job.events[-1]["lost"] == []
    for number in range(2, 15):
        job.now += 1.0
        job.present.remove(str(number))
        job.attendance.tell_soon()
        job.later.pop()[1]()
    lost = {line["executor"]: line["lost_at"] for line in job.events[-1]["lost"]}
    assert lost == {str(number): 99.0 + number for number in range(5, 15)} and not job.last
    job.present.add("14")
    job.attendance.leave("14")  # said by a process that another one has replaced
    assert job.last.keys() == {"14"} and job.last["14"]["lost_at"] == 0.0
    assert len(job.events[-1]["lost"]) == 10  # of 11: the earliest has no line


def test_what_was_done_within_the_second_is_told_after_it() -> None:
    job = Job()
    job.come("1")
    job.attendance.take("1", TRAIN)
    job.attendance.tell()
    job.now += 0.25
    job.attendance.tell()
    ((seconds, call),) = job.later  # one, however much is done
    assert (seconds, len(job.events)) == (1.0, 1)
    job.now += 0.5  # timers are not exact
    call()
    assert job.last["1"]["unit"] == 7
    job.attendance.tell()
    assert len(job.events) == 2 and len(job.later) == 2
    job.attendance.close()
    job.later[1][1]()
    assert len(job.events) == 2


def test_a_line_says_what_is_done_and_counts_what_was() -> None:
    job = Job()
    job.come("1", joined=True)
    job.attendance.take("1", TRAIN)
    job.now += 2.0
    job.attendance.take("1", TRAIN)  # its message was lost
    job.attendance.tell()
    working = job.last["1"]
    assert (working["kind"], working["round"], working["clients"], working["since"]) == ("client_train", 3, 2, 100.0)
    assert (working["joined"], working["host"], working["units_done"]) == (True, "here", 0)
    job.attendance.finish("1", 7)
    job.attendance.finish("1", 7)  # said twice
    job.attendance.take("1", TEST)
    job.now += 3.0
    job.attendance.finish("1", 8)
    job.attendance.tell()
    done = job.last["1"]
    assert (done["unit"], done["units_done"], done["clients_done"], done["busy_s"]) == (0, 2, 5, 5.0)


def test_who_comes_back_does_not_do_what_others_took_over() -> None:
    job = Job()
    job.come("1")
    job.attendance.take("1", TRAIN)
    job.present.remove("1")
    job.attendance.tell()
    job.present.add("1")
    job.attendance.tell()
    assert job.last["1"]["unit"] == 0


def test_nothing_is_kept_of_one_that_never_registered() -> None:
    job = Job()
    job.attendance.take("1", TRAIN)
    job.attendance.finish("1", 7)
    job.attendance.tell()
    assert job.events == [{"event": "executors", "executors": [], "lost": []}]
