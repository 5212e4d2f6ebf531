"""Files written through a proxy to web servers with WebDAV: ours, nginx, and the real server with its HTTP protocol."""

import os
import socket
import struct
import subprocess
import urllib.error
import urllib.request

import pytest

import peers
import raw
from codes import ErrorCode
from origins import Proxy
from test_cache import CACHE
from tools import data, scalla, wait_until, xrdcp, xrdfs
from web import AnsweringServer, OurWebServer, TheirWebServer, WritableNginx

MIB = 1 << 20
# The size of parts of files whose size is announced.
PART = 8 * MIB
LARGE = data(2 * PART + 3_000_017)
REPLACE = raw.O_UPDT | raw.O_DELETE
WRITE_NEW = raw.O_UPDT | raw.O_NEW


@pytest.fixture(scope="module", params=[OurWebServer, TheirWebServer, WritableNginx], ids=["ours", "theirs", "nginx"])
def web(request):
    with request.param() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(web):
    handler = "http.exthandler xrdtpc +notls libXrdHttpTPC.so\ntpc.allow local\n"
    with Proxy(web.origin, f"xrd.protocol http *\n{handler}") as server:
        yield server


def names(web):
    """All files and directories."""
    found = subprocess.run(["find", web.tree, "-mindepth", "1", "-printf", "%P\n"], capture_output=True, text=True, check=True)
    return set(found.stdout.split("\n")) - {""}


@pytest.mark.parametrize("size", [0, 1, PART, len(LARGE)])
def test_files_of_all_sizes_are_written(web, proxy, tmp_path, size):
    (tmp_path / "f").write_bytes(LARGE[:size])
    for number, more in enumerate([[], ["-S", "4"], ["-f"]]):
        name = f"up-{size}-{number % 2}"
        xrdcp(*more, tmp_path / "f", proxy.url(f"/{name}")).ok()
        assert (web.tree / name).read_bytes() == LARGE[:size], more
    xrdcp(tmp_path / "f", proxy.url(f"/up-{size}-0")).fails(50, "file exists")
    scalla("cp", "--force", tmp_path / "f", proxy.url(f"/up-{size}-0")).ok()
    assert (web.tree / f"up-{size}-0").read_bytes() == LARGE[:size]
    assert not [name for name in names(web) if "scalla-upload" in name]


def put(proxy, path, content, **headers):
    """Returns the status of a PUT over HTTP."""
    request = urllib.request.Request(f"http://localhost:{proxy.port}{path}", data=content, method="PUT", headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("size", [0, 1, PART, len(LARGE)])
def test_files_are_put_over_http(web, proxy, size):
    for content in (LARGE[:size], LARGE[-size:] if size else b"again"):
        assert put(proxy, f"/put-{size}", content) == 201
        assert (web.tree / f"put-{size}").read_bytes() == content
    assert put(proxy, f"/put-{size}", b"other", **{"If-None-Match": "*"}) in (412, 501)
    assert not [name for name in names(web) if "scalla-upload" in name]


def test_a_put_without_a_size_is_whole_or_refused(web, proxy):
    assert put(proxy, "/chunks", iter([LARGE[:1_000_000], LARGE[1_000_000:2_000_000]])) == 201
    assert (web.tree / "chunks").read_bytes() == LARGE[:2_000_000]
    assert put(proxy, "/chunks", iter([LARGE])) >= 400
    assert (web.tree / "chunks").read_bytes() == LARGE[:2_000_000]


def test_a_put_that_breaks_off_leaves_nothing(web, proxy):
    peers.place(web.tree / "broken", b"old")
    before = names(web)
    sent = LARGE[:PART + MIB]  # The proxy holds the last bytes back until they are worth a write.
    for path in ("/broken", "/broken-new"):
        with socket.create_connection(("localhost", proxy.port)) as client:
            client.sendall(f"PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(LARGE)}\r\n\r\n".encode() + sent)
            if not isinstance(web, WritableNginx):  # It has the body elsewhere until that is whole.
                wait_until(lambda: any("scalla-upload" in name for name in names(web)))
    wait_until(lambda: names(web) == before)
    assert (web.tree / "broken").read_bytes() == b"old"


def test_files_are_not_fetched_by_copy(web, proxy):
    """Their sizes would not be known when they are created."""
    headers = {"Source": f"http://localhost:{proxy.port}/put-1", "Credential": "none"}
    request = urllib.request.Request(f"http://localhost:{proxy.port}/copy", method="COPY", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 501 and b"must have a size" in refused.value.read()
    assert not (web.tree / "copy").exists()


def test_odd_names_are_right_or_refused(web, proxy, tmp_path):
    """The real server does not decode the new name of a renaming."""
    (tmp_path / "f").write_bytes(LARGE)
    before = names(web)
    for content in (LARGE, b"small"):
        (tmp_path / "f").write_bytes(content)
        written = xrdcp("-f", tmp_path / "f", proxy.url("/a b & ü%41"))
        if web.kind != "theirs":
            written.ok()
            assert (web.tree / "a b & ü%41").read_bytes() == content
        else:
            written.fails(54, "does not decode names")
            wait_until(lambda: names(web) == before)


def test_names_are_changed(web, proxy):
    (web.tree / "names").mkdir()
    peers.give(web.tree / "names")
    peers.place(web.tree / "names/f", b"content")
    xrdfs(proxy, "mkdir", "/names/d").ok()
    assert (web.tree / "names/d").is_dir()
    xrdfs(proxy, "mkdir", "/names/d").fails(54, "exists already")
    xrdfs(proxy, "mv", "/names/f", "/names/d").fails(54, "is a directory")
    xrdfs(proxy, "mv", "/names/f", "/names/d/g").ok()
    assert (web.tree / "names/d/g").read_bytes() == b"content"
    xrdfs(proxy, "rm", "/names/d").fails(54)
    xrdfs(proxy, "rm", "/names/none").fails(54)
    xrdfs(proxy, "truncate", "/names/d/g", "1").fails(54, "cannot set the size")
    assert names(web) >= {"names/d/g"}
    xrdfs(proxy, "rm", "/names/d/g").ok()
    assert "names/d/g" not in names(web)


def open_large(proxy, path, options=REPLACE):
    """Opens a file of which a part and more was written."""
    connection = raw.Connection(proxy)
    handle = connection.open(f"{path}?oss.asize={len(LARGE)}", options)
    connection.write(handle, 0, LARGE[:PART + 7])
    return connection, handle


def test_a_client_that_leaves_leaves_nothing(web, proxy):
    peers.place(web.tree / "left", b"old")
    before = names(web)
    connection, _ = open_large(proxy, "/left")
    connection.vanish()
    wait_until(lambda: names(web) == before)
    assert (web.tree / "left").read_bytes() == b"old"


def test_a_killed_proxy_leaves_nothing_under_the_name(web):
    peers.place(web.tree / "killed", b"old")
    with Proxy(web.origin) as proxy:
        _connection, _ = open_large(proxy, "/killed")
        open_large(proxy, "/killed-new", WRITE_NEW)
        proxy.kill()
    assert (web.tree / "killed").read_bytes() == b"old"
    assert "killed-new" not in names(web)


def test_what_a_web_server_cannot_do(web, proxy):
    peers.place(web.tree / "old", b"old")
    connection = raw.Connection(proxy)
    assert connection.error(raw.OPEN, struct.pack(">HH", 0o644, raw.O_UPDT), b"/old") == ErrorCode.UNSUPPORTED
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 100, b"end")
    assert connection.error(raw.CLOSE, handle) == ErrorCode.UNSUPPORTED
    # The size is not announced, or is another one.
    handle = connection.open("/old", REPLACE)
    assert connection.error(raw.WRITE, struct.pack(">4sq", handle, 0), bytes(16 * MIB)) == ErrorCode.UNSUPPORTED
    connection.close_socket()
    connection, handle = open_large(proxy, "/old")
    assert connection.error(raw.CLOSE, handle) != 0
    assert (web.tree / "old").read_bytes() == b"old"
    connection, handle = open_large(proxy, "/old")
    assert connection.error(raw.TRUNCATE, struct.pack(">4sq", handle, 0)) == ErrorCode.UNSUPPORTED
    connection.vanish()
    connection = raw.Connection(proxy)
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 0, b"other")
    connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, 0))
    connection.write(handle, 3, b"w")
    connection.write(handle, 0, b"ane")
    connection.close(handle)
    assert (web.tree / "old").read_bytes() == b"anew"


def test_a_replaced_file_is_not_read_from_the_cache(web, tmp_path):
    peers.place(web.tree / "cached", LARGE[:1000])
    os.utime(web.tree / "cached", (1_700_000_000, 1_700_000_000))
    with Proxy(web.origin, CACHE) as cache:
        for expected in (LARGE[:1000], LARGE[1000:2000], LARGE[2000:3000]):
            (tmp_path / "new").write_bytes(expected)
            if expected != LARGE[:1000]:
                xrdcp("-f", tmp_path / "new", cache.url("/cached")).ok()
            assert xrdfs(cache, "cat", "/cached").ok().raw == expected
        xrdfs(cache, "rm", "/cached").ok()
        xrdfs(cache, "cat", "/cached").fails(54)


class Faulty(AnsweringServer):
    """A server that takes files in memory, and refuses one method."""

    takes_changes = True

    def __init__(self):
        super().__init__()
        self.files = {"/f": b"old"}
        self.refused = {}

    def answer(self, handler, has_body):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        status = self.refused.get(handler.command)
        found = self.files.get(handler.path)
        content = b""
        if status is None and handler.command in ("GET", "HEAD"):
            status, content = (404, b"") if found is None else (200, found)
        elif status is None and handler.command == "PUT":
            self.files[handler.path], status = body, 201
        elif status is None and handler.command == "MOVE":
            target = "/" + handler.headers["Destination"].split("/", 3)[3]
            self.files[target], status = self.files.pop(handler.path), 201
        elif status is None and handler.command == "DELETE":
            status = 404 if self.files.pop(handler.path, None) is None else 204
        handler.send_response(status or 501)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("ETag", '"1"')
        handler.end_headers()
        if has_body and handler.command == "GET":
            handler.wfile.write(content)


@pytest.mark.parametrize("method, status, code", [
    ("PUT", 403, ErrorCode.NOT_AUTHORIZED), ("PUT", 507, ErrorCode.NO_SPACE), ("PUT", 500, ErrorCode.SERVER_ERROR), ("MOVE", 405, ErrorCode.UNSUPPORTED),
    ("MOVE", 403, ErrorCode.NOT_AUTHORIZED), ("MOVE", 500, ErrorCode.SERVER_ERROR),
])
def test_a_step_that_fails_leaves_the_old_file(method, status, code):
    with Faulty() as server, Proxy(f"http://localhost:{server.port}") as proxy:
        server.refused[method] = status
        for content in (b"new", LARGE):
            with raw.Connection(proxy) as connection:
                handle = connection.open(f"/f?oss.asize={len(content)}", REPLACE)
                codes = []
                for call in (lambda: connection.write(handle, 0, content), lambda: connection.close(handle)):
                    try:
                        call()
                    except raw.Failed as failed:
                        codes.append(failed.code)
                assert code in codes or codes[0] == ErrorCode.FS_ERROR, codes
        wait_until(lambda: server.files == {"/f": b"old"})
