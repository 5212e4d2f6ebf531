"""A proxy (`ofs.osslib libXrdPss.so`) between real programs and origins: ours in front of the real server and
of ours, and the real proxy in front of ours."""

import os
import socket
import struct
import threading
import time
import zlib

import pytest

import between
import clusters
import hollow
import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Proxy, Recorder, check_silent, check_stopped
from tools import data, run, wait_until, xrdcp, xrdfs

class TheirProxy(peers.Theirs):
    """The real proxy."""

    def __init__(self, origin, **how):
        super().__init__(settings=f"ofs.osslib libXrdPss.so\npss.origin {origin}\n", **how)


def fill(server):
    """Creates the files of the tests."""
    for name in ("d", "d/e"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
    for path, content in [("f", CONTENT), ("empty", b""), ("d/small", b"small\n"), ("d/e/x y", b"blank\n")]:
        peers.place(server.tree / path, content)
        os.utime(server.tree / path, (1_700_000_000, 1_700_000_000))


@pytest.fixture(scope="module", params=[peers.Ours, peers.Theirs], ids=["ours", "theirs"])
def origin(request):
    server = request.param()
    fill(server)
    with server:
        yield server


@pytest.fixture(scope="module")
def proxy(origin):
    with Proxy(origin.host) as server:
        yield server


def test_names_and_status_are_those_of_the_origin(proxy, origin):
    for words in (["ls", "/"], ["ls", "-l", "/d"], ["ls", "-R", "/"], ["stat", "/f"], ["stat", "/d"]):
        found, expected = xrdfs(proxy, *words).ok(), xrdfs(origin, *words).ok()
        clean = [sorted(line for line in result.out.splitlines() if not line.startswith("Id:")) for result in (found, expected)]
        assert clean[0] == clean[1], words


def test_a_proxy_describes_itself(proxy, origin):
    assert xrdfs(proxy, "query", "config", "proxy").ok().out.strip() == origin.host
    assert xrdfs(origin, "query", "config", "proxy").ok().out.strip() == "proxy"
    connection = raw.Connection(proxy, login=False)
    assert struct.unpack(">I", connection.hello()[4:8])[0] & 0x200, "no flag of a proxy"
    located = xrdfs(proxy, "locate", "/f").ok().out
    assert f":{proxy.port} " in located and "ReadWrite" in located, located
    xrdfs(proxy, "locate", "/none").fails(54)


def test_files_are_read_in_every_way(proxy, tmp_path):
    assert xrdfs(proxy, "cat", "/f").ok().raw == CONTENT
    for more in ([], ["-S", "4"], ["--cksum", "adler32:source"], ["--cksum", f"adler32:{zlib.adler32(CONTENT):08x}"]):
        xrdcp("-f", *more, proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT, more
    (tmp_path / "tree").mkdir()
    xrdcp("-f", "-r", proxy.url("/d"), tmp_path / "tree").ok()
    xrdcp(proxy.url("/empty"), tmp_path / "empty").ok()
    assert (tmp_path / "empty").read_bytes() == b""
    assert sorted(path.name for path in (tmp_path / "tree").rglob("*") if path.is_file()) == ["small", "x y"]


def test_vectors_and_ends_of_files_are_read(proxy):
    connection = raw.Connection(proxy)
    handle = connection.open("/f")
    assert connection.read(handle, SIZE - 5, 100) == CONTENT[-5:]
    assert connection.read(handle, SIZE + 5, 100) == b""
    pieces = [(offset, 1 + offset % 500) for offset in range(0, SIZE - 600, 7919)]
    payload = b"".join(struct.pack(">4siq", handle, length, offset) for offset, length in pieces)
    answer = connection.ask(raw.READV, payload=payload)
    for offset, length in pieces:
        head, answer = answer[:16], answer[16:]
        assert struct.unpack(">4xiq", head) == (length, offset)
        assert answer[:length] == CONTENT[offset:offset + length]
        answer = answer[length:]
    assert answer == b""
    connection.close(handle)
    assert connection.error(raw.CLOSE, handle) == ErrorCode.FILE_NOT_OPEN


def test_the_checksums_of_the_origin_are_returned(proxy, origin):
    for kind in ("adler32", "crc32c", "md5"):
        found = xrdfs(proxy, "query", "checksum", f"/f?cks.type={kind}")
        if origin.kind == "theirs" and found.status:
            continue
        assert found.ok().out == xrdfs(origin, "query", "checksum", f"/f?cks.type={kind}").ok().out
    xrdfs(proxy, "query", "checksum", "/f?cks.type=sha1").fails(54, "not supported")


def test_errors_of_the_origin_keep_their_codes(proxy):
    connection = raw.Connection(proxy)
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.STAT, bytes(16), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/d") == ErrorCode.IS_DIRECTORY
    # The real server has another code for a directory with entries.
    assert connection.error(raw.RMDIR, payload=b"/d") in (ErrorCode.IT_EXISTS, ErrorCode.FS_ERROR)


def test_operations_that_a_proxy_does_not_have_are_refused(proxy):
    connection = raw.Connection(proxy)
    assert connection.error(raw.CHMOD, bytes(14) + b"\x01\xa4", b"/f") == ErrorCode.UNSUPPORTED
    xrdfs(proxy, "xattr", "/f", "set", "a=b").fails(54)
    assert connection.stat("/f")[1] == str(SIZE)


def test_space_is_that_of_the_origin(proxy, origin):
    found, expected = (xrdfs(server, "spaceinfo", "/").ok().out.splitlines() for server in (proxy, origin))
    total = [next(line for line in lines if line.startswith("Total")) for lines in (found, expected)]
    assert total[0] == total[1]


def test_files_and_names_are_changed(proxy, origin, tmp_path):
    content = data(2_000_003)
    (tmp_path / "new").write_bytes(content)
    xrdcp(tmp_path / "new", proxy.url("/w/deep/new")).ok()
    assert (origin.tree / "w/deep/new").read_bytes() == content
    # Clients of XRootD 6 leave the refusal to the server.
    xrdcp(tmp_path / "new", proxy.url("/w/deep/new")).fails(54 if peers.real_release() >= 6 else 50, "file exists")
    xrdcp("-f", "--cksum", "adler32:source", tmp_path / "new", proxy.url("/w/deep/new")).ok()
    xrdfs(proxy, "mkdir", "/w/made").ok()
    xrdfs(proxy, "mkdir", "-p", "/w/a/b/c").ok()
    xrdfs(proxy, "mkdir", "/w/none/d").fails(54)
    xrdfs(proxy, "truncate", "/w/deep/new", "1000").ok()
    assert (origin.tree / "w/deep/new").read_bytes() == content[:1000]
    xrdfs(proxy, "mv", "/w/deep/new", "/w/made/moved").ok()
    assert (origin.tree / "w/made/moved").read_bytes() == content[:1000]
    xrdfs(proxy, "rmdir", "/w/made").fails(54)
    xrdfs(proxy, "rm", "/w/made/moved").ok()
    xrdfs(proxy, "rmdir", "/w/made").ok()
    xrdfs(proxy, "rm", "/w/made/moved").fails(54)
    assert not (origin.tree / "w/made").exists()


def test_an_open_file_is_written_and_read(proxy, origin):
    connection = raw.Connection(proxy)
    handle = connection.create("/w2/f")
    connection.write(handle, 0, CONTENT[:100_000])
    connection.write(handle, 4096, b"x" * 10)
    connection.sync(handle)
    assert connection.read(handle, 4090, 20) == CONTENT[4090:4096] + b"x" * 10 + CONTENT[4106:4110]
    assert connection.stat(handle=handle)[1] == "100000"
    connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, 5000))
    connection.close(handle)
    assert (origin.tree / "w2/f").read_bytes() == CONTENT[:4096] + b"x" * 10 + CONTENT[4106:5000]
    # Without the option, missing directories are not created.
    assert connection.error(raw.OPEN, struct.pack(">HH", 0o644, raw.O_NEW | raw.O_UPDT), b"/none/f") == ErrorCode.NOT_FOUND


def elements(target):
    path, _, cgi = target.partition("?")
    return path, dict(element.partition("=")[::2] for element in cgi.split("&") if element)


def test_the_origin_gets_opaque_text_without_the_parts_for_clients():
    with Recorder() as fake, Proxy(fake.host, "pss.localroot /store\npss.hostarena /arena", export="/tape stage\nall.export /") as proxy:
        connection = raw.Connection(proxy)
        connection.stat("/f?authz=secret&xrd.wantprot=gsi&xrdcl.x=1&tried=h&pfc.blocksize=1k")
        path, cgi = elements(fake.paths[-1])
        assert path == "/arena/store/f"
        assert {key: value for key, value in cgi.items() if key != "pss.tid"} == {"pss.hops": "1", "authz": "secret", "tried": "h", "pfc.blocksize": "1k", "oss.lcl": "1"}
        assert cgi["pss.tid"].startswith("tester.1234@")
        connection.stat("/f")
        assert set(elements(fake.paths[-1])[1]) == {"pss.tid", "pss.hops", "oss.lcl"}
        connection.stat("/tape/f")
        assert set(elements(fake.paths[-1])[1]) == {"pss.tid", "pss.hops"}
        assert all(user.startswith((b"p", b"n", b"s")) for user in fake.users)
        # The stat of the directory in which a file is created has the credentials of its open.
        connection.start(raw.OPEN, struct.pack(">HH", 0o644, raw.O_NEW | raw.O_UPDT), b"/d/new?authz=secret")
        connection.answer()
        path, cgi = elements(fake.paths[-2])
        assert (path, cgi["authz"]) == ("/arena/store/d", "secret")


class SlowOpens(Recorder):
    """Answers opens when it is allowed to."""

    def __init__(self):
        super().__init__()
        self.allowed = threading.Event()
        self.closes = 0

    def _reply(self, code, body, argument):
        if code == raw.OPEN:
            self.paths.append(argument.decode())
            self.allowed.wait(60)
            yield raw.OK, bytes(12)
        else:
            self.closes += code == raw.CLOSE
            yield from super()._reply(code, body, argument)


def test_the_file_of_a_client_that_has_left_is_closed():
    """Others use the connection to the origin, so its end does not close the file."""
    with SlowOpens() as fake, Proxy(fake.host) as proxy:
        client = raw.Connection(proxy)
        client.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/f")
        wait_until(lambda: fake.paths)
        client.vanish()
        # The proxy looks each second whether the client of a request is there.
        time.sleep(2.5)
        fake.allowed.set()
        wait_until(lambda: fake.closes == 1)


def test_nothing_goes_out_for_a_refused_operation():
    with Recorder() as fake, Proxy(fake.host, export="/f r/o\nall.export /low forcero") as proxy:
        connection = raw.Connection(proxy)
        assert connection.error(raw.RM, payload=b"/f") == ErrorCode.FS_READ_ONLY
        assert connection.error(raw.MKDIR, struct.pack(">B13xH", 1, 0o755), b"/f/d") == ErrorCode.FS_READ_ONLY
        assert connection.error(raw.OPEN, struct.pack(">HH", 0o644, raw.O_UPDT), b"/f") == ErrorCode.FS_READ_ONLY
        assert connection.error(raw.STAT, bytes(16), b"/elsewhere") == ErrorCode.NOT_AUTHORIZED
        assert fake.paths == []
        # Such an export turns an open for writing into one for reading.
        handle = connection.open("/low/f", raw.O_UPDT)
        assert connection.error(raw.WRITE, struct.pack(">4sqB", handle, 0, 0), b"x") != 0
        assert connection.read(handle, 0, 10) == CONTENT[:10]


def test_a_short_answer_of_the_origin_is_not_the_end():
    with hollow.ShortReads(CONTENT, 1000) as fake, Proxy(fake.host) as proxy:
        assert xrdfs(proxy, "cat", "/f").ok().raw == CONTENT


def test_a_page_that_is_damaged_on_the_way_is_read_again(origin, tmp_path):
    with between.Between(origin, flip_down=[200_000]) as line, Proxy(line.host) as proxy:
        xrdcp(proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT


class Surplus(Recorder):
    """Sends more bytes than requested."""

    def read(self, offset, count):
        return self.content[offset:offset + count] + b"surplus"


def test_more_bytes_than_requested_are_an_error():
    with Surplus() as fake, Proxy(fake.host) as proxy:
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        assert connection.error(raw.READ, struct.pack(">4sqi", handle, 0, 100)) == ErrorCode.FS_ERROR
        assert connection.ping() == b"" and proxy.alive()


@pytest.fixture
def black_hole():
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_origin_that_never_answers_is_an_error(black_hole):
    check_silent(black_hole)


def test_a_stopped_origin_fails_readers_and_returns():
    origin = peers.Theirs()
    fill(origin)
    check_stopped(origin, lambda: origin.host)


def test_an_origin_that_dies_during_reads_is_used_again():
    origin = peers.Theirs()
    fill(origin)
    with origin, Proxy(origin.host) as proxy:
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 100) == CONTENT[:100]
        origin.kill()
        assert connection.error(raw.READ, struct.pack(">4sqi", handle, 100, 100)) in (ErrorCode.NO_SERVER, ErrorCode.FS_ERROR)
        origin.start()
        wait_until(lambda: xrdfs(proxy, "stat", "/f").status == 0)
        assert connection.read(handle, 100, 100) == CONTENT[100:200]


def forwarded(server, path="/f"):
    return f"/root:/localhost:{server.port}/{path}"


def test_paths_name_their_origins(origin, tmp_path):
    with Proxy("= " + origin.host, "pss.permit localhost\npss.permit 127.0.0.*", export="/root:/\nall.export /") as proxy:
        assert xrdfs(proxy, "query", "config", "proxy").ok().out.strip() == f"= {origin.host}"
        xrdcp(proxy.url(forwarded(origin)), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        xrdcp(proxy.url("/f"), tmp_path / "g").ok()
        assert (tmp_path / "g").read_bytes() == CONTENT
        connection = raw.Connection(proxy)
        assert connection.error(raw.STAT, bytes(16), b"/http:/localhost:1/f") == ErrorCode.NOT_AUTHORIZED


def test_an_origin_that_is_not_permitted_is_not_contacted(black_hole):
    with Recorder() as fake, Proxy("=", "pss.permit *.example.org", export="/root:/") as proxy:
        connection = raw.Connection(proxy)
        assert connection.error(raw.STAT, bytes(16), f"/root:/{fake.host}//f".encode()) == ErrorCode.NOT_AUTHORIZED
        assert connection.error(raw.STAT, bytes(16), b"/f") == ErrorCode.NOT_AUTHORIZED
        assert fake.users == set()


class Redirecting(Recorder):
    """Redirects each open."""

    def __init__(self, target):
        super().__init__()
        self.target = target

    def _reply(self, code, body, argument):
        if code == raw.OPEN:
            host, port = self.target
            yield raw.REDIRECT, struct.pack(">i", port) + host
        else:
            yield from super()._reply(code, body, argument)


def test_a_redirect_to_a_host_that_is_not_permitted_is_not_followed():
    with Recorder() as forbidden, Redirecting((b"localhost", forbidden.port)) as fake:
        with Proxy("=", "pss.permit 127.0.0.9\npss.permit 127.0.0.1", export="/root:/") as proxy:
            # 127.0.0.1 is permitted by its address, whatever its name.
            connection = raw.Connection(proxy)
            handle = connection.open(f"/root:/{fake.host}//f")
            connection.close(handle)
        forbidden.users.clear()
        fake.target = (b"127.0.0.2", forbidden.port)
        with Proxy("=", "pss.permit 127.0.0.1", export="/root:/") as proxy:
            connection = raw.Connection(proxy)
            assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), f"/root:/{fake.host}//f".encode()) == ErrorCode.NOT_AUTHORIZED
            assert forbidden.users == set()


def test_a_dead_origin_does_not_delay_readers_of_another(origin, black_hole):
    with Proxy("= " + origin.host, export="/root:/\nall.export /") as proxy:
        stuck = [raw.Connection(proxy) for _ in range(20)]
        streams = [connection.start(raw.STAT, bytes(16), f"/root:/{black_hole}//f".encode()) for connection in stuck]
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        for offset in range(0, SIZE - 1000, 50_000):
            assert connection.read(handle, offset, 1000) == CONTENT[offset:offset + 1000]
        # None of the others has its answer yet.
        for waiting, stream in zip(stuck, streams):
            with pytest.raises(raw.Failed) as failed:
                waiting.result(stream)
            assert failed.value.code == ErrorCode.NO_SERVER


def test_the_real_proxy_serves_our_files(tmp_path):
    origin = peers.Ours()
    fill(origin)
    with origin, TheirProxy(origin.host) as proxy:
        xrdcp(proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        assert "small" in xrdfs(proxy, "ls", "/d").ok().out
        xrdcp(tmp_path / "f", proxy.url("/new")).ok()
        assert (origin.tree / "new").read_bytes() == CONTENT


@pytest.mark.parametrize("maker", ["real", "ours"])
def test_an_origin_can_be_a_manager(maker, tmp_path):
    with clusters.Cluster(clusters.Plan("man manager\ns1 server man\ns2 server man\n"), maker) as cluster:
        cluster.answering().complete()
        area = clusters.Area(cluster)
        area.put("one", CONTENT, "s1")
        area.put("two", b"two", "s2")
        with Proxy(cluster.man.host) as proxy:
            assert sorted(xrdfs(proxy, "ls", area.path).ok().out.split()) == [area / "one", area / "two"]
            xrdcp(proxy.url(area / "one"), tmp_path / "one").ok()
            assert (tmp_path / "one").read_bytes() == CONTENT
            xrdcp(tmp_path / "one", proxy.url(area / "new")).ok()
            assert area.get("new") == CONTENT
            xrdfs(proxy, "rm", area / "two").ok()
            xrdfs(proxy, "stat", area / "two").fails(54)


def test_a_command_line_without_a_file_serves_an_origin(origin, tmp_path):
    server = peers.Ours()
    server.command = lambda: [peers.program(), "serve", "--origin", f"root://{origin.host}", "--port", "0", "--read-only", "--admin-path", server.work / "admin"]
    with server:
        xrdcp(server.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        xrdfs(server, "rm", "/f").fails(54, "read-only")
        assert (origin.tree / "f").exists()


def test_the_role_of_a_proxy_needs_no_library(origin):
    with peers.Linked(settings=f"all.role proxy server\npss.origin {origin.host}\n") as proxy:
        assert xrdfs(proxy, "cat", "/d/small").ok().raw == b"small\n"


def test_a_proxy_serves_a_proxy(origin, tmp_path):
    with Proxy(origin.host) as inner, Proxy(inner.host) as outer:
        xrdcp("-S", "4", outer.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT


PYTHON = """
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
url, size = sys.argv[1], int(sys.argv[2])
file = client.File()
status, _ = file.open(url, OpenFlags.READ)
assert status.ok, status.message
status, found = file.vector_read([(0, 10), (100, 1000), (size - 7, 7)])
assert status.ok, status.message
status, data = file.read(5, 20)
assert status.ok, status.message
sys.stdout.buffer.write(b"".join(chunk.buffer for chunk in found.chunks) + data)
"""


def test_the_python_client_reads_through_a_proxy(proxy):
    found = run(["/usr/bin/python3", "-c", PYTHON, proxy.url("/f"), SIZE]).ok().raw
    assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]
