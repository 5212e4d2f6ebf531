"""A hung partition of a server: requests to it wait, and no others."""

import struct
import tempfile
from pathlib import Path

import pytest

import frozen
import peers
import raw
from codes import ErrorCode

pytestmark = pytest.mark.skipif(not frozen.possible(), reason="file systems in user space can only be mounted by root")

# More than the threads of a server for one file system.
MANY = 80
# All operations that access a name on the disk.
NAMED = {
    "stat": lambda name: (raw.STAT, b"", name),
    "open": lambda name: (raw.OPEN, struct.pack(">HH", 0, raw.O_READ), name),
    "update": lambda name: (raw.OPEN, struct.pack(">HH", 0, raw.O_UPDT), name),
    "create": lambda name: (raw.OPEN, struct.pack(">HH", 0o644, raw.O_NEW | raw.O_UPDT | raw.O_MKPATH), name + ".new"),
    "remove": lambda name: (raw.RM, b"", name),
    "rename": lambda name: (raw.MV, b"", f"{name} {name}.moved"),
    "checksum": lambda name: (raw.QUERY, struct.pack(">H", 3), name),
    "locate": lambda name: (raw.LOCATE, b"", name),
    "truncate": lambda name: (raw.TRUNCATE, bytes(16), name),
    "mode": lambda name: (raw.CHMOD, struct.pack(">14xH", 0o600), name),
    "attributes": lambda name: (raw.FATTR, struct.pack(">4sBBB", b"", 2, 0, 0x10), name + "\0"),
    "list": lambda name: (raw.DIRLIST, struct.pack(">15xB", 2), "/ill"),
}


@pytest.fixture
def disk():
    with frozen.Frozen() as disk:
        yield disk


@pytest.fixture
def well():
    """A directory of the servers' user that it can reach."""
    with tempfile.TemporaryDirectory(prefix="scalla-well-", dir="/var/tmp") as directory:
        peers.give(Path(directory))
        yield directory


@pytest.fixture
def site(disk, well):
    """`/ill` on the disk, `/well` on another partition, which is a directory beside the names."""
    settings = f"""\
{peers.SETTINGS}oss.space well {well}
oss.space ill {disk.directory}
oss.space well assign /well
oss.space ill assign /ill
"""
    with peers.Ours(settings=settings) as server:
        with raw.Connection(server) as client:
            for name in [*(f"/ill/{number}" for number in range(MANY)), "/well/file"]:
                handle = client.create(name)
                client.write(handle, 0, b"content")
                client.close(handle)
        yield server
        # A server that waits for a disk cannot even be killed.
        disk.thaw()


def served(server):
    """Files outside of the disk are served, on each loop of the server."""
    clients = [raw.Connection(server, timeout=30 * peers.SLOWNESS) for _ in range(8)]
    for number, client in enumerate(clients):
        assert client.stat("/well/file")[1] == "7"
        assert client.read(client.open("/well/file"), 0, 100) == b"content"
        new = f"/well/new{client.socket.getsockname()[1]}-{number}"
        client.write(client.create(new), 0, b"new")
        assert client.stat(new)[1] == "3"
        assert b"file" in client.ask(raw.DIRLIST, struct.pack(">15xB", 2), b"/well")
        client.ask(raw.RM, b"", new.encode())
        assert client.error(raw.STAT, bytes(16), b"/well/none") == ErrorCode.NOT_FOUND
    for client in clients:
        client.close_socket()


def hanging(server, question):
    """Opens connections with many such requests, which are not answered."""
    clients = [raw.Connection(server) for _ in range(8)]
    asked = []
    for number in range(MANY):
        client = clients[number % len(clients)]
        code, body, payload = question(f"/ill/{number}")
        asked.append((client, client.start(code, body, payload.encode())))
    return clients, asked


def answered(asked, *statuses):
    """Waits until each of these requests has an answer of these kinds."""
    left = set(asked)
    while left:
        client = next(iter(left))[0]
        frame = client.answer()
        if frame.status in statuses:
            left.discard((client, frame.stream))


@pytest.mark.parametrize("question", NAMED)
def test_names_on_a_hung_disk(site, disk, question):
    disk.freeze()
    clients, asked = hanging(site, NAMED[question])
    served(site)
    threads = peers.process_status(site.process.pid, "Threads")
    assert threads < 100, f"{threads} threads"
    disk.thaw()
    # Some are first asked to wait.
    answered(asked, raw.OK, raw.ERROR, raw.WAIT)
    served(site)
    for client in clients:
        client.close_socket()


def test_files_on_a_hung_disk(site, disk):
    """Reading, writing, status, closing, and clients that disconnect."""
    clients = [raw.Connection(site) for _ in range(16)]
    files = [(client, client.open(f"/ill/{number}", raw.O_UPDT if number % 2 else raw.O_READ)) for number, client in enumerate(clients)]
    idle = [raw.Connection(site) for _ in range(16)]
    for number, client in enumerate(idle):
        client.open(f"/ill/{16 + number}")
    disk.freeze()
    requests = []
    for client, handle in files:
        requests.append((client, client.start(raw.STAT, struct.pack(">B11x4s", 0, handle))))
        requests.append((client, client.start(raw.READ, struct.pack(">4sqi", handle, 0, 100))))
        requests.append((client, client.start(raw.PGREAD, struct.pack(">4sqi", handle, 0, 100))))
        requests.append((client, client.start(raw.SYNC, handle)))
    served(site)
    for client, handle in files:
        requests.append((client, client.start(raw.CLOSE, handle)))
    served(site)
    for client in idle:
        client.vanish()
    served(site)
    disk.thaw()
    answered(requests, raw.OK, raw.ERROR, raw.STATUS)
    served(site)
    for client in clients:
        client.close_socket()


def test_names_on_a_hung_disk_beside_partitions(disk, well):
    """It is mounted among the names."""
    (disk.backing / "file").write_text("content")
    (disk.work / "well").mkdir()
    peers.give(disk.work / "well")
    settings = f"{peers.SETTINGS}oss.space well {well}\noss.space well assign /well\n"
    with peers.Ours(settings=settings, tree=disk.work) as server:
        with raw.Connection(server) as client:
            client.write(client.create("/well/file"), 0, b"content")
            assert client.stat("/mount/file")[1] == "7"
        with raw.Connection(server) as client:
            disk.freeze_at_removal()
            removal = client.start(raw.RM, bytes(16), b"/mount/file")
            disk.wait_until_frozen()
            try:
                served(server)
            finally:
                disk.thaw()
            answered([(client, removal)], raw.OK)
