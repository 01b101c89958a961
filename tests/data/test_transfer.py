"""One file from a host with faults."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_host import Host, file_host

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.download import transfer
from fedscale_ext.data.download.transfer import HostError, Patience, RemoteFile, fetch

DATA = bytes(range(256)) * 20_000  # 5 MB
HASTY = Patience(tries=3, pause_s=0.01)  # else as it is: a busy machine is no stalled host


@pytest.fixture
def host() -> Iterator[Host]:
    with file_host() as serving:
        yield serving


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / ".file.part"


def remote_file(url: str, size: int | None = len(DATA), most: int = 1 << 30, pinned: bool = True) -> RemoteFile:
    return RemoteFile(url, size, most, pinned)


def begun(part: Path, url: str, share: int, mark: str | None = '"v1"') -> None:
    note = part.with_name(part.name + ".json")
    part.write_bytes(DATA[:share])
    note.unlink(missing_ok=True)
    if mark is not None:
        note.write_text(json.dumps({"url": url, "mark": mark}))


def test_a_whole_file_with_its_progress(host: Host, part: Path) -> None:
    progress: list[tuple[int, int]] = []
    fetch(remote_file(host.put("a", DATA)), part, HASTY, lambda done, total: progress.append((done, total)))
    assert part.read_bytes() == DATA
    assert progress[-1] == (len(DATA), len(DATA)) and progress == sorted(progress)


def test_a_begun_file_is_continued_and_only_the_rest_is_asked_for(host: Host, part: Path) -> None:
    url = host.put("a", DATA)
    begun(part, url, 3_000_000)
    fetch(remote_file(url, pinned=False), part, HASTY)
    assert part.read_bytes() == DATA
    assert host.requests == [("/a", "bytes=3000000-", '"v1"')]


def test_breaks_are_continued_as_long_as_it_gets_forth(host: Host, part: Path) -> None:
    url = host.put("a", DATA, cuts=[1_200_000] * 4)  # more breaks than tries
    fetch(remote_file(url), part, HASTY)
    assert part.read_bytes() == DATA
    assert len(host.requests) == 5 and host.requests[1][1] == "bytes=1200000-"


def test_without_ranges_it_begins_anew(host: Host, part: Path) -> None:
    url = host.put("a", DATA, ranges=False)
    begun(part, url, 3_000_000)
    fetch(remote_file(url), part, HASTY)
    assert part.read_bytes() == DATA


def test_without_ranges_and_always_cut_off_it_ends(host: Host, part: Path) -> None:
    url = host.put("a", DATA, ranges=False, cuts=[2_000_000] * 50)
    with pytest.raises(HostError, match="breaks off after 2,000,000 of 5,120,000 bytes"):
        fetch(remote_file(url), part, HASTY)
    assert len(host.requests) <= 4
    assert part.stat().st_size == 2_000_000


def test_a_file_that_changed_meanwhile_is_not_glued_together(host: Host, part: Path) -> None:
    url = host.put("a", DATA[::-1], etag='"v2"')
    begun(part, url, 3_000_000)
    fetch(remote_file(url, pinned=False), part, HASTY)
    assert part.read_bytes() == DATA[::-1]


def test_what_nothing_would_tell_apart_begins_anew(host: Host, part: Path) -> None:
    url = host.put("a", DATA)
    begun(part, url, 3_000_000, mark=None)
    fetch(remote_file(url, pinned=False), part, HASTY)
    assert host.requests == [("/a", None, None)]
    begun(part, url, 3_000_000, mark=None)  # a checksum would
    fetch(remote_file(url, pinned=True), part, HASTY)
    assert host.requests[1:] == [("/a", "bytes=3000000-", None)]
    assert part.read_bytes() == DATA


def test_a_file_that_was_complete_is(host: Host, part: Path) -> None:
    url = host.put("a", DATA)
    begun(part, url, len(DATA))
    fetch(remote_file(url), part, HASTY)
    assert not host.requests
    fetch(remote_file(url, size=None), part, HASTY)  # its size is the host's to say
    assert part.read_bytes() == DATA and len(host.requests) == 1


def test_a_part_of_another_place_is_refused(host: Host, part: Path) -> None:
    url = host.put("a", DATA, wrong_range=True)
    begun(part, url, 3_000_000)
    with pytest.raises(HostError, match="another part than asked for"):
        fetch(remote_file(url), part, HASTY)
    assert part.read_bytes() == DATA[:3_000_000]


@pytest.mark.parametrize("status", [503, 429])
def test_a_host_that_is_busy_is_asked_again(host: Host, part: Path, status: int) -> None:
    fetch(remote_file(host.put("a", DATA, statuses=[status, status])), part, HASTY)
    assert part.read_bytes() == DATA


def test_a_host_that_stays_busy_is_given_up(host: Host, part: Path) -> None:
    with pytest.raises(HostError, match="answers 503"):
        fetch(remote_file(host.put("a", DATA, statuses=[503] * 9)), part, HASTY)
    assert len(host.requests) == HASTY.tries


def test_what_is_not_there_is_asked_for_once(host: Host, part: Path) -> None:
    with pytest.raises(HostError, match="answers 404 Not Found"):
        fetch(remote_file(f"{host.address}/nothing"), part, HASTY)
    assert len(host.requests) == 1


def test_silence_and_a_trickle_end(host: Host, part: Path) -> None:
    url = host.put("a", DATA, stalls=600_000)
    with pytest.raises(HostError, match=r"has sent nothing for 1.5 s"):
        fetch(remote_file(url), part, Patience(tries=1, silence_s=1.5))
    assert part.stat().st_size >= 600_000  # what came is kept
    slow = host.put("b", DATA[:200], stalls=0, drips=True)
    with pytest.raises(HostError, match="has nearly stopped sending"):
        fetch(
            remote_file(slow, 200), part.with_name("b"), Patience(tries=1, silence_s=5, slowest=100_000, window_s=0.1)
        )


def test_redirects_are_followed_but_not_in_circles(host: Host, part: Path) -> None:
    host.put("a", DATA)
    url = host.put("moved", b"", to=f"{host.address}/a")
    fetch(remote_file(url), part, HASTY)
    assert part.read_bytes() == DATA
    host.put("one", b"", to="/two")
    url = host.put("two", b"", to="/one")
    with pytest.raises(HostError, match="redirects in circles"):
        fetch(remote_file(url), part.with_name("b"), HASTY)


def test_redirects_to_other_schemes_are_not_followed(host: Host, part: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for target in (f"file://{tmp_path}/secret", "ftp://127.0.0.1/x"):
        with pytest.raises(HostError, match="sends on to what is not followed"):
            fetch(remote_file(host.put("a", b"", to=target)), part, HASTY)
    assert not part.exists()


def test_from_https_to_http_only_with_a_checksum() -> None:
    request = transfer.urllib.request.Request("https://host/a")
    with pytest.raises(HostError, match="from https to http"):
        transfer._Redirects(False).redirect_request(request, None, 302, "", {}, "http://host/a")
    assert transfer._Redirects(True).redirect_request(request, None, 302, "", {}, "http://host/a") is not None


@pytest.mark.parametrize(
    ("how", "size", "pinned", "words"),
    [
        ({"kind": "text/html"}, None, True, "answers with a web page"),
        ({}, 7, True, "has 5,120,000 bytes where 7 belong"),
        ({}, None, True, "has 5,120,000 bytes, of which 1,000,000 are allowed"),
        ({"tells_length": False}, None, True, "sends more than it should"),
        ({"tells_length": False}, None, False, "does not say how long its file is"),
    ],
)
def test_what_cannot_be_the_file_is_refused(
    host: Host, part: Path, how: dict, size: int | None, pinned: bool, words: str
) -> None:
    with pytest.raises(HostError, match=words):
        fetch(remote_file(host.put("a", DATA, **how), size, 1_000_000, pinned), part, HASTY)
    assert not part.exists() or part.stat().st_size <= 1_000_000


def test_hosts_that_cannot_be_reached(part: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HostError, match="refuses connections"):
        fetch(remote_file(f"http://127.0.0.1:{port}/a"), part, HASTY)
    with pytest.raises(HostError, match="is no address"):
        fetch(remote_file("http://a b/c"), part, HASTY)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(HostError, match=r"does not answer within 0.2"),
    ):
        fetch(remote_file(f"http://127.0.0.1:{server.getsockname()[1]}/a"), part, Patience(tries=1, silence_s=0.2))


def test_a_name_that_is_not_known(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(HostError, match="its name is not known here"):
        fetch(remote_file("http://gone.example/a"), part, HASTY)


def test_a_disk_that_cannot_be_written_is_the_users(host: Host, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        fetch(remote_file(host.put("a", DATA)), tmp_path / "no" / "folder", HASTY)
