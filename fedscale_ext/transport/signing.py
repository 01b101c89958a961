"""Signatures of messages by HMAC-SHA256: they prove the sender, and that a message is whole, fresh and not replayed.

Each call carries a stamp: version, executor, time, nonce, the SHA-256 of its body, and a MAC over these, the method and
the job. The MAC is checked before the body is read. The reply's MAC covers its body and the request's nonce, so that
no other reply fits. The hash is SHA-256, because processors have instructions for it: it is three times as fast here as
BLAKE2, and Python's lock is released meanwhile.

Without a token the key is empty. The stamp is then a checksum that anyone can make.
"""

import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

VERSION = 1
JOINING = 0  # the number of an executor that has none yet; it signs with a key in which no job's name is
_STAMP = struct.Struct("<BIQ16s32s")  # version, executor, milliseconds since 1970, nonce, digest of the body
_MAC = hashlib.sha256().digest_size
_REMEMBERED = 1 << 18  # nonces; further messages within the window are refused


class Refused(Exception):
    """Raised for a message that is rejected. The reason is for this side's log only; the sender must not learn it."""


@dataclass(frozen=True)
class Stamp:
    """The verified stamp of a message: sender, time in ms since 1970, nonce and SHA-256 of the body."""

    executor: int
    time_ms: int
    nonce: bytes
    digest: bytes


class Signer:
    """Signs and verifies with a key derived from a token and a job's name."""

    def __init__(self, token: bytes, job: str) -> None:
        self._key = hmac.digest(token, b"fedscale_ext\0" + job.encode(), "sha256")

    def stamp(self, method: str, executor: int, body: bytes, time_ms: int) -> tuple[bytes, bytes]:
        """Sign a request.

        Args:
            method: Name of the gRPC method.
            executor: Number of the executor that sends it.
            body: The serialised request.
            time_ms: Time of sending in milliseconds since 1970.

        Returns:
            The stamp and its nonce.

        """
        nonce = secrets.token_bytes(16)
        fields = _STAMP.pack(VERSION, executor, time_ms, nonce, hashlib.sha256(body).digest())
        return fields + self._mac(b"request", method, fields), nonce

    def read(self, method: str, stamp: bytes | None) -> Stamp:
        """Verify a request's stamp.

        Args:
            method: Name of the gRPC method.
            stamp: The bytes that the call carries, if any.

        Returns:
            The stamp's content.

        Raises:
            Refused: If it was not made with this key for this method.

        """
        if stamp is None:
            raise Refused("not signed")
        if stamp[:1] != bytes([VERSION]):
            raise Refused("signed in another version")
        fields, mac = stamp[:-_MAC], stamp[-_MAC:]
        if len(fields) != _STAMP.size:
            raise Refused("not a signature")
        if not hmac.compare_digest(mac, self._mac(b"request", method, fields)):
            raise Refused("signed with another token")
        _, executor, time_ms, nonce, digest = _STAMP.unpack(fields)
        return Stamp(executor, time_ms, nonce, digest)

    def answer(self, method: str, nonce: bytes, body: bytes) -> bytes:
        """Return the MAC of the reply ``body`` to the request with ``nonce``."""
        return self._mac(b"reply", method, nonce + hashlib.sha256(body).digest())

    def is_answer(self, mac: bytes, method: str, nonce: bytes, body: bytes) -> bool:
        """Return whether a reply was made with this key, for this request."""
        return hmac.compare_digest(mac, self.answer(method, nonce, body))

    def _mac(self, direction: bytes, method: str, fields: bytes) -> bytes:
        # each direction's fields have a fixed length, so that two different messages never give the same bytes
        return hmac.digest(self._key, b"\0".join([direction, method.encode(errors="replace"), fields]), "sha256")


class Gate:
    """The aggregator's check of stamps; safe to use from several threads.

    It remembers the nonces of correctly signed messages, for as long as their time would be accepted. Where the clock
    was set back, that is long: if they fill the memory, those go whose time has passed by a clock that nobody sets.
    A message that was forgotten before the clock was set back would be let in again.

    Args:
        signer: Verifies signatures of the job's executors.
        joining: Verifies those of executors that have no number yet.
        window_s: Largest difference of the two clocks in seconds.
        clock: Returns the time in seconds since 1970.
        elapsed: Returns seconds that only grow.
        remembered: Largest number of nonces to remember; further messages are refused.

    """

    def __init__(
        self,
        signer: Signer,
        joining: Signer,
        window_s: float,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._signer, self._joining, self._clock, self._elapsed = signer, joining, clock, elapsed
        self._window_s = window_s
        self._remembered = remembered
        self._seen: set[bytes] = set()
        self._ages: deque[tuple[float, int, bytes]] = deque()  # (arrival by ``elapsed``, time in ms, nonce)
        self._lock = threading.Lock()

    def admit(self, method: str, raw: bytes | None) -> Stamp:
        """Verify that a message may be read.

        Args:
            method: Name of the gRPC method.
            raw: The stamp that the call carries, if any.

        Returns:
            The stamp's content.

        Raises:
            Refused: If the stamp is wrong, too old or replayed.

        """
        stamp = self._signer_of(claimed_executor(raw)).read(method, raw)
        if abs(int(1000 * self._clock()) - stamp.time_ms) > int(1000 * self._window_s):
            raise Refused("its time is off")
        with self._lock:
            now = self._elapsed()
            passed_ms = int(1000 * (self._clock() - self._window_s))
            while self._ages and self._ages[0][0] < now - 2 * self._window_s:
                if self._ages[0][1] >= passed_ms and len(self._seen) < self._remembered:
                    break
                self._seen.discard(self._ages.popleft()[2])
            if stamp.nonce in self._seen:
                raise Refused("replayed")
            if len(self._seen) >= self._remembered:
                raise Refused("too many messages")
            self._seen.add(stamp.nonce)
            self._ages.append((now, stamp.time_ms, stamp.nonce))
        return stamp

    def answer(self, method: str, stamp: Stamp, body: bytes) -> bytes:
        """Return the MAC of the reply to an admitted message."""
        return self._signer_of(stamp.executor).answer(method, stamp.nonce, body)

    def _signer_of(self, executor: int | None) -> Signer:
        return self._joining if executor == JOINING else self._signer


def claimed_executor(raw: bytes | None) -> int | None:
    """Return the executor's number in a stamp that is not verified yet; None if it has none."""
    if raw is None or len(raw) < _STAMP.size:
        return None
    return int(_STAMP.unpack_from(raw)[1])


def is_body(stamp: Stamp, body: bytes) -> bool:
    """Return whether a body is the one that was stamped."""
    return hmac.compare_digest(hashlib.sha256(body).digest(), stamp.digest)
