"""Third-party copies over HTTP that receive a file on several connections (`X-Number-Of-Streams`)."""

import re
import resource
import threading
from pathlib import Path

import pytest

import peers
from test_http_copies import SECONDS, OurCopies, Remote, authority, hasty, order, ours, other, place, remote, send, theirs
from tools import pattern, run, wait_until

__all__ = ["authority", "hasty", "ours", "other", "remote", "theirs"]

CONTENT = pattern(20_000_003)
SUM = "Digest: adler32="


@pytest.fixture(scope="module")
def adler(tmp_path_factory):
    path = tmp_path_factory.mktemp("sum") / "f"
    path.write_bytes(CONTENT)
    return run([peers.link("xrdadler32"), path]).ok().out.split()[0]


class Source:
    """The replies of a remote server with a file that has an entity tag. Ranges can differ from it."""

    def __init__(self, remote, tag='"v1"', ranges=None):
        self.tag, self.ranges, self.asked, self.lock = tag, ranges, [], threading.Lock()
        remote.replies["/f"] = self.reply

    def reply(self, handler):
        asked = handler.headers.get("Range")
        with self.lock:
            self.asked.append((asked, handler.headers.get("If-Match"), handler.headers.get("Authorization")))
        if asked and self.ranges:
            return self.ranges(handler, asked)
        tag = f"ETag: {self.tag}\r\n" if self.tag else ""
        first, last, status = 0, len(CONTENT) - 1, "200 OK"
        if asked:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups())
            status = f"206 Partial Content\r\nContent-Range: bytes {first}-{last}/{len(CONTENT)}"
        send(handler, f"HTTP/1.1 {status}\r\n{tag}Content-Length: {last + 1 - first}\r\n\r\n".encode(),
             CONTENT[first:last + 1] if handler.command == "GET" else b"")

    def stripes(self):
        return sorted(tuple(map(int, re.findall(r"\d+", asked))) for asked, *_ in self.asked if asked)


def pull(server, name, source, streams, *headers):
    return order(server, f"/{name}", f"Source: {source}", f"X-Number-Of-Streams: {streams}", *headers)


def is_whole(server, name):
    file = server.tree / name
    whole = file.read_bytes() == CONTENT
    file.unlink()
    return whole


@pytest.mark.parametrize("kind", ["other", "theirs"])
@pytest.mark.parametrize("scheme", ["http", "root"])
def test_files_arrive_whole_from_real_servers(request, ours, adler, kind, scheme):
    source = request.getfixturevalue(kind)
    peers.place(source.tree / "long", CONTENT)
    url = f"{source.origin}/long" if scheme == "http" else f"root://localhost:{source.port}//long"
    for headers in ([], [f"{SUM}{adler}"]):
        status, lines = pull(ours, "striped", url, 5, *headers)
        assert (status, lines[-1]) == (202, "success: Created"), lines
        assert f"Stripe Bytes Transferred: {len(CONTENT)}" in lines
        assert is_whole(ours, "striped")


def test_each_connection_receives_its_stripe(ours, remote, adler):
    for wanted, number in ((1, 1), (2, 2), (5, 5), (1000, 7)):
        source = Source(remote)
        status, lines = pull(ours, "striped", f"{remote.origin}/f", wanted, f"{SUM}{adler}", "TransferHeaderAuthorization: Bearer secret")
        assert lines[-1] == "success: Created" and is_whole(ours, "striped"), lines
        stripes = source.stripes()
        assert len(stripes) == number - 1
        # The first connection was asked for the whole file; the others continue each other.
        ends = [last + 1 for _, last in stripes]
        assert [first for first, _ in stripes[1:]] == ends[:-1] and ends[-1:] in ([], [len(CONTENT)])
        assert {tag for asked, tag, _ in source.asked if asked} <= {'"v1"'}
        assert {secret for *_, secret in source.asked} == {"Bearer secret"}


def test_one_connection_where_versions_cannot_be_told_apart(ours, remote, adler):
    for tag in (None, 'W/"v1"'):
        source = Source(remote, tag)
        status, lines = pull(ours, "striped", f"{remote.origin}/f", 4)
        assert lines[-1] == "success: Created" and is_whole(ours, "striped"), lines
        assert source.stripes() == []
        # A checksum of the whole file tells them apart.
        status, lines = pull(ours, "striped", f"{remote.origin}/f", 4, f"{SUM}{adler}")
        assert lines[-1] == "success: Created" and is_whole(ours, "striped"), lines
        assert len(source.stripes()) == 3


@pytest.mark.parametrize("ranges", [
    lambda handler, asked: send(handler, b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"),
    lambda handler, asked: send(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 20000003\r\n\r\n"),
    lambda handler, asked: send(handler, b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/20000003\r\nContent-Length: 10\r\n\r\n", b"0123456789"),
    lambda handler, asked: send(handler, f"HTTP/1.1 206 X\r\nETag: \"v2\"\r\nContent-Range: {asked.replace('=', ' ')}/20000003\r\nTransfer-Encoding: chunked\r\n\r\n".encode()),
    lambda handler, asked: send(handler, b"nonsense\r\n\r\n"),
], ids=["changed", "whole", "another range", "another version", "no HTTP"])
def test_a_source_without_such_ranges_sends_all_on_one_connection(ours, remote, ranges):
    source = Source(remote, ranges=ranges)
    status, lines = pull(ours, "striped", f"{remote.origin}/f", 3)
    assert lines[-1] == "success: Created" and is_whole(ours, "striped"), lines
    assert source.stripes()


def part(asked, *pieces, length=None):
    first, last = map(int, re.findall(r"\d+", asked))
    head = f"HTTP/1.1 206 X\r\nETag: \"v1\"\r\nContent-Range: bytes {first}-{last}/{len(CONTENT)}\r\n"
    return (head + (f"Content-Length: {last + 1 - first}\r\n\r\n" if length is None else length)).encode()


def stall(handler, asked):
    send(handler, part(asked), b"a" * 1000)
    handler.rfile.read(1)


@pytest.mark.parametrize("ranges", [
    lambda handler, asked: send(handler, part(asked), b"a" * 1000),
    lambda handler, asked: send(handler, part(asked, length="Transfer-Encoding: chunked\r\n\r\n"), b"5\r\nhello\r\n0\r\n\r\n"),
    lambda handler, asked: send(handler, part(asked, length="Transfer-Encoding: chunked\r\n\r\n"), b"800000\r\n" + b"a" * 0x800000 + b"\r\n0\r\n\r\n"),
    stall,
], ids=["lost", "short", "long", "stall"])
def test_a_stripe_that_does_not_arrive_whole_fails_the_copy(hasty, remote, ranges):
    Source(remote, ranges=ranges)
    status, lines = pull(hasty, "striped", f"{remote.origin}/f", 3)
    assert lines[-1].startswith("failure: ") and not (hasty.tree / "striped").exists(), lines


def test_a_wrong_stripe_is_noticed_by_the_checksum(ours, remote, adler):
    def other_bytes(handler, asked):
        first, last = map(int, re.findall(r"\d+", asked))
        send(handler, part(asked), b"a" * (last + 1 - first))

    Source(remote, tag=None, ranges=other_bytes)
    status, lines = pull(ours, "striped", f"{remote.origin}/f", 3, f"{SUM}{adler}")
    assert lines[-1].startswith("failure: ") and "checksum" in lines[-1] and not (ours.tree / "striped").exists(), lines


def test_wrong_numbers_of_streams(ours, other):
    for number in ("0", "-1", "many", "1,2"):
        status, lines = pull(ours, "striped", f"{other.origin}/small", number)
        assert status == 400 and not (ours.tree / "striped").exists(), (number, lines)


def test_connections_are_given_back():
    """Many copies with several connections each, more than descriptors are there for at once."""
    with OurCopies(limits=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))) as server, Remote() as remote:
        place(server)
        Source(remote)
        held = threading.Semaphore(0)

        def one(index):
            for _ in range(20):
                status, lines = pull(server, f"many-{index}", f"{remote.origin}/f", 8)
                if lines and lines[-1] == "success: Created":
                    held.release()
                    return

        threads = [threading.Thread(target=one, args=(index,)) for index in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * SECONDS)
        assert all(held.acquire(timeout=0) for _ in threads)
        assert all((server.tree / f"many-{index}").read_bytes() == CONTENT for index in range(12))
        wait_until(lambda: len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < 100)


def test_our_client_asks_for_its_number_of_streams(ours, remote):
    for options, number in (([], 0), (["-S", 3], 3)):
        source = Source(remote)
        run([peers.link("xrdcp"), "-f", *options, "--tpc", "only", f"{remote.origin}/f", f"{ours.origin}/striped"]).ok()
        assert is_whole(ours, "striped") and len(source.stripes()) == number
