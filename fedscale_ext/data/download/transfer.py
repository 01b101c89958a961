"""One file over HTTP, continued where an earlier try ended.

What has come lies in a file whose name ends in ``.part``; a note beside it says from where, and by which mark of the
host (ETag or date) the file is known, so that two versions of a file are never put together.
"""

import contextlib
import http.client
import json
import re
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.progress import Progress
from fedscale_ext.util.package import VERSION
from fedscale_ext.util.reading import read_json

_BLOCK = 1 << 18
_FORTH = 1 << 20  # bytes that count as getting forth: the tries begin anew
_REDIRECTS = (301, 302, 303, 307, 308)
_PASSING = (408, 425, 429, 500, 502, 503, 504)


class HostError(Exception):
    """Error of a host that does not send a file, with the reason; ``passing``: a later try may succeed."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


@dataclass(frozen=True)
class Patience:
    """How long a host is borne with: tries without getting forth, the pause before the second (it doubles), seconds of
    silence, and bytes per second below which, over ``window_s``, it counts as stalled."""

    tries: int = 4
    pause_s: float = 1.0
    silence_s: float = 30.0
    slowest: float = 1000.0
    window_s: float = 60.0


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address: its exact size where that is known, the most bytes it may have, and whether a checksum will
    tell a wrong one (``pinned``)."""

    url: str
    size: int | None
    most: int
    pinned: bool


def fetch(remote: RemoteFile, part: Path, patience: Patience, progress: Progress | None = None) -> None:
    """Download the whole file to ``part``.

    Raises HostError where the host does not send it, UserError where it cannot be written.
    """
    failures, reached = 0, _size(part)
    while True:
        try:
            return _try(remote, part, patience, progress)
        except HostError as error:
            forth, reached = _size(part) >= reached + _FORTH, max(reached, _size(part))
            failures = 1 if forth else failures + 1
            if not error.passing or failures >= patience.tries:
                raise
        time.sleep(patience.pause_s * 2 ** (failures - 1))


def forget(part: Path) -> None:
    """Remove a partial download and the note about it."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _try(remote: RemoteFile, part: Path, patience: Patience, progress: Progress | None) -> None:
    have, mark = _size(part), None
    if have:
        mark = _mark(part, remote.url)
        if remote.size == have:
            return
        if (mark is None and not remote.pinned) or have > (remote.size or remote.most):
            forget(part)  # nothing would tell whether the rest belongs to it
            have = 0
    headers = {"User-Agent": f"fedscale_ext/{VERSION}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if mark:
            headers["If-Range"] = mark
    with contextlib.closing(_open(remote, headers, patience)) as reply:
        if reply.status == 416:
            if _whole(reply.headers.get("Content-Range")) == have:
                return
            forget(part)
            raise HostError("has another file than before", passing=True)
        begin, total = _extent(reply, remote, have)
        if begin == 0:
            forget(part)
            _keep_note(part, remote.url, reply)
        _receive(reply, part, begin, total, remote, patience, progress)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        scheme = urlsplit(newurl).scheme
        if scheme not in ("http", "https"):
            raise HostError("sends on to what is not followed")
        if scheme == "http" and urlsplit(req.full_url).scheme == "https" and not self._pinned:
            raise HostError("sends on from https to http, where no checksum would tell a wrong file")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(remote: RemoteFile, headers: dict[str, str], patience: Patience) -> Any:
    """The host's reply, of status 200, 206 or 416."""
    request = urllib.request.Request(remote.url, headers=headers)
    opener = urllib.request.build_opener(_Redirects(remote.pinned))
    try:
        return opener.open(request, timeout=patience.silence_s)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error
        error.close()
        if error.code in _REDIRECTS:
            loop = "infinite loop" in str(error.reason)  # urllib has no other sign for it
            raise HostError("redirects in circles" if loop else "sends on to what is not followed") from None
        raise HostError(f"answers {error.code} {error.reason}".rstrip(), passing=error.code in _PASSING) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreachable(error, patience) from None


def _unreachable(error: Exception, patience: Patience) -> HostError:
    """In a few words what kept a reply from coming."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ValueError | http.client.InvalidURL):
        return HostError(f"is no address ({cause})")
    if isinstance(cause, socket.gaierror):
        return HostError("its name is not known here: no network, or the host is gone")
    if isinstance(cause, TimeoutError):
        return HostError(f"does not answer within {patience.silence_s:g} s")
    if isinstance(cause, ConnectionRefusedError):
        return HostError("refuses connections")
    if isinstance(cause, ConnectionError | http.client.HTTPException):
        return HostError("breaks the connection off", passing=True)
    return HostError(f"cannot be reached ({getattr(cause, 'strerror', None) or cause})")


def _extent(reply: Any, remote: RemoteFile, have: int) -> tuple[int, int | None]:
    """Where in the file the reply's bytes begin, and how many the file has."""
    if (reply.headers.get_content_type() or "") == "text/html":
        raise HostError("answers with a web page")
    begin, total = 0, None
    if reply.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", reply.headers.get("Content-Range", "").strip())
        if match is None or int(match[1]) != have:
            raise HostError("answers with another part than asked for")
        begin, total = have, None if match[2] == "*" else int(match[2])
    elif (length := reply.headers.get("Content-Length", "")).isdecimal():
        total = int(length)
    if remote.size is not None and total not in (None, remote.size):
        raise HostError(f"has {total:,} bytes where {remote.size:,} belong")
    if (total or 0) > remote.most:
        raise HostError(f"has {total:,} bytes, of which {remote.most:,} are allowed")
    if total is None and remote.size is None and not remote.pinned:
        raise HostError("does not say how long its file is, so that a part could pass for all of it")
    return begin, total if total is not None else remote.size


def _receive(
    reply: Any,
    part: Path,
    begin: int,
    total: int | None,
    remote: RemoteFile,
    patience: Patience,
    progress: Progress | None,
) -> None:
    """Write what comes behind the first ``begin`` bytes of ``part``."""
    done = since_done = begin
    since = time.monotonic()
    try:
        file = open(part, "r+b" if begin else "wb")  # noqa: SIM115
    except OSError as error:
        raise _unwritten(part, error) from error
    with file:
        file.seek(begin)
        while block := _read(reply, patience):
            done += len(block)
            if done > (total or remote.most):
                raise HostError("sends more than it should")
            try:
                file.write(block)
            except OSError as error:
                raise _unwritten(part, error) from error
            if progress is not None:
                progress(done, total or 0)
            now = time.monotonic()
            if now - since >= patience.window_s:
                if done - since_done < patience.slowest * (now - since):
                    raise HostError("has nearly stopped sending", passing=True)
                since, since_done = now, done
    if total is not None and done < total:
        raise HostError(f"breaks off after {done:,} of {total:,} bytes", passing=True)


def _read(reply: Any, patience: Patience) -> bytes:
    """What has come, at most a block; empty at the end."""
    try:
        return reply.read1(_BLOCK)
    except TimeoutError:
        raise HostError(f"has sent nothing for {patience.silence_s:g} s", passing=True) from None
    except (OSError, http.client.HTTPException):
        raise HostError("breaks the connection off", passing=True) from None


def _unwritten(part: Path, error: OSError) -> UserError:
    return UserError(f"{part} cannot be written ({error.strerror}): what has come stays, the same command continues")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _whole(content_range: str | None) -> int | None:
    """The file's size in ``bytes */N``."""
    match = re.fullmatch(r"bytes \*/(\d+)", (content_range or "").strip())
    return int(match[1]) if match else None


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _keep_note(part: Path, url: str, reply: Any) -> None:
    etag = reply.headers.get("ETag", "")
    mark = etag if etag.startswith('"') else reply.headers.get("Last-Modified")  # a weak ETag (W/…) does not do
    try:
        _note(part).write_text(json.dumps({"url": url, "mark": mark}), encoding="utf-8")
    except OSError as error:
        raise _unwritten(part, error) from error


def _mark(part: Path, url: str) -> str | None:
    """The mark of the file that ``part`` is the beginning of, if it came from ``url``."""
    try:
        note = read_json(_note(part))
    except (OSError, ValueError):
        return None
    mark = note.get("mark") if isinstance(note, dict) and note.get("url") == url else None
    return mark if isinstance(mark, str) and mark.isprintable() else None
