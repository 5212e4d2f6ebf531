"""Idle connections of HTTP: their memory and number, and requests on them that come late, in pieces or together."""

import socket

import pytest

import peers
from test_crowd import raise_limit
from test_metrics import scrape
from tools import data, wait_until

SETTINGS = peers.SETTINGS + "xrd.protocol http *\nscalla.http metrics\n"
NUMBER = 4000
# One host may have a quarter of the connections.
HOSTS = 8
# The allocator of a test build and rounding by the kernel add to what a connection needs.
BYTES_MAX = 4 * 1024
REQUEST = b"GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=1-3\r\n\r\n"
CONTENT = data(100)


@pytest.fixture(scope="module")
def ours():
    raise_limit(2 * NUMBER + 2000)
    with peers.Ours(settings=SETTINGS) as server:
        peers.place(server.tree / "f", CONTENT)
        yield server


def connect(server, host=1):
    return socket.create_connection(("127.0.0.1", server.port), timeout=peers.SLOWNESS * 60, source_address=(f"127.0.2.{host}", 0))


def reply(connection, number=1):
    """Reads the replies to requests."""
    received = b""
    while received.count(b"\r\n\r\n" + CONTENT[1:4]) < number:
        more = connection.recv(4096)
        assert more, received
        received += more
    assert received.count(b"HTTP/1.1 206 ") == number and received.endswith(b"\r\n\r\n" + CONTENT[1:4]), received


def idle(server):
    return scrape(server.port)["scalla_http_idle_connections"]


def rest(server, connections):
    """Waits until all connections are idle."""
    wait_until(lambda: idle(server) >= len(connections))


def test_thousands_of_idle_connections(ours):
    crowd = []
    try:
        before = 0
        while len(crowd) < NUMBER:
            for _ in range(500):
                connection = connect(ours, host=len(crowd) % HOSTS)
                connection.sendall(REQUEST)
                reply(connection)
                crowd.append(connection)
            rest(ours, crowd)
            before = before or ours.memory()
        grown = (ours.memory() - before) / (NUMBER - 500)
        print(f"{grown:.0f} bytes each")
        assert grown < BYTES_MAX
        for connection in crowd[::50]:
            connection.sendall(REQUEST)
            reply(connection)
    finally:
        for connection in crowd:
            connection.close()
    wait_until(lambda: idle(ours) == 0)


def ask(server, connection):
    """Sends a request, and waits until all connections but those with half a request are idle, this one again."""
    connection.sendall(REQUEST)
    reply(connection)
    wait_until(lambda: idle(server) == 3)


def test_requests_in_pieces_on_idle_connections(ours):
    with connect(ours) as whole, connect(ours) as pieces, connect(ours) as other, connect(ours) as witness:
        everybody = (whole, pieces, other, witness)
        for connection in everybody:
            connection.sendall(REQUEST)
            reply(connection)
        rest(ours, everybody)
        pieces.sendall(REQUEST[:20])
        wait_until(lambda: idle(ours) == 3)
        # Each of these takes as long as an idle connection needs to be counted as such.
        for _ in range(2):
            ask(ours, witness)
        pieces.sendall(REQUEST[20:])
        reply(pieces)
        rest(ours, everybody)
        # Two at once, and the begin of a third.
        other.sendall(2 * REQUEST + REQUEST[:-2])
        reply(other, 2)
        for _ in range(2):
            ask(ours, witness)
        other.sendall(REQUEST[-2:])
        reply(other)
        rest(ours, everybody)


def test_idle_connections_do_not_hold_the_end():
    with peers.Ours(settings=SETTINGS) as server:
        peers.place(server.tree / "f", CONTENT)
        connections = [connect(server) for _ in range(20)]
        for connection in connections:
            connection.sendall(REQUEST)
            reply(connection)
        rest(server, connections)
        assert server.stop() == 0 and "before their requests had ended" not in server.output()
        for connection in connections:
            assert connection.recv(1) == b""
            connection.close()


def test_clients_that_leave_are_not_refused(ours):
    connections = [connect(ours) for _ in range(5)]
    for connection in connections:
        connection.sendall(REQUEST)
        reply(connection)
    rest(ours, connections)
    before = scrape(ours.port)['scalla_refused_connections_total{reason="http_limit"}']
    for connection in connections:
        connection.close()
    wait_until(lambda: idle(ours) == 0)
    assert scrape(ours.port)['scalla_refused_connections_total{reason="http_limit"}'] == before
