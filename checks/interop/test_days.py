"""Failures: clients that disconnect or stall, disks that become full, files that change underneath,
servers that are killed."""

import os
import struct
import subprocess
import threading

import pytest

import peers
import raw
from codes import ErrorCode, ShellCode
from raw import Closed, Connection, Failed
from tools import data, pattern, wait_until, xrdcp, xrdfs

MIB = 1 << 20


def until_open(server, path, options):
    """Opens a file as soon as the lock of a lost client is released."""
    connection = Connection(server, user="later")
    while True:
        try:
            return connection, connection.open(path, options)
        except Failed as failed:
            assert failed.code == ErrorCode.FILE_LOCKED, failed


def test_client_vanishes_in_the_middle_of_a_write(area):
    """Acknowledged data is there, and its lock is released. The rest of its frame is not
    interpreted as a request."""
    content = data(10 * MIB)
    path = area / "file"
    connection = Connection(area.server)
    handle = connection.create(path)
    connection.write(handle, 0, content[:MIB])
    connection.send(raw.header(9, raw.WRITE, struct.pack(">4sq", handle, MIB), 9 * MIB) + content[MIB:4 * MIB])
    connection.vanish()
    later, handle = until_open(area.server, path, raw.O_UPDT)
    with later:
        now = area.get("file")
        assert len(now) >= MIB and now == content[:len(now)]
        later.write(handle, 0, b"mine")
        later.close(handle)


@pytest.mark.parametrize("cold", [False, True], ids=["cached", "cold"])
def test_clients_vanish_with_reads_in_flight(area, cold):
    """Buffers that the kernel still fills outlive their connection."""
    content = data(32 * MIB)
    path = area.put("file", content)
    for round in range(20):
        if cold:
            os.sync()
            with open(area.local / "file", "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        connection = Connection(area.server)
        handle = connection.open(path)
        for number in range(64):
            connection.start(raw.READ, struct.pack(">4sqi", handle, number * 300_000, 200_000))
        if round % 2:
            connection.frame()
        connection.vanish()
    with Connection(area.server) as connection:
        handle = connection.open(path)
        assert connection.read(handle, 5 * MIB, MIB) == content[5 * MIB:6 * MIB]


def test_reader_that_stops_reading(area):
    """Its answers wait in the socket, not in the server's memory, and no other client waits."""
    content = data(64 * MIB)
    path = area.put("file", content)
    with Connection(area.server) as other, Connection(area.server, receive_buffer=4096, timeout=1) as stalled:
        before = area.server.memory()
        handle = stalled.open(path)
        try:
            for number in range(2000):
                stalled.start(raw.READ, struct.pack(">4sqi", handle, number % 60 * MIB, MIB))
        except TimeoutError:
            pass  # the server has stopped taking its requests, as it should
        mine = other.open(path)
        for number in range(50):
            assert other.read(mine, number * MIB, 1000) == content[number * MIB:number * MIB + 1000]
        assert area.server.memory() < before + 96 * MIB
        stalled.socket.settimeout(30)
        frame = stalled.frame()
        assert frame.status in (raw.OK, raw.OKSOFAR) and frame.body == content[:len(frame.body)]


def test_stalled_page_reader(ours, area_on):
    area = area_on(ours)
    content = data(64 * MIB)
    path = area.put("file", content)
    with Connection(ours) as other, Connection(ours, receive_buffer=4096, timeout=1) as stalled:
        before = ours.memory()
        handle = stalled.open(path)
        try:
            for number in range(500):
                stalled.start(raw.PGREAD, struct.pack(">4sqi", handle, 0, 60 * MIB))
        except TimeoutError:
            pass
        other.ping()
        assert ours.memory() < before + 96 * MIB


def test_writer_that_stops_writing(area):
    """Half a frame, then silence. Others continue, and the half is not lost when the client
    continues."""
    content = data(2 * MIB)
    with Connection(area.server) as slow, Connection(area.server) as other:
        handle = slow.create(area / "file")
        stream = 9
        slow.send(raw.header(stream, raw.WRITE, struct.pack(">4sq", handle, 0), len(content)) + content[:1_000_001])
        for number in range(50):
            path = area / f"other{number}"
            mine = other.create(path)
            other.write(mine, 0, b"x" * 1000)
            other.close(mine)
        slow.send(content[1_000_001:])
        assert slow.result(stream) == b""
        assert area.get("file") == content


def test_disk_full_in_the_middle_of_a_write(launch, small_disk):
    """3009, the next request is found, and there is room again after the file is removed."""
    server = launch(tree=small_disk)
    content = data(12 * MIB)
    with Connection(server) as connection:
        handle = connection.create("/file")
        connection.write(handle, 0, content[:4 * MIB])
        with pytest.raises(Failed) as failed:
            connection.write(handle, 4 * MIB, content[4 * MIB:])
        assert failed.value.code == ErrorCode.NO_SPACE
        connection.ping()
        assert connection.read(handle, 0, 4 * MIB) == content[:4 * MIB]
        try:
            connection.close(handle)
        except Failed as failed:
            assert failed.code == ErrorCode.NO_SPACE
        connection.ask(raw.RM, payload=b"/file")
        handle = connection.create("/again")
        connection.write(handle, 0, content[:4 * MIB])
        connection.close(handle)
    assert (small_disk / "again").read_bytes() == content[:4 * MIB]


def test_disk_full_for_the_real_client(launch, small_disk, tmp_path):
    server = launch(tree=small_disk)
    (tmp_path / "large").write_bytes(data(12 * MIB))
    xrdcp(tmp_path / "large", server.url("/file")).fails(ShellCode.SERVER_ERROR, ErrorCode.NO_SPACE.shown)
    result = xrdcp("--posc", tmp_path / "large", server.url("/posc"))
    assert result.status == ShellCode.SERVER_ERROR, result
    # The client disconnects without closing it.
    wait_until(lambda: not (small_disk / "posc").exists())
    xrdfs(server, "rm", "/file")
    (tmp_path / "small").write_bytes(data(MIB))
    xrdcp(tmp_path / "small", server.url("/small")).ok()


def test_disk_full_while_pages_are_written(serve, small_disk):
    server = serve(tree=small_disk)
    from test_checksum import crc32c
    page = data(4096)
    with Connection(server) as connection:
        handle = connection.create("/file")
        framed = struct.pack(">I", crc32c(page)) + page
        with pytest.raises(Failed) as failed:
            connection.ask(raw.PGWRITE, struct.pack(">4sq", handle, 0), framed * 3000)
        assert failed.value.code == ErrorCode.NO_SPACE
        connection.ping()


def test_file_truncated_under_an_open_handle(ours, area_on):
    """Reads end at the present end of the file, and the connection stays open."""
    area = area_on(ours)
    path = area.put("file", pattern(100_000))
    with Connection(ours) as connection:
        handle = connection.open(path)
        assert len(connection.read(handle, 0, 100_000)) == 100_000
        os.truncate(area.local / "file", 50_000)
        assert connection.read(handle, 0, 100_000) == pattern(50_000)
        assert connection.read(handle, 60_000, 100) == b""
        with pytest.raises(Failed):
            connection.ask(raw.READV, b"", struct.pack(">4siq", handle, 100, 60_000))
        connection.ping()


def test_file_removed_under_an_open_handle(area):
    path = area.put("file", pattern(100_000))
    with Connection(area.server) as connection:
        handle = connection.open(path)
        os.unlink(area.local / "file")
        assert connection.read(handle, 0, 100_000) == pattern(100_000)
        connection.close(handle)
        with pytest.raises(Failed) as failed:
            connection.open(path)
        assert failed.value.code == ErrorCode.NOT_FOUND


def test_directory_removed_under_a_writer(area):
    area.mkdir("folder")
    with Connection(area.server) as connection:
        handle = connection.create(area / "folder/file")
        connection.write(handle, 0, b"x")
        os.unlink(area.local / "folder/file")
        os.rmdir(area.local / "folder")
        connection.write(handle, 1, b"y")
        connection.close(handle)
        connection.ping()


def test_file_that_shrinks_during_a_reply(ours, area_on):
    """Announced bytes are missing: the connection ends; they are never invented. (Truncated to
    zero, because the kernel zeroes the rest of a block that is cut in the middle, even if it is
    being sent.)"""
    area = area_on(ours)
    content = data(64 * MIB)
    for _ in range(5):
        path = area.put("file", content)
        with Connection(ours, receive_buffer=4096) as connection:
            handle = connection.open(path)
            stream = connection.start(raw.READ, struct.pack(">4sqi", handle, 0, 64 * MIB))
            promised = struct.unpack(">HHi", connection.receive(8))
            os.truncate(area.local / "file", 0)
            received = bytearray()
            try:
                while True:
                    while len(received) < promised[2]:
                        part = connection.socket.recv(min(1 << 20, promised[2] - len(received)))
                        if not part:
                            raise Closed
                        received += part
                    assert promised[0] == stream
                    if promised[1] == raw.OK:
                        break
                    following = struct.unpack(">HHi", connection.receive(8))
                    promised = (following[0], following[1], len(received) + following[2])
            except (Closed, ConnectionResetError):
                pass
            assert bytes(received) == content[:len(received)]
        with Connection(ours) as connection:
            connection.ping()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's files")
def test_permission_denied(area):
    """Files and directories of another user."""
    area.put("secret", b"x")
    area.mkdir("closed")
    for name in ("secret", "closed"):
        os.chown(area.local / name, 0, 0)
        os.chmod(area.local / name, 0o600)
    os.chown(area.local, 0, 0)
    with Connection(area.server) as connection:
        denied = [
            (raw.OPEN, struct.pack(">HH", 0, raw.O_READ), "secret"),
            (raw.OPEN, struct.pack(">HH", 0, raw.O_UPDT), "secret"),
            (raw.OPEN, struct.pack(">HH", 0o644, raw.O_NEW | raw.O_UPDT), "new"),
            (raw.DIRLIST, b"", "closed"),
            (raw.MKDIR, struct.pack(">14xH", 0o755), "folder"),
            (raw.RM, b"", "secret"),
            (raw.RMDIR, b"", "closed"),
            (raw.STAT, b"", "closed/below"),
            (raw.TRUNCATE, bytes(16), "secret"),
            (raw.CHMOD, struct.pack(">14xH", 0o777), "secret"),
            (raw.QUERY, struct.pack(">H", 3), "secret"),
        ]
        for code, body, name in denied:
            assert connection.error(code, body, (area / name).encode()) == ErrorCode.NOT_AUTHORIZED, (code, name)
        assert connection.stat(area / "secret")[2] == "0"
        connection.ping()


def test_directory_with_a_hundred_thousand_entries(area):
    directory = area.local / "many"
    area.mkdir("many")
    for number in range(100_000):
        os.close(os.open(directory / f"entry-{number}", os.O_CREAT | os.O_WRONLY, 0o644))
    names = {f"entry-{number}".encode() for number in range(100_000)}
    with Connection(area.server, timeout=120) as connection:
        before = area.server.memory()
        plain = connection.ask(raw.DIRLIST, b"", (area / "many").encode())
        assert set(plain.rstrip(b"\0").split(b"\n")) == names
        lines = connection.ask(raw.DIRLIST, struct.pack(">15xB", 2), (area / "many").encode()).rstrip(b"\0").split(b"\n")
        assert lines[:2] == [b".", b"0 0 0 0"]
        assert set(lines[2::2]) == names
        assert len(lines[3::2]) == 100_000
        assert area.server.memory() < before + 64 * MIB
    assert len(xrdfs(area.server, "ls", area / "many").ok().out.splitlines()) == 100_000


def test_listing_without_a_reader(ours, area_on):
    """A client that requests huge listings and disconnects, repeatedly."""
    area = area_on(ours)
    area.mkdir("many")
    for number in range(20_000):
        os.close(os.open(area.local / f"many/entry-{number}", os.O_CREAT | os.O_WRONLY, 0o644))
    before = ours.memory()
    for _ in range(20):
        with Connection(ours, receive_buffer=4096) as connection:
            for _ in range(20):
                connection.start(raw.DIRLIST, struct.pack(">15xB", 2), (area / "many").encode())
            connection.frame()
            connection.vanish()
    with Connection(ours) as connection:
        connection.ping()
    assert ours.memory() < before + 64 * MIB


def test_killed_during_uploads(launch):
    """Each acknowledged byte is there after the restart."""
    server = launch()
    content = data(64 * MIB)
    acknowledged = {}
    started = threading.Barrier(5)

    def upload(number):
        connection = Connection(server, user=f"u{number}")
        try:
            handle = connection.create(f"/file{number}")
            acknowledged[number] = 0
            for offset in range(0, len(content), 100_003):
                connection.write(handle, offset, content[offset:offset + 100_003])
                acknowledged[number] = offset + 100_003
                if offset == 0:
                    started.wait()
        except (Closed, OSError):
            pass
        finally:
            connection.close_socket()

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    server.kill()
    for thread in threads:
        thread.join()
    server.start()
    with Connection(server) as connection:
        for number, length in acknowledged.items():
            handle = connection.open(f"/file{number}")
            now = connection.read(handle, 0, len(content))
            assert len(now) >= min(length, len(content)) > 0
            assert now == content[:len(now)]


def test_real_client_survives_a_restart(launch, tmp_path):
    """The server is killed during an upload and restarted on its port. The upload succeeds or fails
    with an error, but never leaves a wrong file that looks complete."""
    server = launch()
    content = data(48 * MIB)
    (tmp_path / "source").write_bytes(content)
    command = [peers.real("xrdcp"), "--nopbar", "--xrate", "20m", tmp_path / "source", server.url("/file")]
    process = subprocess.Popen(command, env=peers.environment(XRD_CPCHUNKSIZE="1000000"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    file = server.tree / "file"
    wait_until(lambda: process.poll() is not None or file.exists() and file.stat().st_size > 4 * MIB)
    assert process.poll() is None, process.stdout.read()
    server.restart()
    output, _ = process.communicate(timeout=120)
    if process.returncode == 0:
        assert file.read_bytes() == content
    else:
        assert b"ERROR" in output or b"FATAL" in output, output
