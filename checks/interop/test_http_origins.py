"""A proxy in front of web servers: one of Python, and the real server with its HTTP protocol."""

import os
import socket
import struct
import zlib

import pytest

import certificates
import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Proxy, check_silent, check_stopped
from test_cache import Cache
from test_proxy import PYTHON, fill
from tools import run, wait_until, xrdcp, xrdfs
from web import TheirWebServer, WebServer


@pytest.fixture(scope="module")
def web():
    with WebServer() as server:
        server.place("/f", CONTENT)
        server.place("/empty", b"")
        server.place("/d/small", b"small\n")
        server.place("/d/e/x%20y", b"blank\n")
        yield server


@pytest.fixture(scope="module")
def theirs():
    server = TheirWebServer()
    fill(server)
    with server:
        yield server


@pytest.fixture(scope="module", params=["web", "theirs"])
def proxy(request):
    with Proxy(request.getfixturevalue(request.param).origin) as server:
        yield server


def test_files_are_read_in_every_way(proxy, tmp_path):
    assert xrdfs(proxy, "cat", "/f").ok().raw == CONTENT
    for more in ([], ["-S", "4"]):
        xrdcp("-f", *more, proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT, more
    for name, content in [("empty", b""), ("d/small", b"small\n"), ("d/e/x y", b"blank\n")]:
        xrdcp("-f", proxy.url(f"/{name}"), tmp_path / "g").ok()
        assert (tmp_path / "g").read_bytes() == content
    found = run(["/usr/bin/python3", "-c", PYTHON, proxy.url("/f"), SIZE]).ok().raw
    assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]


def test_vectors_and_ends_of_files_are_read(proxy):
    connection = raw.Connection(proxy)
    handle = connection.open("/f")
    assert connection.read(handle, SIZE - 10, 100) == CONTENT[-10:]
    assert connection.read(handle, SIZE, 100) == b""
    pieces = [(offset, 1 + offset % 500) for offset in range(0, SIZE - 600, 7919)]
    payload = b"".join(struct.pack(">4siq", handle, length, offset) for offset, length in pieces)
    answer = connection.ask(raw.READV, payload=payload)
    for offset, length in pieces:
        head, answer = answer[:16], answer[16:]
        assert struct.unpack(">4xiq", head) == (length, offset)
        assert answer[:length] == CONTENT[offset:offset + length]
        answer = answer[length:]
    assert answer == b""


def test_status_and_errors_are_those_of_the_origin(proxy):
    found = xrdfs(proxy, "stat", "/f").ok().out
    assert f"Size:   {SIZE}" in found and "2023-11-14" in found, found
    connection = raw.Connection(proxy)
    assert connection.error(raw.STAT, bytes(16), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/none") == ErrorCode.NOT_FOUND
    assert f":{proxy.port} " in xrdfs(proxy, "locate", "/f").ok().out


def test_nothing_is_changed_at_a_server_that_cannot(web, tmp_path):
    (tmp_path / "new").write_bytes(b"new")
    before = dict(web.files)
    with Proxy(web.origin) as proxy:
        xrdcp(tmp_path / "new", proxy.url("/new")).fails(54, "501")
        for words in (["rm", "/f"], ["mkdir", "/new"], ["mv", "/f", "/g"]):
            xrdfs(proxy, *words).fails(54, "501" if words[0] == "mkdir" else "")
        for words in (["rmdir", "/d"], ["truncate", "/f", "1"]):
            xrdfs(proxy, *words).fails(54)
        assert xrdfs(proxy, "cat", "/d/small").ok().raw == b"small\n"
    assert web.files == before


def test_directories_and_checksums_need_a_server_that_has_them(web, theirs):
    with Proxy(theirs.origin) as proxy:
        for words in (["ls", "/"], ["ls", "-R", "/"], ["ls", "/d"]):
            assert sorted(xrdfs(proxy, *words).ok().out.split("\n")) == sorted(xrdfs(theirs, *words).ok().out.split("\n")), words
        assert "IsDir" in xrdfs(proxy, "stat", "/d").ok().out
        assert xrdfs(proxy, "query", "checksum", "/f").ok().out.split() == ["adler32", f"{zlib.adler32(CONTENT):08x}"]
        xrdfs(proxy, "ls", "/none").fails(54)
    with Proxy(web.origin) as proxy:
        xrdfs(proxy, "ls", "/d").fails(54, "WebDAV")
        xrdfs(proxy, "query", "checksum", "/f").fails(54)


def test_a_cache_fetches_each_byte_once(web, tmp_path):
    with Cache(web.origin) as cache:
        for _ in range(2):
            web.read = 0
            xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT
            wait_until(lambda: cache.is_complete("f"))
        assert web.read == 0
        cache.restart()
        xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT and web.read == 0


def test_files_of_the_real_server_are_kept(theirs, tmp_path):
    with Cache(theirs.origin) as cache:
        xrdcp(cache.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        wait_until(lambda: cache.is_complete("f"))
        # Another version, of which the server shows the time only.
        peers.place(theirs.tree / "f", CONTENT[::-1])
        os.utime(theirs.tree / "f", (1_700_000_500, 1_700_000_500))
        try:
            xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT[::-1]
        finally:
            peers.place(theirs.tree / "f", CONTENT)
            os.utime(theirs.tree / "f", (1_700_000_000, 1_700_000_000))


def test_a_changed_file_is_fetched_anew_and_never_mixed(web, tmp_path):
    old, new = CONTENT[:200_000], bytes(reversed(CONTENT[:200_000]))
    for proxy in (Proxy(web.origin), Cache(web.origin, "pfc.prefetch 0\n")):
        web.place("/changing", old)
        with proxy:
            connection = raw.Connection(proxy)
            handle = connection.open("/changing")
            assert connection.read(handle, 0, 1000) == old[:1000]
            web.place("/changing", new, modified=1_700_000_500)
            assert connection.error(raw.READ, struct.pack(">4sqi", handle, 150_000, 1000)) == ErrorCode.FS_ERROR
            xrdcp("-f", proxy.url("/changing"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == new


def test_a_file_without_a_version_is_not_kept(web):
    with Cache(web.origin) as cache:
        assert xrdfs(cache, "cat", "/f?part=1").ok().raw == CONTENT
        assert cache.files() == []


def test_a_command_line_serves_a_directory_of_a_web_server(web, tmp_path):
    server = peers.Ours()
    server.command = lambda: [peers.program(), "serve", "--origin", f"{web.origin}/d", "--port", "0", "--cache", server.tree, "--cache-size", "1g", "--admin-path", server.work / "admin"]
    with server:
        assert xrdfs(server, "cat", "/small").ok().raw == b"small\n"
        assert xrdfs(server, "cat", "/e/x y").ok().raw == b"blank\n"


def test_paths_name_web_servers_within_the_permits(web, theirs):
    path = f"/http:/localhost:{web.port}//d/small"
    with Proxy("=http,https", "pss.permit localhost", export="/http:/\nall.export /https:/") as proxy:
        assert xrdfs(proxy, "cat", path).ok().raw == b"small\n"
        count = len(web.requests)
        connection = raw.Connection(proxy)
        assert connection.error(raw.STAT, bytes(16), f"/http:/127.0.0.2:{web.port}//f".encode()) == ErrorCode.NOT_AUTHORIZED
        assert len(web.requests) == count


def test_the_token_of_a_client_is_a_header(web):
    with Proxy(web.origin) as proxy:
        web.requests.clear()
        assert xrdfs(proxy, "cat", "/d/small?authz=Bearer%20abc&xrd.x=1&part=2").ok().raw == b"small\n"
        for _, path, headers in web.requests:
            assert path == "/d/small?part=2" and headers["Authorization"] == "Bearer abc"
        assert "abc" not in proxy.output()


def test_tls_and_the_token_of_the_proxy():
    with certificates.new_authority() as authority, WebServer((authority.certificate, authority.key)) as web:
        web.place("/f", CONTENT)
        proxy = Proxy(web.origin, f"xrd.tlsca certfile {authority.file}\n")
        proxy.variables = {**proxy.variables, "BEARER_TOKEN": "proxy-token"}
        with proxy:
            assert xrdfs(proxy, "cat", "/f").ok().raw == CONTENT
            assert {headers.get("Authorization") for _, _, headers in web.requests} == {"Bearer proxy-token"}
            assert "proxy-token" not in proxy.output()
        with Proxy(web.origin) as proxy:
            xrdfs(proxy, "cat", "/f").fails(54, "TLS")


def test_an_origin_that_never_answers_is_an_error():
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        check_silent(f"http://127.0.0.1:{listener.getsockname()[1]}")


def test_a_stopped_origin_fails_readers_and_returns():
    origin = TheirWebServer()
    fill(origin)
    check_stopped(origin, lambda: origin.origin)


def test_an_origin_that_dies_is_used_again():
    origin = TheirWebServer()
    fill(origin)
    with origin, Proxy(origin.origin) as proxy:
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 100) == CONTENT[:100]
        origin.kill()
        assert connection.error(raw.READ, struct.pack(">4sqi", handle, 100, 100)) in (ErrorCode.NO_SERVER, ErrorCode.FS_ERROR)
        origin.start()
        wait_until(lambda: xrdfs(proxy, "stat", "/f").status == 0)
        assert connection.read(handle, 100, 100) == CONTENT[100:200]
