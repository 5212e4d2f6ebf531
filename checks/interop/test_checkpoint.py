"""Checkpoints: a file is as before, or as committed, never between; not even after kill -9."""

import struct

import pytest

import peers
import raw
from codes import ErrorCode
from raw import Connection, Failed
from tools import pattern

SIZE = 300_000
BEGIN, COMMIT, QUERY, ROLLBACK = 0, 1, 2, 3


@pytest.fixture
def prepared(area):
    """Returns a file open for update with a checkpoint."""
    path = area.put("file", pattern(SIZE))
    connection = Connection(area.server)
    handle = connection.open(path, raw.O_UPDT)
    connection.checkpoint(handle, BEGIN)
    yield connection, handle, area
    connection.close_socket()


def change(connection, handle):
    """Overwrites bytes in the middle and appends."""
    connection.checkpointed_write(handle, 1000, b"CHANGED")
    connection.checkpointed_write(handle, SIZE - 3, b"beyond the end")


CHANGED = pattern(SIZE)[:1000] + b"CHANGED" + pattern(SIZE)[1007:SIZE - 3] + b"beyond the end"


def test_rollback(prepared):
    connection, handle, area = prepared
    change(connection, handle)
    assert area.get("file") == CHANGED
    connection.checkpoint(handle, ROLLBACK)
    assert area.get("file") == pattern(SIZE)


def test_commit(prepared):
    connection, handle, area = prepared
    change(connection, handle)
    connection.checkpoint(handle, COMMIT)
    connection.close(handle)
    assert area.get("file") == CHANGED


def test_close_without_commit_rolls_back(prepared):
    connection, handle, area = prepared
    change(connection, handle)
    connection.close(handle)
    assert area.get("file") == pattern(SIZE)


def test_lost_client_rolls_back(prepared):
    connection, handle, area = prepared
    change(connection, handle)
    connection.vanish()
    with Connection(area.server) as other:
        # The lock of the lost client is released when its file is closed, and closing rolls back.
        while True:
            try:
                other.open(area / "file", raw.O_UPDT)
                break
            except Failed as failed:
                assert failed.code == ErrorCode.FILE_LOCKED
    assert area.get("file") == pattern(SIZE)


def test_truncate_is_undone(prepared):
    connection, handle, area = prepared
    inner = raw.header(connection.stream + 1, raw.TRUNCATE, struct.pack(">4sq", handle, SIZE - 1000))
    connection.checkpoint(handle, 4, inner)
    assert len(area.get("file")) == SIZE - 1000
    connection.checkpoint(handle, ROLLBACK)
    assert area.get("file") == pattern(SIZE)


def test_query_returns_limit_and_use(prepared):
    connection, handle, _ = prepared
    limit, used = struct.unpack(">II", connection.checkpoint(handle, QUERY))
    assert limit == 1 << 20
    assert used == 0
    change(connection, handle)
    _, used = struct.unpack(">II", connection.checkpoint(handle, QUERY))
    assert 0 < used <= limit


def test_errors(prepared):
    connection, handle, _ = prepared
    for operation, code in ((BEGIN, ErrorCode.IT_EXISTS), (9, ErrorCode.ARG_INVALID)):
        with pytest.raises(Failed) as failed:
            connection.checkpoint(handle, operation)
        assert failed.value.code == code
    connection.checkpoint(handle, COMMIT)
    for operation in (COMMIT, QUERY, ROLLBACK):
        with pytest.raises(Failed) as failed:
            connection.checkpoint(handle, operation)
        assert failed.value.code == ErrorCode.NOT_FOUND


def test_more_than_the_limit(ours, area_on):
    """A change of more bytes than a checkpoint can keep is refused, and the file can still be
    rolled back."""
    area = area_on(ours)
    path = area.put("file", pattern(3_000_000))
    with Connection(ours) as connection:
        handle = connection.open(path, raw.O_UPDT)
        connection.checkpoint(handle, BEGIN)
        connection.checkpointed_write(handle, 0, b"x" * 500_000)
        with pytest.raises(Failed) as failed:
            connection.checkpointed_write(handle, 500_000, b"x" * 1_000_000)
        assert failed.value.code == ErrorCode.OVER_QUOTA
        connection.checkpoint(handle, ROLLBACK)
        assert area.get("file") == pattern(3_000_000)


def crash(server, then):
    """Makes changes under a checkpoint, calls `then`, and kills the server. Returns the file after
    the restart."""
    file = server.tree / "file"
    file.write_bytes(pattern(SIZE))
    peers.give(file)
    with Connection(server) as connection:
        handle = connection.open("/file", raw.O_UPDT)
        connection.checkpoint(handle, BEGIN)
        change(connection, handle)
        then(connection, handle)
        server.restart()
    with Connection(server) as connection:
        connection.open("/file")
    return file.read_bytes()


CHECKPOINTS = "ofs.chkpnt enable maxsz 1m\n"


def test_crash_before_commit_rolls_back(launch):
    assert crash(launch(settings=CHECKPOINTS), lambda connection, handle: None) == pattern(SIZE)


def test_crash_after_commit_keeps(launch):
    assert crash(launch(settings=CHECKPOINTS), lambda connection, handle: connection.checkpoint(handle, COMMIT)) == CHANGED


def test_crash_after_rollback_is_as_before(launch):
    assert crash(launch(settings=CHECKPOINTS), lambda connection, handle: connection.checkpoint(handle, ROLLBACK)) == pattern(SIZE)


def test_crash_in_the_middle_of_a_change(serve):
    """Kills the server during a change, many times: the file is never between two states."""
    server = serve(settings=CHECKPOINTS)
    for length in (1, 5000, 100_000, 200_000):
        file = server.tree / "file"
        file.write_bytes(pattern(SIZE))
        peers.give(file)
        with Connection(server) as connection:
            handle = connection.open("/file", raw.O_UPDT)
            connection.checkpoint(handle, BEGIN)
            connection.checkpointed_write(handle, 10, b"first")
            connection.stream += 1
            inner = raw.header(connection.stream, raw.WRITE, struct.pack(">4sq", handle, 50), 250_000)
            connection.send(raw.header(connection.stream, raw.CHKPOINT, struct.pack(">4s11xB", handle, 4), 24) + inner + b"y" * length)
            server.restart()
        with Connection(server) as connection:
            connection.open("/file")
        assert file.read_bytes() == pattern(SIZE), length
