"""Who sent a message, and that it is whole, fresh and not sent before: HMAC-SHA256 over what is sent.

Each call carries a stamp: version, executor, time, nonce, the SHA-256 of its body, and a MAC over these, the
method and the job. The MAC is checked before the body is read. The reply's MAC is over its own body and the
request's nonce, so that no other reply fits. SHA-256, because processors compute it themselves: it is three
times as fast here as BLAKE2, and Python's lock is released meanwhile.

Without a token the key is empty: the stamp is then a checksum that anyone can make.
"""

import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

VERSION = 1
_STAMP = struct.Struct("<BIQ16s32s")  # version, executor, milliseconds since 1970, nonce, digest of the body
_MAC = hashlib.sha256().digest_size
_REMEMBERED = 1 << 18  # nonces: more messages than that within the window are not taken


class Refused(Exception):
    """A message that is not taken. The reason is for this side's log and counts; the sender must not learn it."""


@dataclass(frozen=True)
class Stamp:
    """What a message says of itself, once its MAC was found right."""

    executor: int
    time_ms: int
    nonce: bytes
    digest: bytes


class Signer:
    """Signs and checks with the key of a token and a job's name."""

    def __init__(self, token: bytes, job: str) -> None:
        self._key = hmac.digest(token, b"fedscale_ext\0" + job.encode(), "sha256")

    def stamp(self, method: str, executor: int, body: bytes, time_ms: int) -> tuple[bytes, bytes]:
        """The stamp of a request, and its nonce."""
        nonce = secrets.token_bytes(16)
        fields = _STAMP.pack(VERSION, executor, time_ms, nonce, hashlib.sha256(body).digest())
        return fields + self._mac(b"request", method, fields), nonce

    def read(self, method: str, stamp: bytes | None) -> Stamp:
        """A request's stamp; Refused unless it was made with this key for this method."""
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
        """The MAC of the reply to the request with ``nonce``."""
        return self._mac(b"reply", method, nonce + hashlib.sha256(body).digest())

    def is_answer(self, mac: bytes, method: str, nonce: bytes, body: bytes) -> bool:
        """Whether a reply was made with this key, for this request."""
        return hmac.compare_digest(mac, self.answer(method, nonce, body))

    def _mac(self, direction: bytes, method: str, fields: bytes) -> bytes:
        # the fields have a fixed length for each direction, so that no two messages share their bytes
        return hmac.digest(self._key, b"\0".join([direction, method.encode(errors="replace"), fields]), "sha256")


class Gate:
    """The aggregator's door: which stamps it lets in. Safe to use from several threads.

    Only messages that were signed right are remembered, for as long as their time would be accepted.
    """

    def __init__(
        self,
        signer: Signer,
        executors: Collection[int],
        window_s: float,
        clock: Callable[[], float] = time.time,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._signer, self._executors, self._clock = signer, executors, clock
        self._window_ms = int(1000 * window_s)
        self._remembered = remembered
        self._seen: set[bytes] = set()
        self._ages: deque[tuple[int, bytes]] = deque()  # (arrival in ms, nonce)
        self._lock = threading.Lock()

    def admit(self, method: str, raw: bytes | None) -> Stamp:
        """The stamp of a message that may be read; Refused for any other."""
        stamp = self._signer.read(method, raw)
        if stamp.executor not in self._executors:
            raise Refused("unknown executor")
        now = int(1000 * self._clock())
        if abs(now - stamp.time_ms) > self._window_ms:
            raise Refused("its time is off")
        with self._lock:
            while self._ages and self._ages[0][0] < now - 2 * self._window_ms:
                self._seen.discard(self._ages.popleft()[1])
            if stamp.nonce in self._seen:
                raise Refused("replayed")
            if len(self._seen) >= self._remembered:
                raise Refused("too many messages")
            self._seen.add(stamp.nonce)
            self._ages.append((now, stamp.nonce))
        return stamp

    def answer(self, method: str, stamp: Stamp, body: bytes) -> bytes:
        """The MAC of the reply to an admitted message."""
        return self._signer.answer(method, stamp.nonce, body)


def is_body(stamp: Stamp, body: bytes) -> bool:
    """Whether a body is the one that was stamped."""
    return hmac.compare_digest(hashlib.sha256(body).digest(), stamp.digest)
