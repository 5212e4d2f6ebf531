"""Invalid input on the wire: no input ends the server, affects another connection or increases
memory without bound."""

import random
import socket
import struct

import pytest

import raw
from codes import ErrorCode
from raw import Closed, Connection, Failed, header, request
from tools import pattern

MIB = 1 << 20
GROWTH_MAX = 64 * MIB


@pytest.fixture
def calm(server):
    """After the test the server is in the same state as before: others are served, memory is
    bounded."""
    with Connection(server) as witness:
        witness.ping()
        before = server.memory()
        yield server
        witness.ping()
        assert server.alive()
        assert server.memory() < before + GROWTH_MAX


@pytest.fixture
def calm_ours(ours):
    """The same check, for cases that the real server handles differently."""
    with Connection(ours) as witness:
        witness.ping()
        before = ours.memory()
        yield ours
        witness.ping()
        assert ours.alive()
        assert ours.memory() < before + GROWTH_MAX


def session_start(user=b"tester"):
    """Handshake, protocol, login."""
    return (raw.HANDSHAKE + request(0, raw.PROTOCOL, struct.pack(">iBB", 0x520, 1, 3))
            + request(1, raw.LOGIN, struct.pack(">i8sBBBB", 99, user, 0, 0, 5, 0)))


def test_everything_in_one_segment(calm_ours, area_on):
    """Handshake to close without waiting for one reply: the requests run in order, the handle is
    the first."""
    path = area_on(calm_ours).put("file", pattern(10_000)).encode()
    with Connection(calm_ours, login=False) as connection:
        connection.send(session_start() + request(2, raw.PING) + request(3, raw.STAT, payload=path)
                        + request(4, raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path))
        assert connection.receive(16)[-4:] == b"\0\0\0\1"
        for stream in (0, 1, 2):
            frame = connection.frame()
            assert (frame.stream, frame.status) == (stream, raw.OK)
        # Requests that access the disk may overtake each other.
        frames = {frame.stream: frame for frame in (connection.frame(), connection.frame())}
        assert {stream: frame.status for stream, frame in frames.items()} == {3: raw.OK, 4: raw.OK}
        connection.stream = 10
        assert connection.read(frames[4].body[:4], 0, 100) == pattern(100)


@pytest.mark.parametrize("cut", range(1, 20))
def test_handshake_split_at_each_byte(calm_ours, cut):
    with Connection(calm_ours, login=False) as connection:
        connection.send(raw.HANDSHAKE[:cut])
        connection.send(raw.HANDSHAKE[cut:] + request(0, raw.PROTOCOL, struct.pack(">iBB", 0x520, 1, 3)))
        assert connection.receive(16) == struct.pack(">HHiii", 0, 0, 8, 0x520, 1)
        assert connection.frame().status == raw.OK
        connection.login()
        connection.ping()


def test_one_byte_at_a_time(calm_ours, area_on):
    path = area_on(calm_ours).put("file", b"content").encode()
    with Connection(calm_ours, login=False) as connection:
        for byte in session_start() + request(2, raw.STAT, payload=path) + request(3, raw.PING):
            connection.send(bytes([byte]))
        connection.receive(16)
        # A status whose owner must be resolved may be overtaken.
        assert sorted(connection.frame()[:2] for _ in range(4)) == [(stream, raw.OK) for stream in (0, 1, 2, 3)]


def frames_of_each_kind(path, handle):
    """One valid request of each code, as bytes."""
    read_write = struct.pack(">4sqi", handle, 0, 4)
    page = struct.pack(">I", 0) + b"x" * 16
    name = b"\0" + struct.pack(">H", 0) + b"attr\0"
    return {
        "query": request(9, raw.QUERY, struct.pack(">H", 7), b"version"),
        "chmod": request(9, raw.CHMOD, struct.pack(">14xH", 0o644), path),
        "close": request(9, raw.CLOSE, handle),
        "dirlist": request(9, raw.DIRLIST, b"", b"/"),
        "gpfile": request(9, raw.GPFILE, b"", path),
        "protocol": request(9, raw.PROTOCOL, struct.pack(">i", 0x520)),
        "login": request(9, raw.LOGIN, struct.pack(">i8s", 1, b"x"), b"&xrd.cc=xx"),
        "mkdir": request(9, raw.MKDIR, struct.pack(">14xH", 0o755), path + b".d"),
        "mv": request(9, raw.MV, struct.pack(">14xh", len(path)), path + b" " + path),
        "open": request(9, raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path),
        "ping": request(9, raw.PING),
        "chkpoint": request(9, raw.CHKPOINT, struct.pack(">4s11xB", handle, 2)),
        "read": request(9, raw.READ, read_write, bytes(8)),
        "rm": request(9, raw.RM, b"", path + b".nope"),
        "rmdir": request(9, raw.RMDIR, b"", path + b".nope"),
        "sync": request(9, raw.SYNC, handle),
        "stat": request(9, raw.STAT, b"", path),
        "set": request(9, raw.SET, b"", b"appid test"),
        "write": request(9, raw.WRITE, struct.pack(">4sq", handle, 0), b"12345678"),
        "fattr": request(9, raw.FATTR, struct.pack(">4sBBB", handle, 1, 1, 0), name),
        "prepare": request(9, raw.PREPARE, b"", path),
        "statx": request(9, raw.STATX, b"", path),
        "endsess": request(9, raw.ENDSESS, b"\1" * 16),
        "bind": request(9, raw.BIND, b"\1" * 16),
        "readv": request(9, raw.READV, b"", struct.pack(">4siq", handle, 4, 0)),
        "pgwrite": request(9, raw.PGWRITE, struct.pack(">4sq", handle, 0), page),
        "locate": request(9, raw.LOCATE, b"", path),
        "truncate": request(9, raw.TRUNCATE, struct.pack(">4sq", handle, 10_000)),
        "sigver": request(9, raw.SIGVER, struct.pack(">HBBQB", raw.PING, 0, 0, 1, 1), b"s" * 32),
        "pgread": request(9, raw.PGREAD, read_write, b"\0\0"),
        "writev": header(9, raw.WRITEV, b"", 16) + struct.pack(">4siq", handle, 4, 0) + b"1234",
        "clone": request(9, raw.CLONE, handle, struct.pack(">4s4xqqq", handle, 0, 4, 8)),
    }


KINDS = list(frames_of_each_kind(b"/x", b"\0\0\0\0"))


@pytest.mark.parametrize("kind", KINDS)
def test_frame_truncated_at_each_byte(calm_ours, area_on, kind):
    """A client that disconnects within a request, at each position."""
    area = area_on(calm_ours)
    path = area.put("file", pattern(10_000)).encode()
    length = len(frames_of_each_kind(path, b"\0\0\0\0")[kind])
    for cut in range(length):
        with Connection(calm_ours) as connection:
            handle = connection.open(path.decode(), raw.O_UPDT | raw.O_FORCE)
            connection.send(frames_of_each_kind(path, handle)[kind][:cut])
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.closed()


@pytest.mark.parametrize("kind", KINDS)
def test_frame_split_at_each_byte(calm_ours, area_on, kind):
    """The same request in two segments is answered as in one."""
    path = area_on(calm_ours).put("file", pattern(10_000)).encode()
    length = len(frames_of_each_kind(path, b"\0\0\0\0")[kind])
    answers = set()
    for cut in range(1, length, 1 if length < 60 else 3):
        with Connection(calm_ours) as connection:
            handle = connection.open(path.decode(), raw.O_UPDT | raw.O_FORCE)
            frame = frames_of_each_kind(path, handle)[kind]
            connection.send(frame[:cut])
            connection.send(frame[cut:] + request(77, raw.PING))
            statuses = []
            # The ping may be answered first, and a signature has no answer at all.
            waiting = {77} if kind == "sigver" else {9, 77}
            try:
                while waiting:
                    answer = connection.frame()
                    if answer.stream == 9:
                        statuses.append(answer.status)
                    waiting.discard(answer.stream)
            except Closed:
                statuses.append("closed")
            answers.add(tuple(statuses))
    assert len(answers) == 1, answers


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("write", "pgwrite")])
def test_absurd_length(calm_ours, kind):
    """2 GB announced in a request with a short argument: refused immediately, never buffered."""
    code = struct.unpack(">H", frames_of_each_kind(b"/x", b"\0\0\0\0")[kind][2:4])[0]
    for length in (-1, -(2**31), 2**31 - 1, 2**31 - 2, 3 * MIB):
        with Connection(calm_ours) as connection:
            connection.send(header(9, code, b"", length))
            try:
                frame = connection.frame()
            except Closed:
                continue
            assert frame.status == raw.ERROR
            assert struct.unpack(">i", frame.body[:4])[0] in (ErrorCode.ARG_INVALID, ErrorCode.ARG_MISSING, ErrorCode.ARG_TOO_LONG, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED)


@pytest.mark.parametrize("code", ["WRITE", "PGWRITE"])
def test_write_of_two_gigabytes_to_no_handle(calm_ours, code):
    """The payload is discarded, not buffered; the client may continue or give up."""
    before = calm_ours.memory()
    with Connection(calm_ours) as connection:
        connection.send(header(9, getattr(raw, code), struct.pack(">4sq", b"\7\7\7\7", 0), 2**31 - 1))
        for _ in range(64):
            connection.send(bytes(MIB))
        assert calm_ours.memory() - before < 32 * MIB
    with Connection(calm_ours) as other:
        other.ping()


def test_length_too_long_for_an_argument(calm):
    with Connection(calm) as connection:
        assert connection.error(raw.STAT, length=3 * MIB) == ErrorCode.ARG_TOO_LONG


def test_negative_length(calm):
    with Connection(calm) as connection:
        assert connection.error(raw.STAT, length=-5) == ErrorCode.ARG_INVALID
        assert connection.closed()


@pytest.mark.parametrize("code", [0, 1, 2000, 2999, raw.CLONE + 1, raw.CLONE + 2, 4000, 0x7FFF, 0xFFFF])
def test_unknown_code(calm, code):
    """Refused, and the connection continues."""
    with Connection(calm) as connection:
        assert connection.error(code) in (ErrorCode.ARG_MISSING, ErrorCode.INVALID_REQUEST)
        assert connection.error(code, payload=b"with some payload") == ErrorCode.INVALID_REQUEST
        connection.ping()


BEFORE_LOGIN = [code for code in range(raw.AUTH, raw.CLONE + 1) if code not in (raw.PROTOCOL, raw.LOGIN, raw.BIND)]


@pytest.mark.parametrize("code", BEFORE_LOGIN)
def test_request_before_login(calm_ours, code):
    with Connection(calm_ours, login=False) as connection:
        connection.hello()
        assert connection.error(code, payload=b"/") == ErrorCode.INVALID_REQUEST
        assert connection.closed()


def test_request_before_handshake(calm):
    with Connection(calm, login=False) as connection:
        connection.send(request(1, raw.PING) + bytes(20))
        assert connection.closed()


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), b"\xff" * 64, bytes(64)])
def test_another_protocol(calm_ours, first):
    with Connection(calm_ours, login=False) as connection:
        connection.send(first)
        assert connection.closed()


def test_login_twice(calm):
    with Connection(calm) as connection:
        assert connection.error(raw.LOGIN, struct.pack(">i8sBBBB", 1, b"x", 0, 0, 5, 0), b"&xrd.cc=us") == ErrorCode.INVALID_REQUEST
        connection.ping()


def test_argument_missing(calm):
    needing = (raw.CHMOD, raw.DIRLIST, raw.MKDIR, raw.MV, raw.OPEN, raw.RM, raw.RMDIR, raw.SET, raw.PREPARE, raw.STATX, raw.LOCATE)
    with Connection(calm) as connection:
        for code in needing:
            assert connection.error(code) == ErrorCode.ARG_MISSING, code
        connection.ping()


BY_HANDLE = ["close", "read", "sync", "write", "readv", "pgread", "truncate", "chkpoint", "fattr", "pgwrite"]


@pytest.mark.parametrize("kind", BY_HANDLE)
def test_handle_of_another_connection(calm, area, kind):
    """A handle is valid in its session only."""
    path = area.put("file", pattern(10_000))
    with Connection(calm) as owner, Connection(calm) as stranger:
        handle = owner.open(path, raw.O_UPDT)
        frame = frames_of_each_kind(path.encode(), handle)[kind]
        stranger.send(frame)
        answer = stranger.frame()
        assert answer.status == raw.ERROR
        assert struct.unpack(">i", answer.body[:4])[0] == ErrorCode.FILE_NOT_OPEN
        stranger.ping()
        assert owner.read(handle, 0, 10) == pattern(10)
        assert area.get("file") == pattern(10_000)


def test_handle_after_close(calm, area):
    path = area.put("file", pattern(100))
    with Connection(calm) as connection:
        handle = connection.open(path)
        connection.close(handle)
        with pytest.raises(Failed) as failed:
            connection.read(handle, 0, 10)
        assert failed.value.code == ErrorCode.FILE_NOT_OPEN


EXTREMES_64 = [0, 1, -1, 2**63 - 1, -(2**63), 2**62, 2**32, 2**31]
EXTREMES_32 = [0, 1, -1, 2**31 - 1, -(2**31)]


def test_offsets_and_lengths_at_their_extremes(calm_ours, area_on):
    """Each combination is answered, by data or by an error, and the connection continues."""
    path = area_on(calm_ours).put("file", pattern(10_000))
    with Connection(calm_ours) as connection:
        handle = connection.open(path, raw.O_UPDT)
        for offset in EXTREMES_64:
            for length in EXTREMES_32:
                for code in (raw.READ, raw.PGREAD):
                    try:
                        data = connection.ask(code, struct.pack(">4sqi", handle, offset, length))
                        assert length == 0 or offset >= 0 and length > 0
                        assert len(data) <= 10_012
                    except Failed as failed:
                        assert offset < 0 or length < 0 or (code == raw.PGREAD and length == 0) or offset > 2**61, (code, offset, length)
                        assert failed.code in (ErrorCode.ARG_INVALID, ErrorCode.FS_ERROR, ErrorCode.IO_ERROR, ErrorCode.UNSUPPORTED)
                try:
                    connection.ask(raw.READV, b"", struct.pack(">4siq", handle, length, offset))
                except Failed as failed:
                    assert failed.code in (ErrorCode.ARG_INVALID, ErrorCode.FS_ERROR, ErrorCode.IO_ERROR, ErrorCode.NO_MEMORY)
        connection.ping()


def test_truncate_at_extremes(calm_ours, area_on):
    area = area_on(calm_ours)
    path = area.put("file", pattern(100))
    with Connection(calm_ours) as connection:
        handle = connection.open(path, raw.O_UPDT)
        for size in (-1, -(2**63)):
            with pytest.raises(Failed):
                connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, size))
        assert area.get("file") == pattern(100)


def test_write_at_extremes(calm_ours, area_on):
    area = area_on(calm_ours)
    path = area.put("file", pattern(100))
    with Connection(calm_ours) as connection:
        handle = connection.open(path, raw.O_UPDT)
        for offset in (-1, -(2**63), 2**63 - 1, 2**63 - 4):
            with pytest.raises(Failed):
                connection.write(handle, offset, b"12345678")
        connection.ping()
        assert area.get("file") == pattern(100)


def test_read_vector_limits(calm, area):
    path = area.put("file", pattern(2_200_000))
    with Connection(calm) as connection:
        handle = connection.open(path)

        def vector(*elements):
            return b"".join(struct.pack(">4siq", handle, length, offset) for length, offset in elements)

        answer = connection.ask(raw.READV, b"", vector(*[(10, 7 * number) for number in range(1024)]))
        assert len(answer) == 1024 * 26
        for number in range(1024):
            part = answer[26 * number:26 * number + 26]
            assert part[:16] == vector((10, 7 * number)) and part[16:] == pattern(8000)[7 * number:7 * number + 10]
        assert connection.error(raw.READV, b"", vector(*[(1, 0)] * 1025)) == ErrorCode.ARG_TOO_LONG
        assert len(connection.ask(raw.READV, b"", vector((2097136, 0)))) == 2097136 + 16
        assert connection.error(raw.READV, b"", vector((2097137, 0))) == ErrorCode.NO_MEMORY
        assert connection.error(raw.READV, b"", vector((-1, 0))) == ErrorCode.ARG_INVALID
        assert connection.error(raw.READV, b"", vector((10, 0))[:-1]) == ErrorCode.ARG_INVALID
        assert connection.error(raw.READV, b"", vector((10, 2_199_995))) == ErrorCode.FS_ERROR
        assert connection.ask(raw.READV, b"", vector((0, 0))) == vector((0, 0))
        assert connection.error(raw.READV, b"", struct.pack(">4siq", b"\x55" * 4, 10, 0)) == ErrorCode.FILE_NOT_OPEN
        connection.ping()


def test_paths_that_must_not_reach_the_disk(calm, area):
    area.put("file", b"x")
    with Connection(calm) as connection:
        for path in (b"relative", b"../x", b"/../etc/passwd", area.path.encode() + b"/../../etc/passwd", b"/a/../b"):
            assert connection.error(raw.STAT, payload=path) == ErrorCode.NOT_AUTHORIZED, path
            assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path) == ErrorCode.NOT_AUTHORIZED, path
            assert connection.error(raw.RM, payload=path) == ErrorCode.NOT_AUTHORIZED, path
        long_path = area.path.encode() + b"/x" * 3000
        assert connection.error(raw.STAT, payload=long_path) in (ErrorCode.ARG_TOO_LONG, ErrorCode.FS_ERROR, ErrorCode.NOT_FOUND)


def test_nul_ends_a_path(calm, area):
    path = area.put("file", b"x")
    with Connection(calm) as connection:
        assert connection.ask(raw.STAT, payload=path.encode() + b"\0more")


def test_names_with_any_byte(calm_ours, area_on):
    """Newlines, bytes that are not UTF-8, control characters: created, listed, read and removed."""
    area = area_on(calm_ours)
    with Connection(calm_ours) as connection:
        for name in (b"new\nline", b"\xff\xfe", b"tab\tbell\x07", "größe".encode(), b"with blank", b"quo\"te'", b"back\\slash", b"100%", b"a&b"):
            path = area.path.encode() + b"/" + name
            handle = connection.open(path, raw.O_NEW | raw.O_UPDT)
            connection.write(handle, 0, name)
            connection.close(handle)
            handle = connection.open(path)
            assert connection.read(handle, 0, 100) == name
            connection.close(handle)
            renamed = path + b".2"
            connection.ask(raw.MV, struct.pack(">14xh", len(path)), path + b" " + renamed)
            connection.ask(raw.RM, payload=renamed)


def test_listing_omits_names_that_cannot_be_encoded(calm_ours, area_on):
    area = area_on(calm_ours)
    area.put("plain", b"")
    (area.local / "new\nline").write_bytes(b"")
    with Connection(calm_ours) as connection:
        assert connection.ask(raw.DIRLIST, b"", area.path.encode()) == b"plain\0"


def test_random_bytes_after_login(calm_ours):
    """A hundred sessions that send noise."""
    chance = random.Random(7)
    for _ in range(100):
        with Connection(calm_ours, timeout=5) as connection:
            try:
                connection.send(chance.randbytes(chance.randrange(1, 4000)))
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # The server has closed the connection already.
            assert connection.closed()
    with Connection(calm_ours) as connection:
        connection.ping()


def test_random_fields_in_every_request(calm_ours, area_on):
    """Valid framing around random parameters and payloads."""
    chance = random.Random(8)
    area = area_on(calm_ours)
    path = area.put("file", pattern(10_000)).encode()
    skipped = (raw.ENDSESS, raw.WRITEV, raw.CHKPOINT, raw.SIGVER, raw.READ)
    for code in range(raw.AUTH, raw.CLONE + 1):
        if code in skipped:
            continue
        for _ in range(20):
            with Connection(calm_ours, timeout=10) as connection:
                area.put("file", pattern(10_000))  # an earlier round may have removed or locked it
                connection.open(path.decode(), raw.O_READ | raw.O_FORCE)
                payload = chance.choice([b"", path, chance.randbytes(chance.randrange(64)), b"/" + chance.randbytes(20).replace(b"\0", b"x")])
                stream = connection.start(code, chance.randbytes(16), payload)
                try:
                    frame = connection.frame()
                    assert frame.stream in (0, stream)
                except Closed:
                    pass
        with Connection(calm_ours) as connection:
            connection.ping()


def test_old_client(calm, area):
    """A client of the 2011 generation: no protocol request, version derived from the login."""
    path = area.put("file", pattern(100))
    with Connection(calm, login=False) as connection:
        connection.send(raw.HANDSHAKE)
        connection.receive(16)
        assert len(connection.login(capability=3)) >= 16
        handle = connection.open(path)
        assert connection.read(handle, 0, 100) == pattern(100)


def test_user_names_at_their_extremes(calm):
    for user in (b"", b"12345678", b"\xff" * 8, b"a\0b\0c\0d\0", b"../../x"):
        with Connection(calm, login=False) as connection:
            connection.hello()
            connection.ask(raw.LOGIN, struct.pack(">i8sBBBB", -1, user, 255, 255, 5, 255), b"&xrd.cc=" + b"x" * 1000)
            connection.ping()
