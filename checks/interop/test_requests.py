"""Requests one by one: each option bit, limit and error of the protocol, sent on a bare socket."""

import os
import struct

import pytest

import peers
import raw
from codes import ErrorCode
from raw import Connection, Failed
from recorded import without_checksums
from test_checksum import crc32c
from tools import pattern, wait_until

SIZE = 10_000


@pytest.fixture
def connection(server):
    with Connection(server) as connection:
        yield connection


@pytest.fixture
def modern(ours):
    """A connection to our server, for features that the installed real one lacks."""
    with Connection(ours) as connection:
        yield connection


@pytest.fixture
def modern_area(ours, area_on):
    return area_on(ours)


def refused(code, call, *arguments):
    """Asserts that the call fails with the error `code`. Returns its text."""
    with pytest.raises(Failed) as failed:
        call(*arguments)
    assert failed.value.code == code, failed.value
    return failed.value.text


def mode_of(path):
    return os.stat(path).st_mode & 0o7777


# Session.


def test_protocol_flags(modern):
    """A data server without TLS: isServer, POSC, pgread and pgwrite."""
    assert modern.ask(raw.PROTOCOL, struct.pack(">i", 0x520)) == struct.pack(">iI", 0x520, 0x00300001)
    assert modern.ask(raw.PROTOCOL, struct.pack(">iBB", 0x520, 0x0B, 3)) == struct.pack(">iI", 0x520, 0x00300001)
    assert modern.ask(raw.PROTOCOL, struct.pack(">i", 0)) == struct.pack(">iI", 0x520, 1)


def test_login_answers_a_session_id(server):
    with Connection(server) as one, Connection(server) as two:
        assert len(one.session) == 16 and one.session != two.session


def test_login_before_2005_gets_no_session_id(ours):
    with Connection(ours, login=False) as connection:
        connection.send(raw.HANDSHAKE)
        connection.receive(16)
        assert connection.login(capability=0) == b""
        connection.ping()


def test_auth_when_none_is_pending(connection):
    assert connection.error(raw.AUTH, struct.pack(">12x4s", b"unix"), b"unix\0me us\0") == ErrorCode.INVALID_REQUEST
    connection.ping()


def test_ping(connection):
    assert connection.ping() == b""


@pytest.mark.parametrize("text, answer", [(b"appid a program", b""), (b"monitor info something", bytes(4)), (b"monitor off", b""), (b"monitor on x", b"")])
def test_set(connection, text, answer):
    assert connection.ask(raw.SET, b"", text) == answer


@pytest.mark.parametrize("text", [b"nosuch thing", b"clttl 5", b"cache evict /x"])
def test_set_of_an_unknown_parameter(connection, text):
    assert connection.error(raw.SET, b"", text) == ErrorCode.ARG_INVALID


def test_unsolicited_sigver(connection):
    """Accepted and ignored, without an answer of its own."""
    connection.send(raw.request(9, raw.SIGVER, struct.pack(">HBBQB", raw.PING, 0, 0, 1, 1), b"s" * 32))
    connection.ping()


def test_gpfile_is_not_supported(connection):
    assert connection.error(raw.GPFILE, b"", b"/x") == ErrorCode.UNSUPPORTED


# Opening.


def test_open_returns_only_a_handle(connection, area):
    path = area.put("file", pattern(SIZE))
    assert len(connection.ask(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode())) == 4


def test_open_without_access_reads(connection, area):
    handle = connection.open(area.put("file", pattern(SIZE)), 0)
    assert connection.read(handle, 0, 10) == pattern(10)
    assert refused(ErrorCode.FILE_NOT_OPEN, connection.write, handle, 0, b"x")


def test_open_retstat(connection, area):
    path = area.put("file", pattern(SIZE))
    answer = connection.ask(raw.OPEN, struct.pack(">HH", 0, raw.O_READ | raw.O_RETSTAT), path.encode())
    assert answer[4:12] == bytes(8) and answer[-1] == 0
    assert answer[12:-1].decode().split() == connection.stat(path)


def test_open_compress(connection, area):
    path = area.put("file", pattern(SIZE))
    assert connection.ask(raw.OPEN, struct.pack(">HH", 0, raw.O_READ | 1), path.encode())[4:] == bytes(8)


def test_open_retstatx(modern, modern_area):
    path = modern_area.put("file", pattern(SIZE))
    answer = modern.ask(raw.OPEN, struct.pack(">HHH", 0, raw.O_READ, 4), path.encode())
    assert answer[12:-1].decode().split()[1] == str(SIZE)


def test_open_new(connection, area):
    handle = connection.open(area / "file", raw.O_NEW | raw.O_UPDT, 0o640)
    connection.close(handle)
    assert mode_of(area.local / "file") == 0o640
    refused(ErrorCode.IT_EXISTS, connection.open, area / "file", raw.O_NEW | raw.O_UPDT)


def test_open_new_needs_its_directory(connection, area):
    refused(ErrorCode.NOT_FOUND, connection.open, area / "no/file", raw.O_NEW | raw.O_UPDT)
    connection.open(area / "no/file", raw.O_NEW | raw.O_UPDT | raw.O_MKPATH)
    assert (area.local / "no/file").is_file()


def test_open_async_creates_directories_too(connection, area):
    """Old behaviour that uploads rely on."""
    connection.open(area / "way/down/file", raw.O_NEW | raw.O_UPDT | 0x40)
    assert (area.local / "way/down/file").is_file()


def test_open_delete(connection, area):
    path = area.put("file", pattern(SIZE))
    handle = connection.open(path, raw.O_DELETE)
    assert area.get("file") == b""
    connection.write(handle, 0, b"x")
    connection.close(handle)
    connection.close(connection.open(area / "fresh", raw.O_DELETE | raw.O_UPDT))
    assert area.get("fresh") == b""


def test_open_mode_is_never_without_the_owner(connection, area):
    connection.close(connection.open(area / "file", raw.O_NEW | raw.O_UPDT, 0o124))
    assert mode_of(area.local / "file") & 0o600 == 0o600


def test_open_append(connection, area):
    path = area.put("file", b"first")
    handle = connection.open(path, raw.O_APND | raw.O_UPDT)
    connection.write(handle, 5, b"second")
    connection.close(handle)
    assert area.get("file") == b"firstsecond"


def test_open_write_only(connection, area):
    path = area.put("file", b"first")
    handle = connection.open(path, raw.O_WRTO)
    connection.write(handle, 0, b"F")
    connection.close(handle)
    assert area.get("file") == b"First"


@pytest.mark.parametrize("hint", [0x40, 0x80, 0x800, 0x2000, 0x4000], ids=["async", "refresh", "replica", "nowait", "seqio"])
def test_open_hints(connection, area, hint):
    handle = connection.open(area.put("file", pattern(SIZE)), raw.O_READ | hint)
    assert connection.read(handle, 0, 10) == pattern(10)


def test_open_errors(connection, area):
    area.mkdir("folder")
    assert "no such file" in refused(ErrorCode.NOT_FOUND, connection.open, area / "nope")
    refused(ErrorCode.IS_DIRECTORY, connection.open, area / "folder")
    refused(ErrorCode.FS_ERROR, connection.open, area.put("file") + "/below")


def test_open_locks(server, area):
    path = area.put("file", pattern(SIZE))
    with Connection(server) as one, Connection(server) as two, Connection(server) as three:
        one.open(path)
        two.open(path)
        assert "already opened by 2 readers" in refused(ErrorCode.FILE_LOCKED, three.open, path, raw.O_UPDT)
        three.open(path, raw.O_UPDT | raw.O_FORCE)
        new = three.create(area / "new")
        assert "already opened by 1 writer" in refused(ErrorCode.FILE_LOCKED, one.open, area / "new")
        one.open(area / "new", raw.O_READ | raw.O_FORCE)
        three.close(new)
        two.open(area / "new")


@pytest.mark.parametrize("first", [raw.O_NEW, raw.O_NEW | raw.O_READ | raw.O_UPDT, raw.O_DELETE, raw.O_DELETE | raw.O_READ | raw.O_WRTO])
def test_open_that_creates_without_update_counts_as_a_reader(server, area, first):
    """It may write, others may read meanwhile, and an open for update is refused."""
    with Connection(server) as one, Connection(server) as two:
        handle = one.open(area / "file", first)
        reader = two.open(area / "file")
        other = two.open(area / "file", raw.O_DELETE)
        assert "Output file" in refused(ErrorCode.FILE_LOCKED, two.open, area / "file", raw.O_UPDT)
        one.write(handle, 0, b"one")
        assert two.read(reader, 0, 10) == b"one"
        for connection, opened in ((one, handle), (two, reader), (two, other)):
            connection.close(opened)
        handle = one.open(area / "file", raw.O_UPDT)
        assert "Input file" in refused(ErrorCode.FILE_LOCKED, two.open, area / "file", raw.O_DELETE)
        one.close(handle)
        two.open(area / "file", raw.O_DELETE | raw.O_UPDT)


def test_open_locks_end_with_their_connection(server, area):
    path = area / "file"
    with Connection(server) as owner:
        owner.create(path)
    with Connection(server) as other:
        while True:
            try:
                other.open(path)
                break
            except Failed as failed:
                assert failed.code == ErrorCode.FILE_LOCKED


def test_open_for_third_party_copy_is_refused(modern, modern_area):
    """It never counts as an ordinary open."""
    path = modern_area.put("file", b"x")
    for cgi in ("tpc.key=0123&tpc.stage=placement", "tpc.stage=copy&tpc.key=0123&tpc.dst=somewhere"):
        refused(ErrorCode.UNSUPPORTED, modern.open, f"{path}?{cgi}")
        refused(ErrorCode.UNSUPPORTED, modern.open, f"{path}.new?{cgi}", raw.O_NEW | raw.O_UPDT)
    assert os.listdir(modern_area.local) == ["file"]


def test_open_same_file_system_and_duplicate(modern, modern_area):
    """A template handle: `samefs` works everywhere; `dup` works where the storage can clone,
    otherwise it leaves no file."""
    template = modern.open(modern_area.put("file", pattern(SIZE)))

    def open_with(name, options, more, handle=template):
        return modern.ask(raw.OPEN, struct.pack(">HHH6x4s", 0o644, options, more, handle), (modern_area / name).encode())

    open_with("near", raw.O_NEW | raw.O_UPDT, 2)
    assert (modern_area.local / "near").exists()
    refused(ErrorCode.ARG_INVALID, open_with, "file", raw.O_READ, 2)
    refused(ErrorCode.ARG_INVALID, open_with, "only-read", raw.O_NEW | raw.O_READ, 1)
    refused(ErrorCode.FILE_NOT_OPEN, open_with, "no-template", raw.O_NEW | raw.O_UPDT, 1, b"\x55" * 4)
    try:
        handle = open_with("copy", raw.O_NEW | raw.O_UPDT, 1)[:4]
        assert modern.read(handle, 0, SIZE) == pattern(SIZE)
    except Failed as failed:
        assert failed.code == ErrorCode.UNSUPPORTED
        assert not (modern_area.local / "copy").exists()


def test_close_twice(connection, area):
    handle = connection.open(area.put("file"))
    connection.close(handle)
    assert "close does not refer to an open file" in refused(ErrorCode.FILE_NOT_OPEN, connection.close, handle)


def test_handles_are_reused(connection, area):
    path = area.put("file", pattern(SIZE))
    handles = set()
    for _ in range(1000):
        handle = connection.open(path)
        handles.add(handle)
        connection.close(handle)
    assert len(handles) == 1


# Reading.


def test_read(connection, area):
    handle = connection.open(area.put("file", pattern(SIZE)))
    assert connection.read(handle, 0, SIZE) == pattern(SIZE)
    assert connection.read(handle, SIZE - 5, 100) == pattern(SIZE)[-5:]
    assert connection.read(handle, SIZE, 100) == b""
    assert connection.read(handle, 10 * SIZE, 100) == b""
    assert connection.read(handle, 5, 0) == b""
    refused(ErrorCode.ARG_INVALID, connection.read, handle, 0, -1)
    refused(ErrorCode.ARG_INVALID, connection.read, handle, -1, 10)
    refused(ErrorCode.FILE_NOT_OPEN, connection.read, b"\x55" * 4, 0, 10)


def test_read_of_many_megabytes(connection, area):
    content = pattern(20_000_000)
    handle = connection.open(area.put("file", content))
    assert connection.read(handle, 0, 20_000_000) == content
    assert connection.read(handle, 4095, 15_000_001) == content[4095:15_004_096]


def test_read_with_hints(modern, modern_area):
    """A list of read-ahead hints is never answered."""
    handle = modern.open(modern_area.put("file", pattern(SIZE)))
    hints = b"".join(struct.pack(">4siq", handle, 100, offset) for offset in (0, 4096, 10**12, 9999))
    assert modern.ask(raw.READ, struct.pack(">4sqi", handle, 0, 100), bytes(8) + hints) == pattern(100)
    modern.ping()


def test_read_of_a_growing_file(connection, area):
    path = area.put("file", b"one")
    handle = connection.open(path)
    assert connection.read(handle, 0, 100) == b"one"
    with open(area.local / "file", "ab") as file:
        file.write(b"two")
    assert connection.read(handle, 0, 100) == b"onetwo"


def test_many_reads_in_flight(connection, area):
    """Answers in any order, each complete and correct."""
    handle = connection.open(area.put("file", pattern(2_000_000)))
    wanted = {}
    for number in range(500):
        offset, length = number * 3989 % 1_900_000, 1 + number * 211 % 90_000
        wanted[connection.start(raw.READ, struct.pack(">4sqi", handle, offset, length))] = (offset, length)
    parts = {stream: b"" for stream in wanted}
    while wanted:
        frame = connection.frame()
        parts[frame.stream] += frame.body
        if frame.status == raw.OK:
            offset, length = wanted.pop(frame.stream)
            assert parts[frame.stream] == pattern(2_000_000)[offset:offset + length]
        else:
            assert frame.status == raw.OKSOFAR


def test_pgread(connection, area):
    """Checksums of pages aligned at multiples of 4096 of the file."""
    content = pattern(SIZE)
    handle = connection.open(area.put("file", content))
    for offset, length in ((0, SIZE), (100, 5000), (4090, 10), (8192, 5000), (SIZE - 1, 10), (SIZE, 10), (10 * SIZE, 10), (4095, 1)):
        answer = connection.ask(raw.PGREAD, struct.pack(">4sqi", handle, offset, length), bytes(2))
        assert without_checksums(offset, answer) == content[offset:offset + length]
        at, position = 0, offset
        while at < len(answer):
            size = min(4096 - position % 4096, len(answer) - at - 4)
            assert struct.unpack(">I", answer[at:at + 4])[0] == crc32c(answer[at + 4:at + 4 + size])
            at, position = at + 4 + size, position + size
    for length in (0, -1):
        assert connection.error(raw.PGREAD, struct.pack(">4sqi", handle, 0, length)) == ErrorCode.ARG_INVALID
    assert connection.error(raw.PGREAD, struct.pack(">4sqi", b"\x55" * 4, 0, 10)) == ErrorCode.FILE_NOT_OPEN


def test_order_of_checks(connection, area):
    """The error that decides the answer to a request with two errors."""
    handle, unknown = connection.open(area.put("file", b"x"), raw.O_UPDT), b"\x55" * 4
    for offset, length in ((0, 0), (0, -1), (-1, 0)):
        assert refused(ErrorCode.ARG_INVALID, connection.ask, raw.PGREAD, struct.pack(">4sqi", unknown, offset, length)) == "Read length is invalid"
    assert connection.error(raw.PGREAD, struct.pack(">4sqi", unknown, -1, 1)) == ErrorCode.FILE_NOT_OPEN
    assert "invalid argument" in refused(ErrorCode.ARG_INVALID, connection.ask, raw.PGREAD, struct.pack(">4sqi", handle, -1, 1))
    assert connection.read(handle, -1, 0) == b""
    refused(ErrorCode.ARG_INVALID, connection.read, handle, -1, 1)
    refused(ErrorCode.FILE_NOT_OPEN, connection.read, unknown, -1, 0)
    assert connection.write(handle, -1, b"") == b""
    assert area.get("file") == b"x"
    # Empty elements are skipped, whatever their handle.
    assert writev(connection, [(unknown, 0, -1), (handle, 1, 0)], b"y") == b""
    assert area.get("file") == b"y"
    assert "Write vector is invalid" in refused(ErrorCode.ARG_INVALID, connection.ask, raw.WRITEV)
    assert connection.closed()


def test_pgread_of_many_pages(connection, area):
    content = pattern(6_000_000)
    handle = connection.open(area.put("file", content))
    body = struct.pack(">4sqi", handle, 100, 5_500_000)
    stream = connection.start(raw.PGREAD, body, b"\0\1")
    pieces = {}
    while True:
        frame = connection.frame()
        assert frame.stream == stream and frame.status == raw.STATUS and len(frame.body) == 24
        assert struct.unpack(">I", frame.body[:4])[0] == crc32c(frame.body[4:])
        assert struct.unpack(">H", frame.body[4:6])[0] == stream and frame.body[6] == 30
        offset = struct.unpack(">q", frame.body[16:24])[0]
        pieces[offset] = without_checksums(offset, frame.data)
        if frame.body[7] == 0:
            break
    joined = b"".join(pieces[offset] for offset in sorted(pieces))
    assert joined == content[100:5_500_100]


def vector(*elements):
    return b"".join(struct.pack(">4siq", *element) for element in elements)


def test_readv_over_two_handles(connection, area):
    one, two = connection.open(area.put("one", pattern(SIZE))), connection.open(area.put("two", b"abcdef"))
    elements = [(one, 10, 5), (two, 3, 1), (one, 0, 7), (two, 6, 0)]
    answer = connection.ask(raw.READV, b"", vector(*elements))
    expected = [pattern(SIZE)[5:15], b"bcd", b"", b"abcdef"]
    assert answer == b"".join(vector(element) + data for element, data in zip(elements, expected))


# Writing.


def test_write(connection, area):
    handle = connection.create(area / "file")
    connection.write(handle, 0, b"hello world")
    connection.write(handle, 6, b"there")
    connection.write(handle, 20, b"far")
    connection.write(handle, 0, b"")
    assert area.get("file") == b"hello there" + bytes(9) + b"far"
    assert connection.read(handle, 0, 5) == b"hello"


def test_write_of_many_megabytes(connection, area):
    content = pattern(20_000_001)
    handle = connection.create(area / "file")
    connection.write(handle, 0, content)
    connection.close(handle)
    assert area.get("file") == content


def test_the_next_request_is_found_after_write_errors(connection, area):
    """The payload of a refused write is not a request."""
    handle = connection.open(area.put("file", b"x"))
    refused(ErrorCode.FILE_NOT_OPEN, connection.write, handle, 0, raw.request(1, raw.RM, b"", (area / "file").encode()))
    refused(3004, connection.write, b"\x55" * 4, 0, bytes(3_000_000))
    connection.ping()
    assert area.get("file") == b"x"


def test_many_writes_in_flight(connection, area):
    handle = connection.create(area / "file")
    content = pattern(3_000_000)
    waiting = set()
    for offset in range(0, len(content), 10_007):
        waiting.add(connection.start(raw.WRITE, struct.pack(">4sq", handle, offset), content[offset:offset + 10_007]))
    while waiting:
        frame = connection.frame()
        assert frame.status == raw.OK
        waiting.remove(frame.stream)
    connection.close(handle)
    assert area.get("file") == content


def test_close_waits_for_writes_before_it(connection, area):
    """Sent without waiting: the close follows all writes."""
    content = pattern(3_000_000)
    for number in range(5):
        handle = connection.create(area / f"file{number}")
        for offset in range(0, len(content), 500_009):
            connection.start(raw.WRITE, struct.pack(">4sq", handle, offset), content[offset:offset + 500_009])
        last = connection.start(raw.CLOSE, handle)
        while True:
            frame = connection.frame()
            assert frame.status == raw.OK
            if frame.stream == last:
                break
        assert area.get(f"file{number}") == content


def pages(offset, content, wrong=()):
    """Returns pages with checksums, wrong for those that begin at the given offsets."""
    out = bytearray()
    while content:
        size = 4096 - offset % 4096
        checksum = crc32c(content[:size]) ^ (offset in wrong)
        out += struct.pack(">I", checksum) + content[:size]
        content, offset = content[size:], offset + len(content[:size])
    return bytes(out)


def pgwrite(connection, handle, offset, payload, flags=0):
    """Returns the list of bad pages in the answer."""
    stream = connection.start(raw.PGWRITE, struct.pack(">4sqBB", handle, offset, 0, flags), payload)
    frame = connection.frame()
    if frame.status == raw.ERROR:
        raise Failed(struct.unpack(">i", frame.body[:4])[0], frame.body[4:].decode())
    assert (frame.stream, frame.status, len(frame.body)) == (stream, raw.STATUS, 24)
    assert struct.unpack(">I", frame.body[:4])[0] == crc32c(frame.body[4:])
    if not frame.data:
        return []
    assert struct.unpack(">I", frame.data[:4])[0] == crc32c(frame.data[4:])
    return [offset for (offset,) in struct.iter_unpack(">q", frame.data[8:])]


def test_pgwrite(connection, area):
    content = pattern(SIZE)
    handle = connection.create(area / "file")
    assert pgwrite(connection, handle, 0, pages(0, content)) == []
    assert pgwrite(connection, handle, 100, pages(100, b"x" * 5000)) == []
    connection.close(handle)
    assert area.get("file") == content[:100] + b"x" * 5000 + content[5100:]


def test_pgwrite_with_bad_pages(connection, area):
    """They are written, listed, remembered until a retry corrects them, and reported at close."""
    content = pattern(SIZE)
    handle = connection.create(area / "file")
    assert pgwrite(connection, handle, 100, pages(100, content, wrong={100, 8192})) == [100, 8192]
    assert area.get("file")[100:] == content
    refused(ErrorCode.ARG_INVALID, pgwrite, connection, handle, 100, pages(100, content[:8000]), 1)
    assert pgwrite(connection, handle, 100, pages(100, content[:3996]), 1) == []
    assert "1 uncorrected checksum error" in refused(ErrorCode.CHKSUM_ERR, connection.close, handle)
    refused(ErrorCode.FILE_NOT_OPEN, connection.close, handle)


def test_corrected_pgwrite_closes_successfully(connection, area):
    content = pattern(SIZE)
    handle = connection.create(area / "file")
    assert pgwrite(connection, handle, 0, pages(0, content, wrong={4096})) == [4096]
    assert pgwrite(connection, handle, 4096, pages(4096, content[4096:8192]), 1) == []
    connection.close(handle)
    assert area.get("file") == content


def test_pgwrite_with_too_many_bad_pages(connection, area):
    handle = connection.create(area / "file")
    content = pattern(4096 * 130)
    wrong = set(range(0, len(content), 4096))
    refused(ErrorCode.TOO_MANY_ERRS, pgwrite, connection, handle, 0, pages(0, content, wrong))
    connection.ping()


def test_pgwrite_of_no_page(connection, area):
    handle = connection.create(area / "file")
    refused(ErrorCode.ARG_INVALID, pgwrite, connection, handle, 0, b"1234")
    assert connection.closed()


def writev(connection, elements, data, options=0):
    connection.stream += 1
    body = vector(*elements)
    connection.send(raw.header(connection.stream, raw.WRITEV, bytes([options]), len(body)) + body + data)
    return connection.result(connection.stream)


@pytest.mark.parametrize("sync", [0, 1])
def test_writev(connection, area, sync):
    one, two = connection.create(area / "one"), connection.create(area / "two")
    writev(connection, [(one, 4, 0), (two, 3, 2), (one, 0, 0), (one, 2, 10)], b"AAAABBBCC", sync)
    assert area.get("one") == b"AAAA" + bytes(6) + b"CC"
    assert area.get("two") == bytes(2) + b"BBB"


def test_writev_errors_end_the_connection(server, area):
    """The position of the data is unknown."""
    for elements in ([(b"\x55" * 4, 4, 0)], [(None, -1, 0)], [(None, 1, 0)] * 1025):
        with Connection(server) as connection:
            handle = connection.open(area.put("file", b"x"), raw.O_UPDT | raw.O_FORCE)
            with pytest.raises((Failed, raw.Closed)):
                writev(connection, [(element[0] or handle, *element[1:]) for element in elements], b"data")
            assert connection.closed()


def test_sync(connection, area):
    handle = connection.create(area / "file")
    connection.write(handle, 0, b"x")
    assert connection.sync(handle) == b""
    refused(ErrorCode.FILE_NOT_OPEN, connection.sync, b"\x55" * 4)


def test_truncate_by_path_and_handle(connection, area):
    path = area.put("file", pattern(SIZE))
    connection.ask(raw.TRUNCATE, struct.pack(">4xq", 100), path.encode())
    assert area.get("file") == pattern(100)
    handle = connection.open(path, raw.O_UPDT)
    connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, 200))
    assert area.get("file") == pattern(100) + bytes(100)
    assert connection.error(raw.TRUNCATE, struct.pack(">4xq", 1), (area / "nope").encode()) == ErrorCode.NOT_FOUND
    assert connection.error(raw.TRUNCATE, struct.pack(">4sq", b"\x55" * 4, 1)) == ErrorCode.FILE_NOT_OPEN
    read_only = connection.open(area.put("other", b"x"))
    assert connection.error(raw.TRUNCATE, struct.pack(">4sq", read_only, 0)) == ErrorCode.ARG_INVALID


def test_clone(modern, modern_area):
    """Ranges copied within the server; errors like those of the real one."""
    source = modern.open(modern_area.put("source", pattern(SIZE)))
    target = modern.create(modern_area / "target")
    ranges = struct.pack(">4s4xqqq", source, 0, 4096, 4096) + struct.pack(">4s4xqqq", source, 4096, 4096, 0)
    modern.ask(raw.CLONE, target, ranges)
    assert modern_area.get("target") == pattern(SIZE)[4096:8192] + pattern(SIZE)[:4096]
    assert modern.error(raw.CLONE, target, b"xx") == ErrorCode.ARG_INVALID
    assert modern.error(raw.CLONE, target, b"") == ErrorCode.ARG_INVALID
    assert modern.error(raw.CLONE, target, struct.pack(">4s4xqqq", source, 0, 1, 0) * 1025) == ErrorCode.ARG_TOO_LONG
    assert modern.error(raw.CLONE, b"\x55" * 4, ranges) == ErrorCode.FILE_NOT_OPEN
    assert modern.error(raw.CLONE, target, struct.pack(">4s4xqqq", b"\x55" * 4, 0, 1, 0)) == ErrorCode.FILE_NOT_OPEN


# Names.


def test_stat_line(connection, area):
    path = area.put("file", pattern(SIZE))
    entry = os.stat(area.local / "file")
    words = connection.stat(path)
    assert words[1:] == [str(SIZE), "48", str(int(entry.st_mtime)), str(int(entry.st_ctime)), words[5], "0644", *names_of(entry)]
    os.chmod(area.local / "file", 0o755)
    assert connection.stat(path)[2] == "49"
    assert connection.stat(area.path)[2] == "51"
    os.mkfifo(area.local / "pipe")
    peers.give(area.local / "pipe")
    assert int(connection.stat(area / "pipe")[2]) & 4
    assert connection.stat(path)[0] == connection.stat(path)[0] != connection.stat(area.put("other"))[0]


def names_of(entry):
    import grp
    import pwd
    return pwd.getpwuid(entry.st_uid).pw_name, grp.getgrgid(entry.st_gid).gr_name


def test_stat_by_handle(connection, area):
    handle = connection.create(area / "file")
    connection.write(handle, 0, b"12345")
    assert connection.stat(handle=handle)[1] == "5"
    refused(ErrorCode.FILE_NOT_OPEN, connection.stat, None, b"\x55" * 4)


def test_stat_of_space(connection, area):
    words = connection.ask(raw.STAT, b"\1", area.path.encode()).rstrip(b"\0").decode().split()
    assert len(words) == 6 and words[0] == "1" and int(words[1]) > 0 and 0 <= int(words[2]) <= 100
    assert words[3:] == ["0", "0", "0"]


def test_stat_errors(connection, area):
    assert "Unable to locate" in refused(ErrorCode.NOT_FOUND, connection.stat, area / "nope")
    area.put("file")
    refused(ErrorCode.FS_ERROR, connection.stat, area / "file/")


def test_statx(connection, area):
    area.put("file")
    area.mkdir("folder")
    assert connection.ask(raw.STATX, b"", f"{area / 'file'}\n{area / 'folder'}".encode()) in (b"\0\2", b"\x30\x33")
    assert connection.error(raw.STATX, b"", f"{area / 'file'}\n{area / 'nope'}".encode()) == ErrorCode.NOT_FOUND


def listing(connection, path, options=0):
    return connection.ask(raw.DIRLIST, struct.pack(">15xB", options), path.encode())


def test_dirlist_plain(connection, area):
    assert listing(connection, area.path) == b""
    for name in ("a", "b", "c"):
        area.put(name)
    answer = listing(connection, area.path)
    assert answer[-1] == 0 and sorted(answer[:-1].split(b"\n")) == [b"a", b"b", b"c"]


def test_dirlist_with_stat(connection, area):
    assert listing(connection, area.path, 2) == b".\n0 0 0 0\0"
    path = area.put("file", pattern(SIZE))
    answer = listing(connection, area.path, 2)
    lead, name, stat = answer[:-1].split(b"\n", 2)[0], answer.split(b"\n")[2], answer[:-1].split(b"\n")[3]
    assert (lead, name) == (b".", b"file")
    assert stat.decode().split() == connection.stat(path)


def test_dirlist_with_checksums(connection, area):
    path = area.put("file", b"123456789")
    assert listing(connection, area.path, 4).endswith(b" [ adler32:none ]\0")
    connection.ask(raw.QUERY, struct.pack(">H", 3), path.encode())
    assert listing(connection, area.path, 6).endswith(b" [ adler32:091e01de ]\0")
    assert listing(connection, area.path + "?cks.type=md5", 4).endswith(b" [ md5:none ]\0")
    refused(ErrorCode.SERVER_ERROR, listing, connection, area.path + "?cks.type=foo", 4)


@pytest.mark.parametrize("option", [1, 8], ids=["online", "dstatx"])
def test_dirlist_options_without_effect(connection, area, option):
    area.put("file")
    assert listing(connection, area.path, option) == b"file\0"


def test_dirlist_errors(connection, area):
    refused(ErrorCode.NOT_FOUND, listing, connection, area / "nope")
    refused(ErrorCode.FS_ERROR, listing, connection, area.put("file"))


def mkdir(connection, path, mode=0o755, options=0):
    return connection.ask(raw.MKDIR, struct.pack(">B13xH", options, mode), path.encode())


def test_mkdir(connection, area):
    mkdir(connection, area / "a", 0o750)
    assert mode_of(area.local / "a") == 0o750
    mkdir(connection, area / "a", 0o750)
    refused(ErrorCode.IT_EXISTS, mkdir, connection, area / "a", 0o700)
    refused(ErrorCode.NOT_FOUND, mkdir, connection, area / "x/y")
    mkdir(connection, area / "x/y", 0o755, 1)
    mkdir(connection, area / "x/y", 0o755, 1)
    refused(ErrorCode.NOT_AUTHORIZED, mkdir, connection, "/../x")


def test_mv(connection, area):
    path = area.put("with blank", b"content")
    target = area / "deep/down/with another"
    connection.ask(raw.MV, struct.pack(">14xh", len(path)), f"{path} {target}".encode())
    assert area.get("deep/down/with another") == b"content"
    one, two = area.put("one", b"1"), area.put("two", b"2")
    connection.ask(raw.MV, b"", f"{one} {two}".encode())
    assert area.get("two") == b"1" and not (area.local / "one").exists()
    assert connection.error(raw.MV, struct.pack(">14xh", 3), f"{one} {two}".encode()) == ErrorCode.ARG_INVALID
    assert connection.error(raw.MV, b"", two.encode()) in (ErrorCode.ARG_MISSING, ErrorCode.NOT_AUTHORIZED)
    assert connection.error(raw.MV, b"", f"{one} {two}".encode()) == ErrorCode.NOT_FOUND
    connection.ask(raw.MV, struct.pack(">14xh", len(two) + 4), f"{two}?a=b {one}?c=d".encode())
    assert area.get("one") == b"1"


def test_rm(connection, area):
    path = area.put("file")
    connection.ask(raw.RM, b"", path.encode())
    assert connection.error(raw.RM, b"", path.encode()) == ErrorCode.NOT_FOUND
    area.mkdir("empty")
    connection.ask(raw.RM, b"", (area / "empty").encode())
    assert os.listdir(area.local) == []


def test_rmdir(connection, area):
    area.mkdir("folder")
    connection.ask(raw.RMDIR, b"", (area / "folder").encode())
    connection.ask(raw.RMDIR, b"", (area / "folder").encode())
    assert connection.error(raw.RMDIR, b"", area.put("file").encode()) == ErrorCode.FS_ERROR


def test_rmdir_of_a_directory_with_entries(modern, modern_area):
    """3018 since 6.0, 3005 before."""
    modern_area.put("full/file")
    for code in (raw.RM, raw.RMDIR):
        assert modern.error(code, b"", (modern_area / "full").encode()) == ErrorCode.IT_EXISTS
    assert (modern_area.local / "full/file").exists()


def test_chmod(connection, area):
    path = area.put("file")
    connection.ask(raw.CHMOD, struct.pack(">14xH", 0o640), path.encode())
    assert mode_of(area.local / "file") == 0o640
    assert connection.error(raw.CHMOD, struct.pack(">14xH", 0o644), (area / "nope").encode()) == ErrorCode.NOT_FOUND


# Attributes.


def names(*given):
    return b"".join(struct.pack(">H", 0) + name + b"\0" for name in given)


def values(*given):
    return b"".join(struct.pack(">i", len(value)) + value for value in given)


def fattr(connection, subcode, target, count, payload=b"", options=0, handle=b""):
    return connection.ask(raw.FATTR, struct.pack(">4sBBB", handle, subcode, count, options), target + b"\0" + payload)


DEL, GET, LIST, SET = range(4)


def test_fattr_by_path(connection, area):
    path = area.put("file").encode()
    assert fattr(connection, SET, path, 2, names(b"a", b"b") + values(b"1", b"")) == b"\0\2" + names(b"a", b"b")
    assert os.getxattr(area.local / "file", "user.U.a") == b"1"
    missing = struct.pack(">H", ErrorCode.ATTR_NOT_FOUND) + b"c\0"
    assert fattr(connection, GET, path, 2, names(b"a", b"c")) == b"\1\2" + names(b"a") + missing + values(b"1", b"")
    assert sorted(fattr(connection, LIST, path, 0).rstrip(b"\0").split(b"\0")) == [b"a", b"b"]
    listed = fattr(connection, LIST, path, 0, options=0x10)
    assert listed in (b"a\0" + values(b"1") + b"b\0" + values(b""), b"b\0" + values(b"") + b"a\0" + values(b"1"))
    assert fattr(connection, DEL, path, 2, names(b"a", b"c")) == b"\1\2" + names(b"a") + missing
    assert fattr(connection, SET, path, 1, names(b"b") + values(b"x"), options=1) == b"\1\1" + struct.pack(">H", ErrorCode.IT_EXISTS) + b"b\0"


def test_fattr_by_handle(connection, area):
    handle = connection.create(area / "file")
    assert fattr(connection, SET, b"", 1, names(b"a") + values(b"1"), handle=handle) == b"\0\1" + names(b"a")
    assert fattr(connection, GET, b"", 1, names(b"a"), handle=handle) == b"\0\1" + names(b"a") + values(b"1")
    connection.close(handle)
    handle = connection.open(area / "file")
    assert fattr(connection, LIST, b"", 0, handle=handle) == b"a\0"
    refused(ErrorCode.INVALID_REQUEST, fattr, connection, SET, b"", 1, names(b"b") + values(b"1"), 0, handle)
    refused(ErrorCode.FILE_NOT_OPEN, fattr, connection, LIST, b"", 0, b"", 0, b"\x55" * 4)


def test_fattr_of_a_missing_file(connection, area):
    """An answer, with the error in each attribute."""
    assert fattr(connection, GET, (area / "nope").encode(), 1, names(b"a")) == b"\1\1" + struct.pack(">H", ErrorCode.NOT_FOUND) + b"a\0" + values(b"")


def test_fattr_errors(connection, area):
    path = area.put("file").encode()
    refused(ErrorCode.ARG_INVALID, fattr, connection, 7, path, 1, names(b"a"))
    refused(ErrorCode.ARG_INVALID, fattr, connection, GET, path, 17, names(*[b"a"] * 17))
    refused(ErrorCode.ARG_INVALID, fattr, connection, GET, path, 0, b"")
    with pytest.raises(Failed) as failed:
        fattr(connection, GET, path, 1, b"\0")
    assert failed.value.code in (ErrorCode.ARG_MISSING, ErrorCode.BAD_PAYLOAD)
    assert connection.error(raw.FATTR, struct.pack(">4sBB", b"", GET, 1)) == ErrorCode.ARG_MISSING
    connection.ping()


def test_fattr_limits(connection, area):
    path = area.put("file").encode()
    assert fattr(connection, SET, path, 1, names(b"n" * 248) + values(b"x")) [:2] in (b"\0\1", b"\1\1")
    with pytest.raises(Failed):
        fattr(connection, SET, path, 1, names(b"n" * 249) + values(b"x"))
    with pytest.raises(Failed):
        fattr(connection, SET, path, 1, names(b"n") + values(b"x" * 65537))
    sixteen = [b"k%d" % number for number in range(16)]
    assert fattr(connection, SET, path, 16, names(*sixteen) + values(*[b"v"] * 16))[:2] == b"\0\x10"


def test_fattr_hides_attributes_of_other_namespaces(connection, area):
    path = area.put("file", b"123456789")
    connection.ask(raw.QUERY, struct.pack(">H", 3), path.encode())
    os.setxattr(area.local / "file", "user.other", b"x")
    assert fattr(connection, LIST, path.encode(), 0) == b""


# Queries.


def query(connection, kind, argument=b"", handle=b""):
    argument = argument if isinstance(argument, bytes) else argument.encode()
    return connection.ask(raw.QUERY, struct.pack(">H2x4s", kind, handle), argument)


@pytest.mark.parametrize("letter", "abdilpsu")
def test_query_stats(connection, letter):
    text = query(connection, 1, letter).rstrip(b"\0").decode()
    assert text.startswith("<statistics ") and text.endswith("</statistics>")


def test_query_stats_is_valid(connection):
    from xml.etree import ElementTree
    root = ElementTree.fromstring(query(connection, 1, b"a").rstrip(b"\0"))
    assert {"tod", "ver", "src", "tos", "pgm", "ins", "pid"} <= set(root.attrib)
    assert {"info", "link", "xrootd"} <= {part.attrib.get("id") for part in root}


def test_query_stats_counts_operations(server, connection, area):
    """At the latest when the connection has ended, when the real server updates its totals."""
    from xml.etree import ElementTree

    def counted():
        root = ElementTree.fromstring(query(connection, 1, b"lp").rstrip(b"\0"))
        assert int(root.findtext("stats[@id='link']/maxn")) >= int(root.findtext("stats[@id='link']/num")) >= 1
        return {part.tag: int(part.text) for part in root.find("stats[@id='xrootd']/ops")}

    before = counted()
    with Connection(server) as other:
        handle = other.create(area / "file")
        other.write(handle, 0, pattern(5000))
        writev(other, [(handle, 4, 0), (handle, 3, 100)], b"AAAABBB")
        other.sync(handle)
        other.read(handle, 0, 10)
        other.read(handle, 20, 10)
        other.ask(raw.READV, b"", vector((handle, 10, 5), (handle, 3, 1), (handle, 4, 40)))
    expected = {"open": 1, "wr": 1, "wv": 1, "ws": 2, "sync": 1, "rd": 2, "rv": 1, "rs": 3}

    def difference():
        after = counted()
        return {name: after[name] - before[name] for name in expected}

    wait_until(lambda: difference() == expected)


def test_query_prepare(connection, area):
    path = area.put("file")
    request = prepare(connection, [path], 8).decode()
    assert query(connection, 2, f"{request}\n{path}")
    refused(ErrorCode.ARG_INVALID, query, connection, 2, f"nonsense\n{path}")


def test_query_config_keys(connection):
    for key, value in (("bind_max", b"15\n"), ("pio_max", b"5\n"), ("readv_ior_max", b"2097136\n"), ("readv_iov_max", b"1024\n"), ("fattr", b"248 65536\n"), ("nosuch", b"nosuch\n"),
                       ("bind_max pio_max nosuch", b"15\n5\nnosuch\n"), ("readv_iov_max\0", b"1024\n")):
        assert query(connection, 7, key) == value, key
    refused_code = connection.error(raw.QUERY, struct.pack(">H", 7))
    assert refused_code in (ErrorCode.ARG_MISSING, ErrorCode.FILE_NOT_OPEN)


def test_query_config_too_long(connection):
    assert connection.error(raw.QUERY, struct.pack(">H", 7), b" ".join([b"unknown-key"] * 600)) == ErrorCode.ARG_TOO_LONG


def test_query_space_and_attributes(connection, area):
    space = query(connection, 5, area.path).rstrip(b"\0").split(b"&")
    assert [part.split(b"=")[0] for part in space] == [b"oss.cgroup", b"oss.space", b"oss.free", b"oss.maxf", b"oss.used", b"oss.quota"]
    text = query(connection, 4, area.put("file", b"12345")).split(b"\0")[0].split(b"&")
    assert b"oss.type=f" in text and b"oss.used=5" in text and b"ofs.ap=a" in text
    assert b"oss.type=d" in query(connection, 4, area.path)
    refused(ErrorCode.NOT_FOUND, query, connection, 4, area / "nope")


@pytest.mark.parametrize("kind, argument", [(16, "opaque"), (32, "/x?args")], ids=["opaque", "opaquf"])
def test_query_of_missing_plugins(connection, kind, argument):
    refused(ErrorCode.UNSUPPORTED, query, connection, kind, argument)


def test_query_fsinfo(modern):
    refused(ErrorCode.UNSUPPORTED, query, modern, 10, "/")


def test_query_by_handle(connection, area):
    handle = connection.open(area.put("file", b"x"))
    refused(ErrorCode.UNSUPPORTED, query, connection, 8, b"", handle)
    refused(ErrorCode.UNSUPPORTED, query, connection, 64, b"x", handle)
    assert connection.error(raw.QUERY, struct.pack(">H2x4s", 8, b"\x55" * 4)) == ErrorCode.FILE_NOT_OPEN


def test_query_of_an_unknown_kind(connection):
    refused(ErrorCode.ARG_INVALID, query, connection, 99, "x")


def test_deferred_checksum_arrives(modern, modern_area):
    """Too large to wait for: `waitresp` first, then the deferred answer."""
    path = modern_area.put("file", pattern(30_000_000))
    answer = query(modern, 3, path + "?cks.type=md5")
    assert answer.split()[0] == b"md5" and len(answer.rstrip(b"\0").split()[1]) == 32
    assert query(modern, 6, path) == b""


def test_concurrent_queries_of_one_checksum(modern, modern_area):
    """Computed once, sent to all."""
    path = modern_area.put("file", pattern(20_000_000))
    with Connection(modern_area.server) as two, Connection(modern_area.server) as three:
        answers = {query(connection, 3, path) for connection in (modern, two, three)}
    assert len(answers) == 1


def locate(connection, path, options=0):
    return connection.ask(raw.LOCATE, struct.pack(">H", options), path.encode())


@pytest.mark.parametrize("options", [0, 1, 4, 0x80, 0x400, 0x2000], ids=["none", "compress", "force", "refresh", "4dirlist", "nowait"])
def test_locate(connection, area, options):
    path = area.put("file")
    for wanted in (path, "*", "*" + area.path):
        text = locate(connection, wanted, options)
        assert text[:2] == b"Sw" and text.endswith(b"]:%d\0" % area.server.port), text


def test_locate_by_name(connection, area):
    text = locate(connection, area.put("file"), 0x100)
    assert text.startswith(b"Sw") and text.endswith(b":%d\0" % area.server.port)


def test_locate_errors(connection):
    refused(ErrorCode.NOT_AUTHORIZED, locate, connection, "/../x")


def prepare(connection, paths, options=0, more=0, priority=0):
    return connection.ask(raw.PREPARE, struct.pack(">BBHH", options, priority, 0, more), "\n".join(paths).encode())


def test_prepare(connection, area):
    one, two = area.put("one"), area.put("two")
    assert prepare(connection, [one]) == b""
    request = prepare(connection, [one, two], 8)
    assert request and b"\0" not in request
    assert prepare(connection, [one], 8 | 16 | 32 | 64, priority=3)
    assert prepare(connection, [one], 0, 1) == b""
    assert connection.ask(raw.PREPARE, b"\1", request) == b""


def test_prepare_errors(connection, area):
    assert connection.error(raw.PREPARE, b"\1", b"badid") == ErrorCode.ARG_INVALID
    assert connection.error(raw.PREPARE, b"\0", b"/../x") == ErrorCode.NOT_AUTHORIZED
