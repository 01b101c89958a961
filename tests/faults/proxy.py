"""A TCP proxy on loopback that disturbs the connections through it by a schedule drawn from a seed."""

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

_CHUNK = 4096


class Proxy:
    """Forwards connections to ``target`` (a port on loopback) in chunks of at most 4 kB.

    ``kinds`` says how often what happens to a chunk: ``delay`` (up to 20 ms), ``cut`` (half of the chunk
    goes on, then the connection is reset), ``drop`` (the chunk is lost and the connection closed),
    ``half_open`` (from then on both sides are connected and nothing passes). To which of the first
    ``chunks`` chunks is drawn from ``seed``.
    """

    def __init__(self, target: int, seed: int, kinds: dict[str, int], chunks: int) -> None:
        self.done: Counter[str] = Counter()
        every = [kind for kind, times in kinds.items() for _ in range(times)]
        self._draw = random.Random(seed)
        self._schedule = dict(zip(self._draw.sample(range(chunks), len(every)), every, strict=True))
        self._target = target
        self._lock = threading.Lock()
        self._chunks = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                try:
                    outer = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    inner.close()
                    continue
                silent = threading.Event()
                for ends in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._forward, args=(*ends, silent), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
        try:
            while chunk := source.recv(_CHUNK):
                if silent.is_set():
                    continue
                kind, delay_s = self._next()
                time.sleep(delay_s)
                if kind == "cut":
                    sink.sendall(chunk[: len(chunk) // 2])
                    _reset(source, sink)
                    return
                if kind == "drop":
                    return
                if kind == "half_open":
                    silent.set()
                    continue
                sink.sendall(chunk)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _next(self) -> tuple[str | None, float]:
        """What happens to the next chunk, and how long it is held back."""
        with self._lock:
            kind = self._schedule.get(self._chunks)
            self._chunks += 1
            self.done.update([kind] if kind else [])
            return kind, self._draw.uniform(0, 0.02) if kind == "delay" else 0.0


def _reset(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close sends a reset
