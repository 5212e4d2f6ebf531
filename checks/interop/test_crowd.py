"""Many clients: floods of logins, ten thousand idle connections, and exhausted descriptors."""

import resource

import pytest

import raw
from codes import ErrorCode
from raw import Closed, Connection
from tools import pattern, wait_until

KIB = 1024
IDLE = 10_000
# Maximum memory of an idle connection in the server. The goal is below 1 KiB; the allocator of a
# test build and rounding by the kernel add to it.
IDLE_BYTES_MAX = 4 * KIB


def raise_limit(wanted):
    """Allows this process `wanted` descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))


def limit_descriptors(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_flood_of_logins(serve):
    """Thousands of logins and disconnects: their memory is freed."""
    server = serve()
    path = server.tree / "file"
    path.write_bytes(pattern(1000))
    with Connection(server) as witness:
        for _ in range(50):
            Connection(server).close_socket()
        witness.ping()
        memory, descriptors = server.memory(), server.descriptors()
        for number in range(3000):
            connection = Connection(server, user=f"u{number}", pid=number)
            if number % 3 == 0:
                connection.open("/file")
            connection.vanish() if number % 2 else connection.close_socket()
        witness.ping()
        for _ in range(1000):
            if server.descriptors() <= descriptors + 5:
                break
            witness.ping()
        assert server.descriptors() <= descriptors + 5
        assert server.memory() < memory + 32 * KIB * KIB


def test_ten_thousand_idle_connections(serve):
    """All logged in. The next one is served as before, and memory stays in proportion."""
    raise_limit(IDLE + 1000)
    server = serve(limits=lambda: raise_limit(IDLE + 1000))
    (server.tree / "file").write_bytes(pattern(1000))
    crowd = []
    try:
        for number in range(100):
            crowd.append(Connection(server))
        before = server.memory()
        while len(crowd) < IDLE:
            crowd.append(Connection(server))
        with Connection(server) as connection:
            handle = connection.open("/file")
            assert connection.read(handle, 0, 1000) == pattern(1000)
        grown = server.memory() - before
        assert grown < (IDLE - 100) * IDLE_BYTES_MAX, f"{grown / (IDLE - 100):.0f} bytes each"
        for connection in crowd[::100]:
            connection.ping()
    finally:
        for connection in crowd:
            connection.close_socket()
    with Connection(server) as connection:
        while server.descriptors() > 200:
            connection.ping()


def test_ten_thousand_connections_that_say_nothing(serve):
    """Not even the handshake."""
    raise_limit(IDLE + 1000)
    server = serve(limits=lambda: raise_limit(IDLE + 1000))
    crowd = []
    try:
        while len(crowd) < IDLE:
            crowd.append(Connection(server, login=False))
        with Connection(server) as connection:
            connection.ping()
    finally:
        for connection in crowd:
            connection.close_socket()


def test_no_descriptors_left(serve):
    """New clients are refused or wait. Present ones continue; even an open fails with an error and
    keeps the connection. Afterwards all are served."""
    server = serve(limits=limit_descriptors(128))
    (server.tree / "file").write_bytes(pattern(1000))
    crowd = []
    with Connection(server) as old:
        handle = old.open("/file")
        refused = 0
        for _ in range(300):
            try:
                connection = Connection(server, login=False, timeout=0.5)
                crowd.append(connection)
                connection.hello()
                connection.login()
            except (Closed, OSError, TimeoutError):
                refused += 1
                if refused > 20:
                    break
        assert refused > 0
        for _ in range(100):
            assert old.read(handle, 0, 1000) == pattern(1000)
        try:
            old.close(old.open("/file"))
        except raw.Failed as failed:
            assert failed.code in (ErrorCode.FS_ERROR, ErrorCode.IO_ERROR, ErrorCode.NO_MEMORY, ErrorCode.OVERLOADED), failed
        assert server.alive()
        for connection in crowd:
            connection.close_socket()
        assert old.read(handle, 0, 1000) == pattern(1000)
        until_served(server, "/file", pattern(1000))


def until_served(server, path: str, content: bytes) -> None:
    """A new client is served as soon as the server has closed the previous connections, which may
    take a moment."""
    def served() -> bool:
        try:
            with Connection(server, timeout=5) as fresh:
                return fresh.read(fresh.open(path), 0, len(content)) == content
        except (Closed, OSError, raw.Failed):
            return False

    wait_until(served, 60)


def test_too_many_files_of_one_client(serve):
    """A client that opens all available files gets an error, and others are served."""
    server = serve(limits=limit_descriptors(256))
    for number in range(300):
        (server.tree / f"file{number}").write_bytes(pattern(10))
    with Connection(server) as other, Connection(server) as greedy:
        handle = other.open("/file0")
        with pytest.raises(raw.Failed):
            for number in range(300):
                greedy.open(f"/file{number}")
        assert other.read(handle, 0, 10) == pattern(10)
        greedy.ping()
    until_served(server, "/file1", pattern(10))
