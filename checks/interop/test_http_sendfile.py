"""Large parts of files over HTTP, which are sent without a copy: beside small ones on one connection, together, interrupted, and of
files that change."""

import hashlib
import http.client
import socket

import pytest

import peers
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


def ranges():
    yield from ((0, len(CONTENT)), (0, 1), (7, 7 + 256 * 1024), (7, 6 + 256 * 1024), (4096, 3 * MIB + 5), (len(CONTENT) - MIB, len(CONTENT)), (100, 200))


def test_parts_of_all_sizes_on_one_connection(web):
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
        for _ in range(30):
            with socket.create_connection(("localhost", web.port)) as connection:
                connection.sendall(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n")
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
