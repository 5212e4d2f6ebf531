"""Large parts of files over HTTP, which are sent without a copy: beside small ones on one connection, together, interrupted, and of
files that change."""

import ctypes
import errno
import hashlib
import http.client
import os
import socket

import pytest

import peers
from test_metrics import scrape
from tools import data, wait_until

MIB = 1 << 20
SETTINGS = peers.SETTINGS + "xrd.protocol http *\nscalla.http metrics\n"
CONTENT = data(5 * MIB + 12_345)
SECONDS = 60 * peers.SLOWNESS


@pytest.fixture(scope="module", params=["", "xrootd.async nosf\n"], ids=["sendfile", "nosf"])
def web(request):
    with peers.Ours(settings=SETTINGS + request.param) as web:
        peers.place(web.tree / "f", CONTENT)
        yield web


def tells_what_is_in_memory():
    """Reports whether the system has the call (cachestat) without which nothing is sent so."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(451, -1, None, None, 0) == -1 and ctypes.get_errno() != errno.ENOSYS


def sent_by_sendfile(web):
    return scrape(web.port)["scalla_http_sendfile_bytes_total"]


def ranges():
    yield from ((0, len(CONTENT)), (0, 1), (7, 7 + 256 * 1024), (7, 6 + 256 * 1024), (4096, 3 * MIB + 5), (len(CONTENT) - MIB, len(CONTENT)), (100, 200))


def test_parts_of_all_sizes_on_one_connection(web):
    before = sent_by_sendfile(web)
    connection = http.client.HTTPConnection("localhost", web.port, timeout=SECONDS)
    for _ in range(3):
        for begin, end in ranges():
            connection.request("GET", "/f", headers={"Range": f"bytes={begin}-{end - 1}"})
            reply = connection.getresponse()
            assert reply.status == 206 and reply.read() == CONTENT[begin:end], (begin, end)
        connection.request("GET", "/f")
        reply = connection.getresponse()
        assert reply.status == 200 and reply.read() == CONTENT
        connection.request("HEAD", "/f")
        reply = connection.getresponse()
        assert int(reply.getheader("Content-Length")) == len(CONTENT) and reply.read() == b""
    connection.close()
    is_expected = "nosf" not in web.settings and tells_what_is_in_memory()
    assert (sent_by_sendfile(web) - before >= 3 * len(CONTENT)) == is_expected


def test_requests_that_are_sent_together(web):
    """The replies come whole and in order, also if the reader takes them in small pieces, and with the begin of a further one."""
    wanted = [*ranges()]
    heads = [f"GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={begin}-{end - 1}\r\n\r\n".encode() for begin, end in wanted]
    with socket.create_connection(("localhost", web.port), timeout=SECONDS) as connection:
        connection.sendall(b"".join(heads) + heads[0][:30])
        with connection.makefile("rb", buffering=1000) as replies:
            for begin, end in wanted:
                assert body(replies) == CONTENT[begin:end], (begin, end)
            connection.sendall(heads[0][30:])
            assert body(replies) == CONTENT


def body(replies):
    """Reads a reply and returns its body."""
    assert replies.readline() == b"HTTP/1.1 206 Partial Content\r\n"
    length = 0
    while (line := replies.readline()) != b"\r\n":
        name, value = line.split(b":", 1)
        if name.lower() == b"content-length":
            length = int(value)
    return replies.read(length)


def test_more_requests_together_than_one_buffer_holds(web):
    """Small and large ones, and a file that is written between them: no byte is lost where one reply ends."""
    small, large = ([b"GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=%d-%d\r\nX: %s\r\n\r\n" % (part[0], part[1] - 1, b"y" * 500)
                     for part in parts] for parts in (((0, 10), (5, 9)), ((7, 7 + 300_000), (9, 9 + 400_000))))
    put = b"PUT /new HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n" + CONTENT[:20_000]
    sent = b"".join(20 * small + large + 20 * small + [large[0], put, large[1]])
    wanted = 20 * [(0, 10), (5, 9)] + [(7, 300_007), (9, 400_009)] + 20 * [(0, 10), (5, 9)] + [(7, 300_007)]
    with socket.create_connection(("localhost", web.port), timeout=SECONDS) as connection:
        connection.sendall(sent)
        with connection.makefile("rb", buffering=1000) as replies:
            for begin, end in wanted:
                assert body(replies) == CONTENT[begin:end], (begin, end)
            assert replies.readline() == b"HTTP/1.1 201 Created\r\n"
            while replies.readline() != b"\r\n":
                pass
            assert replies.read(3) == b":-)" and body(replies) == CONTENT[9:400_009]
    assert (web.tree / "new").read_bytes() == CONTENT[:20_000]
    (web.tree / "new").unlink()


@pytest.mark.parametrize("size", [100, 20_000])
@pytest.mark.parametrize("length", [b"Content-Length: %d\r\n", b"Content-Length: %d\r\nExpect: 100-continue\r\n"])
def test_the_body_of_a_request_is_no_request(web, size, length):
    """It is sent when the reply has begun, and holds what looks like a request."""
    peers.place(web.tree / "victim", b"here")
    hidden = b"DELETE /victim HTTP/1.1\r\nHost: h\r\nX: " 
    hidden += b"z" * (size - len(hidden) - 4) + b"\r\n\r\n"
    with socket.create_connection(("localhost", web.port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /f HTTP/1.1\r\nHost: h\r\n" + length % size + b"\r\n")
        received = connection.recv(1000)
        connection.sendall(hidden)
        try:
            while more := connection.recv(1 << 20):
                received += more
                if len(received) > len(CONTENT) and received.endswith(CONTENT[-100:]):
                    connection.shutdown(socket.SHUT_WR)
        except ConnectionResetError:
            pass
    assert received.count(b"HTTP/1.1 ") - received.count(b"HTTP/1.1 100") == 1
    assert (web.tree / "victim").read_bytes() == b"here"


def test_files_that_are_not_in_memory(web):
    """The disk is read ahead by others, and every byte is right, also if the begin is in memory."""
    path = web.tree / "cold"
    content = data(32 * MIB, seed=2)
    for kept in (0, 3 * MIB, 8 * MIB + 17):
        peers.place(path, content)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), kept, 0, os.POSIX_FADV_DONTNEED)
        connection = http.client.HTTPConnection("localhost", web.port, timeout=SECONDS)
        for begin in (0, 1 * MIB + 3):
            connection.request("GET", "/cold", headers={"Range": f"bytes={begin}-"})
            assert connection.getresponse().read() == content[begin:], (kept, begin)
        connection.close()
    path.unlink()


@pytest.mark.parametrize("head", [b"GET /f HTTP/1.0\r\n\r\n", b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"])
def test_a_connection_that_is_to_end_ends(web, head):
    with socket.create_connection(("localhost", web.port), timeout=SECONDS) as connection:
        connection.sendall(head)
        received = b""
        while more := connection.recv(1 << 20):
            received += more
    assert received.split(b"\r\n\r\n", 1)[1] == CONTENT


def test_clients_that_leave_in_the_middle_free_everything(web):
    with socket.create_connection(("localhost", web.port)) as first:
        first.sendall(b"HEAD /f HTTP/1.1\r\nHost: h\r\n\r\n")
        assert first.recv(4096).startswith(b"HTTP/1.1 200 ")
        before = web.descriptors()
        peers.place(web.tree / "huge", data(MIB) * 64)
        for _ in range(30):
            with socket.create_connection(("localhost", web.port)) as connection:
                connection.sendall(b"GET /huge HTTP/1.1\r\nHost: h\r\n\r\n")
                assert connection.recv(1000)
        wait_until(lambda: web.descriptors() <= before)


def test_a_file_that_becomes_shorter_is_not_whole(web):
    """The connection ends, so that the client does not take what came for the file."""
    peers.place(web.tree / "shrinks", data(64 * MIB))
    with socket.create_connection(("localhost", web.port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /shrinks HTTP/1.1\r\nHost: h\r\n\r\n")
        received = len(connection.recv(1000))
        with open(web.tree / "shrinks", "r+b") as file:
            file.truncate(MIB)
        try:
            while more := connection.recv(1 << 20):
                received += len(more)
        except ConnectionResetError:
            pass
        assert received < 64 * MIB
    (web.tree / "shrinks").unlink()


def test_many_readers_at_once(web):
    """Each gets its own bytes."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    connections = [socket.create_connection(("localhost", web.port), timeout=SECONDS) for _ in range(40)]
    for connection in connections:
        connection.sendall(b"GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=0-\r\n\r\n")
    for connection in connections:
        with connection, connection.makefile("rb") as replies:
            assert hashlib.sha256(body(replies)).hexdigest() == digest
