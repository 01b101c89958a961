"""A host of files on the loopback that answers as well or as badly as it is told to."""

import contextlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hosted:
    """A file and how it is served: ``ranges`` honoured; ``cuts``: after so many bytes each of the first replies breaks
    off; ``statuses`` of the first replies; ``stalls`` after so many bytes, or ``drips`` on, 50 a second; ``to``: sends
    on to another address."""

    data: bytes
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    stalls: int | None = None
    drips: bool = False
    to: str = ""
    etag: str = '"v1"'
    kind: str = "application/octet-stream"
    tells_length: bool = True
    wrong_range: bool = False


class Host:
    """``files`` by path; ``requests``: (path, Range, If-Range) of every request so far."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, Hosted] = {}
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.over = threading.Event()  # ends those who stall

    def put(self, name: str, data: bytes, **how: Any) -> str:
        """Serve a file; its address."""
        self.files[f"/{name}"] = Hosted(data, **how)
        return f"{self.address}/{name}"


@contextmanager
def file_host() -> Iterator[Host]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    host = server.host = Host(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        host: Host = self.server.host  # type: ignore[attr-defined]
        byte_range, since = self.headers.get("Range"), self.headers.get("If-Range")
        path = self.path.partition("?")[0]
        host.requests.append((path, byte_range, since))
        hosted = host.files.get(path)
        if hosted is None:
            return self.reply(404, b"nothing here", {})
        if hosted.statuses and (status := hosted.statuses.pop(0)) != 200:
            return self.reply(status, b"not now", {})
        if hosted.to:
            return self.reply(302, b"", {"Location": hosted.to})
        self.serve(hosted, byte_range, since, host)

    def serve(self, hosted: Hosted, byte_range: str | None, since: str | None, host: Host) -> None:
        data, size = hosted.data, len(hosted.data)
        headers = {"Content-Type": hosted.kind, **({"ETag": hosted.etag} if hosted.etag else {})}
        begin = int(re.fullmatch(r"bytes=(\d+)-", byte_range)[1]) if byte_range else 0  # type: ignore[index]
        status = 200
        if byte_range and hosted.ranges and since in (None, hosted.etag):
            if begin >= size:
                return self.reply(416, b"", {"Content-Range": f"bytes */{size}"})
            shift = 1 if hosted.wrong_range else 0
            headers["Content-Range"] = f"bytes {begin + shift}-{size - 1}/{size}"
            status, data = 206, data[begin:]
        self.send_response(status)
        if hosted.tells_length:
            headers["Content-Length"] = str(len(data))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if hosted.cuts:
            data = data[: hosted.cuts.pop(0)]
        with contextlib.suppress(ConnectionError):  # of who does not want any more
            self.wfile.write(data[: hosted.stalls])
            for byte in data[hosted.stalls :] if hosted.stalls is not None and hosted.drips else b"":
                if host.over.wait(0.02):
                    return
                self.wfile.write(bytes([byte]))
            if hosted.stalls is not None:
                host.over.wait(30)

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
