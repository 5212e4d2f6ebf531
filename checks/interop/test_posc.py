"""Persist on successful close: a file that was not closed never counts as complete, and its creator
may finish it."""

import os
import struct

import pytest

import peers
import raw
from codes import ErrorCode
from raw import Connection, Failed
from tools import wait_until

POSC = raw.O_POSC | raw.O_RETSTAT
PENDING = 64
# The hold time of the tests' configuration, with a tolerance.
HOLD_SECONDS = 20
SHORT = "ofs.persist manual hold 2\n"


def begin(server, path, user="creator", content=b"hello"):
    connection = Connection(server, user=user)
    handle = connection.create(path, POSC)
    connection.write(handle, 0, content)
    return connection, handle


def flags(connection, path):
    return int(connection.stat(path)[2])


def test_marks_while_open_and_after_close(area):
    path = area / "file"
    connection, handle = begin(area.server, path)
    with connection, Connection(area.server, user="other") as other:
        words = other.stat(path)
        assert int(words[2]) & PENDING
        assert words[6][0] == "1", words
        assert os.stat(area.local / "file").st_mode & 0o1000
        with pytest.raises(Failed) as failed:
            other.open(path)
        assert failed.value.code == ErrorCode.FILE_LOCKED
        with pytest.raises(Failed):
            other.create(path)
        connection.close(handle)
        assert not flags(other, path) & PENDING
        assert os.stat(area.local / "file").st_mode & 0o7777 == 0o644
        assert area.get("file") == b"hello"


def test_creator_comes_back(area):
    path = area / "file"
    connection, _ = begin(area.server, path)
    connection.vanish()
    with Connection(area.server, user="creator") as again:

        def reopened():
            try:
                return again.open(path, raw.O_UPDT | raw.O_POSC)
            except Failed as failed:
                assert failed.code == ErrorCode.FILE_LOCKED, failed
                return None

        handle = wait_until(reopened)
        again.write(handle, 5, b" world")
        again.close(handle)
        assert area.get("file") == b"hello world"
        assert not flags(again, path) & PENDING


def test_other_writer_is_refused_while_held(area):
    path = area / "file"
    connection, _ = begin(area.server, path)
    connection.vanish()
    with Connection(area.server, user="other") as other:

        def released():
            with pytest.raises(Failed) as failed:
                other.open(path, raw.O_UPDT)
            return failed.value.code != ErrorCode.FILE_LOCKED

        wait_until(released)
        with pytest.raises(Failed) as failed:
            other.open(path, raw.O_UPDT)
        assert failed.value.code == ErrorCode.IN_PROGRESS
        frame = _bare_open(other, path)
        assert frame.status == raw.WAIT
        assert flags(other, path) & PENDING
        other.ask(raw.RM, payload=path.encode())
        assert not (area.local / "file").exists()


def _bare_open(connection, path):
    connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode())
    return connection.frame()


def test_truncating_by_path_leaves_it_pending(area):
    """Another user with write access may truncate an incomplete file by its path."""
    path = area / "file"
    connection, handle = begin(area.server, path)
    with connection, Connection(area.server, user="other") as other:
        other.ask(raw.TRUNCATE, struct.pack(">4sq4x", b"", 2), path.encode())
        assert flags(other, path) & PENDING
        connection.close(handle)
        assert not flags(other, path) & PENDING
    assert area.get("file") == b"he"


def test_removed_when_the_hold_has_passed(launch):
    server = launch(settings=SHORT)
    connection, _ = begin(server, "/file")
    connection.vanish()
    wait_until(lambda: not (server.tree / "file").exists())


def test_close_after_a_failed_write_removes_it(server, area):
    """An uncorrected checksum error is not a successful close."""
    connection, handle = begin(server, area / "file")
    with connection:
        connection.ask(raw.PGWRITE, struct.pack(">4sq", handle, 0), struct.pack(">I", 1) + b"not what was promised")
        with pytest.raises(Failed) as failed:
            connection.close(handle)
        assert failed.value.code == ErrorCode.CHKSUM_ERR


def test_never_a_whole_file_after_a_crash(launch):
    """After kill -9 and a restart it still has its marks; after the hold time it is removed."""
    server = launch(settings=SHORT)
    connection, _ = begin(server, "/file")
    with connection:
        server.restart()
        with Connection(server, user="other") as other:
            try:
                assert flags(other, "/file") & PENDING
            except Failed as failed:
                assert failed.code == ErrorCode.NOT_FOUND
        wait_until(lambda: not (server.tree / "file").exists())


def test_creator_comes_back_after_a_crash(serve):
    server = serve(settings="ofs.persist manual hold 60\n")
    connection, _ = begin(server, "/file")
    with connection:
        server.restart()
        with Connection(server, user="creator") as again:
            handle = again.open("/file", raw.O_UPDT | raw.O_POSC)
            again.write(handle, 5, b" world")
            again.close(handle)
        assert (server.tree / "file").read_bytes() == b"hello world"
        server.restart()
        assert (server.tree / "file").read_bytes() == b"hello world"


def test_by_cgi_and_by_rule(launch):
    server = launch(settings="ofs.persist auto hold 2\n")
    with Connection(server, user="creator") as connection:
        handle = connection.create("/by-rule")
        assert flags(connection, "/by-rule") & PENDING
        connection.close(handle)
    server = launch(settings="ofs.persist manual hold 2\n")
    with Connection(server, user="creator") as connection:
        connection.create("/by-cgi?ofs.posc=1")
        assert flags(connection, "/by-cgi") & PENDING
        connection.create("/plain")
        assert not flags(connection, "/plain") & PENDING


def test_excludes_checkpoints(area):
    connection, handle = begin(area.server, area / "file")
    with connection:
        with pytest.raises(Failed) as failed:
            connection.checkpoint(handle, 0)
        assert failed.value.code == ErrorCode.CONFLICT


def test_a_hundred_at_once(launch):
    """All clients disconnect; no file remains, and none is complete in between."""
    server = launch(settings=SHORT)
    connections = [begin(server, f"/many/{number}", user=f"u{number}")[0] for number in range(100)]
    for connection in connections:
        connection.vanish()
    wait_until(lambda: not os.listdir(server.tree / "many"))
    assert server.alive()
    peers.give(server.tree)
