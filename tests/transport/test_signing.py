"""Stamps: what is let in, and what is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.transport.signing import VERSION, Gate, Refused, Signer, is_body

METHOD = "/fedscale.JobService/CLIENT_PING"
TOKEN = bytes(range(32))
NOW_S = 1_000_000.0


class Clock:
    now = NOW_S

    def __call__(self) -> float:
        return self.now


def signer(token: bytes = TOKEN, job: str = "job") -> Signer:
    return Signer(token, job)


def stamp(by: Signer, executor: int = 1, body: bytes = b"body", at: float = NOW_S, method: str = METHOD) -> bytes:
    return by.stamp(method, executor, body, int(1000 * at))[0]


def gate(clock: Clock | None = None, elapsed: Clock | None = None, **more: int) -> Gate:
    clock = clock or Clock()
    return Gate(signer(), signer(job=""), 120.0, clock, elapsed or clock, **more)


def test_what_was_signed_is_let_in_once() -> None:
    door, raw = gate(), stamp(signer(), 2)
    admitted = door.admit(METHOD, raw)
    assert admitted.executor == 2
    assert is_body(admitted, b"body") and not is_body(admitted, b"Body")
    with pytest.raises(Refused, match="replayed"):
        door.admit(METHOD, raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "not signed"),
        (b"", "signed in another version"),
        (bytes([VERSION + 1]) + stamp(signer())[1:], "signed in another version"),
        (bytes([VERSION]), "not a signature"),
        (stamp(signer()) + b"x", "not a signature"),
        (stamp(signer(bytes(32))), "signed with another token"),
        (stamp(signer(b"")), "signed with another token"),
        (stamp(signer(job="other")), "signed with another token"),
        (stamp(signer(), method="/fedscale.JobService/CLIENT_REGISTER"), "signed with another token"),
        (stamp(signer(), 0), "signed with another token"),  # whoever joins does not know the job
        (stamp(signer(job=""), 1), "signed with another token"),
        (stamp(signer(), at=NOW_S - 121), "its time is off"),
        (stamp(signer(), at=NOW_S + 121), "its time is off"),
    ],
    ids=range(13),  # the stamps themselves are random
)
def test_anything_else_is_refused_by_its_reason(raw: bytes | None, reason: str) -> None:
    with pytest.raises(Refused, match=f"^{reason}$"):
        gate().admit(METHOD, raw)


@pytest.mark.parametrize("off", [-119.0, 0.0, 119.0])
def test_clocks_may_differ_within_the_window(off: float) -> None:
    assert gate().admit(METHOD, stamp(signer(), at=NOW_S + off)).executor == 1


@settings(deadline=None, derandomize=True, max_examples=300)
@given(data=st.data())
def test_a_stamp_with_any_bit_changed_is_no_stamp(data: st.DataObject) -> None:
    raw = bytearray(stamp(signer()))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Refused):
        gate().admit(METHOD, bytes(raw))


def test_a_nonce_is_remembered_for_as_long_as_its_time_would_do() -> None:
    clock = Clock()
    door, raw = gate(clock), stamp(signer(), at=NOW_S + 119)  # of a clock that goes ahead
    door.admit(METHOD, raw)
    for later, reason in ((238.0, "replayed"), (239.5, "its time is off")):
        clock.now = NOW_S + later
        with pytest.raises(Refused, match=reason):
            door.admit(METHOD, raw)


def test_memory_is_bounded_and_freed_with_time() -> None:
    clock = Clock()
    door = gate(clock, remembered=3)
    for _ in range(3):
        door.admit(METHOD, stamp(signer()))
    with pytest.raises(Refused, match="too many messages"):
        door.admit(METHOD, stamp(signer()))
    clock.now += 241
    for _ in range(3):
        door.admit(METHOD, stamp(signer(), at=clock.now))


def test_memory_is_freed_although_the_clock_is_set_back() -> None:
    clock, elapsed = Clock(), Clock()
    door = gate(clock, elapsed, remembered=3)
    for _ in range(9):
        door.admit(METHOD, stamp(signer(), at=clock.now))
        clock.now -= 3600
        elapsed.now += 100


def test_a_message_is_not_let_in_again_where_the_clock_was_set_back() -> None:
    clock, elapsed = Clock(), Clock()
    door, first = gate(clock, elapsed), stamp(signer(), at=clock.now)
    door.admit(METHOD, first)
    elapsed.now += 600  # while the clock went forward and was set back
    with pytest.raises(Refused, match="replayed"):
        door.admit(METHOD, first)


def test_strangers_take_no_memory() -> None:
    door = gate(remembered=1)
    for _ in range(3):
        with pytest.raises(Refused):
            door.admit(METHOD, stamp(signer(b"wrong" * 8)))
    door.admit(METHOD, stamp(signer()))


def test_a_reply_belongs_to_one_request() -> None:
    by, door = signer(), gate()
    raw, nonce = by.stamp(METHOD, 1, b"body", int(1000 * NOW_S))
    mac = door.answer(METHOD, door.admit(METHOD, raw), b"reply")
    assert by.is_answer(mac, METHOD, nonce, b"reply")
    assert not by.is_answer(mac, METHOD, nonce, b"Reply")
    assert not by.is_answer(mac, METHOD, bytes(16), b"reply")
    assert not by.is_answer(mac, "other", nonce, b"reply")
    assert not signer(b"").is_answer(mac, METHOD, nonce, b"reply")
