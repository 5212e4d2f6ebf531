"""Parallel streams: connections bound to a session, and answers routed by path id."""

import struct
import time

import raw
from codes import ErrorCode
from raw import Connection, bind
from recorded import without_checksums
from tools import pattern, wait_until

SIZE = 100_000


def pathed_read(handle, offset, length, path_id):
    return struct.pack(">4sqi", handle, offset, length), bytes([path_id]) + bytes(7)


def test_reads_arrive_on_the_bound_connection(area):
    path = area.put("file", pattern(SIZE))
    with Connection(area.server) as control:
        stream, path_id = bind(area.server, control.session)
        assert 1 <= path_id <= 15
        handle = control.open(path)
        asked = control.start(raw.READ, *pathed_read(handle, 100, 5000, path_id))
        assert stream.result(asked) == pattern(SIZE)[100:5100]
        asked = control.start(raw.PGREAD, struct.pack(">4sqi", handle, 100, 5000), bytes([path_id, 0]))
        assert without_checksums(100, stream.result(asked)) == pattern(SIZE)[100:5100]
        control.ping()
        stream.close_socket()


def test_vector_read_ignores_the_path_id(area):
    path = area.put("file", pattern(SIZE))
    with Connection(area.server) as control:
        stream, path_id = bind(area.server, control.session)
        handle = control.open(path)
        answer = control.ask(raw.READV, struct.pack(">15xB", path_id), struct.pack(">4siq", handle, 4, 0))
        assert answer[16:] == pattern(4)
        stream.close_socket()


def test_writes_carry_their_data_on_the_bound_connection(area):
    with Connection(area.server) as control:
        stream, path_id = bind(area.server, control.session)
        handle = control.create(area / "file")
        asked = control.start(raw.WRITE, struct.pack(">4sqB", handle, 5, path_id), length=11)
        stream.send(b"hello world")
        assert stream.result(asked) == b""
        control.close(handle)
        assert area.get("file") == bytes(5) + b"hello world"
        stream.close_socket()


def test_at_most_fifteen_connections(area):
    path = area.put("file", pattern(SIZE))
    with Connection(area.server) as control:
        bound = [bind(area.server, control.session) for _ in range(15)]
        assert sorted(path_id for _, path_id in bound) == list(range(1, 16))
        extra = Connection(area.server, login=False)
        extra.hello(expect=1)
        assert extra.error(raw.BIND, control.session) == ErrorCode.NO_MEMORY
        handle = control.open(path)
        for number, (stream, path_id) in enumerate(bound):
            asked = control.start(raw.READ, *pathed_read(handle, number * 1000, 1000, path_id))
            assert stream.result(asked) == pattern(SIZE)[number * 1000:number * 1000 + 1000]
        for stream, _ in bound:
            stream.close_socket()


def test_wrong_session_id(area):
    with Connection(area.server, login=False) as stream:
        stream.hello(expect=1)
        assert stream.error(raw.BIND, b"\x5a" * 16) in (ErrorCode.ARG_INVALID, ErrorCode.NOT_FOUND)


def test_unbound_path_id(area):
    path = area.put("file", pattern(SIZE))
    with Connection(area.server) as control:
        handle = control.open(path)
        assert control.error(raw.READ, *pathed_read(handle, 0, 10, 7)) == ErrorCode.ARG_INVALID
        assert control.read(handle, 0, 10) == pattern(10)


def test_bound_connection_takes_no_requests(ours, area_on):
    """Bytes on it are data that was or will be announced, never a request."""
    area = area_on(ours)
    path = area.put("file", pattern(SIZE))
    with Connection(ours) as control:
        stream, path_id = bind(ours, control.session)
        removal = raw.request(9, raw.RM, b"", path.encode())
        stream.send(removal)
        handle = control.create(area / "other")
        asked = control.start(raw.WRITE, struct.pack(">4sqB", handle, 0, path_id), length=len(removal))
        assert stream.result(asked) == b""
        control.close(handle)
        assert area.get("other") == removal
        assert area.get("file") == pattern(SIZE)
        stream.close_socket()


def test_path_id_is_free_again_after_its_connection_ended(ours, area_on):
    path = area_on(ours).put("file", pattern(SIZE))
    with Connection(ours) as control:
        for _ in range(40):
            stream, path_id = bind(ours, control.session)
            stream.close_socket()
        handle = control.open(path)
        stream, path_id = bind(ours, control.session)
        asked = control.start(raw.READ, *pathed_read(handle, 0, 1000, path_id))
        assert stream.result(asked) == pattern(1000)


def test_end_of_the_control_connection_ends_the_bound_ones(server):
    control = Connection(server)
    stream, _ = bind(server, control.session)
    control.close_socket()
    assert stream.closed()


def test_session_continues_after_a_lost_bound_connection(ours, area_on):
    """Its reads fail or move; later requests on the control connection are served."""
    path = area_on(ours).put("file", pattern(SIZE))
    with Connection(ours) as control:
        stream, path_id = bind(ours, control.session)
        handle = control.open(path)
        stream.vanish()
        for number in range(20):
            control.start(raw.READ, *pathed_read(handle, 0, 100, path_id))
        asked = control.start(raw.PING)
        while control.frame().stream != asked:
            pass
        assert control.read(handle, 0, 100) == pattern(100)


def test_endsess_of_the_own_session(server):
    with Connection(server) as connection:
        connection.start(raw.ENDSESS, connection.session)
        assert connection.closed()


def test_endsess_of_no_session(server):
    """The id of zeros is answered with ok, and the session continues."""
    with Connection(server) as connection:
        connection.ask(raw.ENDSESS, bytes(16))
        connection.ask(raw.PING)


def test_endsess_of_an_earlier_connection(server):
    """As a client does after it lost its connection: it waits as requested, then the old session
    has ended."""
    with Connection(server, user="same", pid=77) as old, Connection(server, user="same", pid=77) as new:
        def ended():
            new.send(raw.request(9, raw.ENDSESS, old.session))
            frame = new.frame()
            if frame.status == raw.WAIT:
                time.sleep(struct.unpack(">i", frame.body[:4])[0])
                return False
            assert frame.status == raw.OK, frame
            return True

        wait_until(ended)
        assert old.closed()
        new.ping()


def test_endsess_of_another_client(server):
    with Connection(server, user="me", pid=1) as victim, Connection(server, user="you", pid=2) as other:
        assert other.error(raw.ENDSESS, victim.session) == ErrorCode.NOT_AUTHORIZED
        victim.ping()


def test_endsess_of_an_unknown_session(server):
    with Connection(server) as connection:
        connection.ask(raw.ENDSESS, b"\x5a" * 16)
        connection.ping()
