"""HTTP on the port of the xroot protocol: by Python's client, curl and plain sockets, compared with the
real server on the same tree; and our proxy in front of our own server."""

import argparse
import base64
import email.utils
import hashlib
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib

import pytest

import certificates
import clusters
import peers
from issuers import AUDIENCE, Issuer
from origins import Proxy
from tools import XRDFS, run, wait_until, xrdcp, xrdfs
from web import HTTP, OurWebServer, TheirWebServer

BIG = bytes(range(256)) * 4096
SMALL = b"hello world\n"
SECONDS = 30 * peers.SLOWNESS


def place_tree(server):
    for name in ("d", "d/e", "w"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
    peers.place(server.tree / "small", SMALL)
    peers.place(server.tree / "empty", b"")
    peers.place(server.tree / "big", BIG)
    peers.place(server.tree / "d/f", SMALL)
    peers.place(server.tree / "d/a b%&<", b"name")


@pytest.fixture(scope="module")
def ours():
    with OurWebServer() as server:
        place_tree(server)
        yield server


@pytest.fixture(scope="module")
def theirs():
    with TheirWebServer() as server:
        place_tree(server)
        yield server


def ask(server, method, path, headers=None, body=None, port=None, **more):
    """Returns the reply to one request and its body."""
    connection = http.client.HTTPConnection("localhost", port or server.web_port, timeout=SECONDS)
    try:
        connection.request(method, path, body, headers or {}, **more)
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def get(server, path, **headers):
    reply, body = ask(server, "GET", path, {name.replace("_", "-"): value for name, value in headers.items()})
    return reply.status, body


# The first message of a client of the xroot protocol.
HANDSHAKE = struct.pack(">5I", 0, 0, 0, 4, 2012)


def raw(server, *pieces):
    """Returns all that a server sends for these bytes."""
    with socket.create_connection(("localhost", server.port), timeout=SECONDS) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received


def statuses(received):
    return [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d+)", received, re.MULTILINE)]


def test_files_are_served_whole_and_by_ranges(ours):
    for path, content in (("/small", SMALL), ("/empty", b""), ("/big", BIG), ("//d//f", SMALL), ("/d/a%20b%25&%3C", b"name")):
        reply, body = ask(ours, "GET", path)
        assert (reply.status, body) == (200, content), path
        assert reply.getheader("Content-Length") == str(len(content)) and reply.getheader("Accept-Ranges") == "bytes"
    size = len(BIG)
    for value, first, last in (("0-9", 0, 9), ("5-", 5, size - 1), ("-3", size - 3, size - 1), (f"{size - 2}-{2 * size}", size - 2, size - 1),
                               ("100000-900000", 100_000, 900_000)):
        reply, body = ask(ours, "GET", "/big", {"Range": f"bytes={value}"})
        assert (reply.status, body) == (206, BIG[first:last + 1]), value
        assert reply.getheader("Content-Range") == f"bytes {first}-{last}/{size}"
    reply, _ = ask(ours, "GET", "/big", {"Range": f"bytes={size}-"})
    assert reply.status == 416 and reply.getheader("Content-Range") == f"bytes */{size}"
    for ignored in ("bytes=x", "bytes=9-8", "lines=0-1", "bytes=0-,0-"):
        assert get(ours, "/big", Range=ignored) == (200, BIG), ignored


@pytest.mark.parametrize("ranges", [[(0, 2), (4, 6)], [(0, 300_000), (500_000, 900_000), (1_000_000, 1_000_000)]])
def test_several_ranges_are_parts_of_one_body(ours, ranges):
    reply, body = ask(ours, "GET", "/big", {"Range": "bytes=" + ",".join(f"{first}-{last}" for first, last in ranges)})
    kind = reply.getheader("Content-Type")
    assert reply.status == 206 and kind.startswith("multipart/byteranges; boundary="), kind
    boundary = kind.partition("boundary=")[2].encode()
    *parts, end = body.split(b"\r\n--" + boundary)[1:]
    assert end == b"--\r\n" and len(parts) == len(ranges)
    for part, (first, last) in zip(parts, ranges):
        head, _, content = part.partition(b"\r\n\r\n")
        assert f"Content-range: bytes {first}-{last}/{len(BIG)}".encode() in head
        assert content == BIG[first:last + 1]


def test_versions_of_files_are_conditions(ours):
    peers.place(ours.tree / "version", b"one")
    old = 1_700_000_000
    os.utime(ours.tree / "version", (old, old))
    reply, _ = ask(ours, "GET", "/version")
    tag, date = reply.getheader("ETag"), reply.getheader("Last-Modified")
    assert tag.startswith('"') and date == email.utils.formatdate(old, usegmt=True)
    assert get(ours, "/version", If_None_Match=tag) == (304, b"")
    assert get(ours, "/version", If_Modified_Since=date) == (304, b"")
    assert get(ours, "/version", If_Match=tag) == (200, b"one")
    assert get(ours, "/version", If_Match='"other"')[0] == 412
    assert get(ours, "/version", If_Range=tag, Range="bytes=0-0") == (206, b"o")
    assert get(ours, "/version", If_Range='"other"', Range="bytes=0-0") == (200, b"one")
    (ours.tree / "version").write_bytes(b"two")
    assert get(ours, "/version", If_None_Match=tag) == (200, b"two")
    # A file that can change again within its second has no version that is certain.
    reply, _ = ask(ours, "HEAD", "/version")
    assert reply.getheader("ETag").startswith('W/"')
    assert get(ours, "/version", If_Range=reply.getheader("ETag"), Range="bytes=0-0") == (200, b"two")


# Requests whose replies are those of the real server: method, path, headers.
COMPARED = [
    ("GET", "/small", {}),
    ("GET", "/empty", {}),
    ("GET", "/big", {}),
    ("GET", "/d/a%20b%25&%3C", {}),
    ("GET", "/none", {}),
    ("GET", "/d/none/none", {}),
    ("GET", "/small", {"Range": "bytes=0-4"}),
    ("HEAD", "/small", {}),
    ("HEAD", "/none", {}),
    ("HEAD", "/small", {"Want-Digest": "adler32"}),
    ("DELETE", "/none", {}),
]


@pytest.mark.parametrize("method,path,headers", COMPARED, ids=lambda value: str(value))
def test_replies_are_those_of_the_real_server(ours, theirs, method, path, headers):
    found = []
    for server in (ours, theirs):
        reply, body = ask(server, method, path, headers)
        names = ["Content-Range", "Digest", "Location"]
        # Replies to HEAD have the length of GET here, also for errors.
        names += ["Content-Length"] if method != "HEAD" or reply.status == 200 else []
        found.append((reply.status, body, [reply.getheader(name) for name in names]))
    assert found[0] == found[1]


def test_checksums_are_headers(ours):
    digests = {"adler32": f"{zlib.adler32(BIG):08x}", "md5": base64.b64encode(hashlib.md5(BIG).digest()).decode()}
    for name, value in digests.items():
        for method in ("HEAD", "GET"):
            reply, _ = ask(ours, method, "/big", {"Want-Digest": name})
            assert reply.getheader("Digest") == f"{name}={value}", method
    reply, _ = ask(ours, "HEAD", "/big", {"Want-Repr-Digest": "sha-256=9, md5=5, adler32=1"})
    assert reply.getheader("Repr-Digest") == f"md5=:{digests['md5']}:"
    reply, _ = ask(ours, "HEAD", "/big")
    assert reply.getheader("Digest") is None


@pytest.mark.parametrize("expects", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_head_without_a_body_keeps_the_old_file(ours, chunked, expects):
    path = ours.tree / f"w/head-{chunked}-{expects}"
    peers.place(path, b"old")
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 4"
    head = f"PUT /w/{path.name} HTTP/1.1\r\nHost: h\r\n{framing}\r\n" + ("Expect: 100-continue\r\n" if expects else "") + "\r\n"
    with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
        connection.sendall(head.encode())
        if expects:
            assert statuses(connection.recv(4096)) == [100]
        connection.shutdown(socket.SHUT_WR)
        # The server has ended the request when it closes the connection.
        while connection.recv(4096):
            pass
    assert path.read_bytes() == b"old"
    assert ask(ours, "PUT", f"/w/{path.name}", body=b"new")[0].status == 201 and path.read_bytes() == b"new"


def umask():
    """Returns the umask, which servers inherit."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))


def test_files_are_written(ours, tmp_path):
    path = ours.tree / "w/new/sub/file"
    for content in (b"first", BIG, b""):
        reply, body = ask(ours, "PUT", "/w/new/sub/file", body=content)
        assert (reply.status, body) == (201, b":-)") and path.read_bytes() == content
        assert path.stat().st_mode & 0o7777 == 0o664 & ~umask()
    pieces = [BIG[at:at + 70_001] for at in range(0, len(BIG), 70_001)]
    reply, _ = ask(ours, "PUT", "/w/chunked", body=iter(pieces), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert reply.status == 201 and (ours.tree / "w/chunked").read_bytes() == BIG
    # curl waits for 100 Continue with a body of this size.
    (tmp_path / "source").write_bytes(BIG)
    for more in ([], ["-H", "Transfer-Encoding: chunked"]):
        done = subprocess.run(["curl", "-sS", "-i", "--max-time", str(int(SECONDS)), "-H", "Expect: 100-continue", *more, "-T", tmp_path / "source",
                               f"{ours.origin}/w/curl"], capture_output=True, check=True)
        assert statuses(done.stdout) == [100, 201] and (ours.tree / "w/curl").read_bytes() == BIG
    xrdcp("-f", ours.url("/w/curl"), tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == BIG


def test_refused_uploads_change_nothing(ours):
    kept = ours.tree / "w/kept"
    peers.place(kept, b"kept")
    for headers, status in (({"Content-Range": "bytes 0-3/9"}, 400), ({"If-Match": '"x"'}, 501), ({"If-None-Match": "*"}, 412),
                            ({"Expect": "something"}, 417), ({"Content-Encoding": "gzip"}, 415), ({"Content-Encoding": "identity, br"}, 415)):
        assert ask(ours, "PUT", "/w/kept", headers, b"newer")[0].status == status, headers
        assert kept.read_bytes() == b"kept"
    assert ask(ours, "PUT", "/w/exclusive", {"If-None-Match": "*"}, b"new")[0].status == 201
    for name, good, bad in (("Digest", "adler32=1e720467", "adler32=1e720468"), ("Content-MD5", "b1kCrCNwJL3QwXbLkwY9xA==", "AAAAAAAAAAAAAAAAAAAAAA==")):
        assert ask(ours, "PUT", "/w/sum", {name: bad}, SMALL)[0].status == 400 and not (ours.tree / "w/sum").exists()
        assert ask(ours, "PUT", "/w/sum", {name: good}, SMALL)[0].status == 201
        (ours.tree / "w/sum").unlink()
    assert ask(ours, "PUT", "/w/slash/", body=b"x")[0].status == 409
    assert ask(ours, "PUT", "/d", body=b"x")[0].status == 409
    assert ask(ours, "PUT", "/../x", body=b"x")[0].status == 403
    assert ask(ours, "PUT", "/w/tpc?tpc.key=1&tpc.stage=copy", body=b"x")[0].status == 400
    # A request that has lost its length.
    assert statuses(raw(ours, b"PUT /w/kept HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")) == [411]
    assert kept.read_bytes() == b"kept"


def replacements(directory):
    """Returns the files of uploads that have not replaced their files yet."""
    return list(directory.glob(".scalla-replacing-*"))


@pytest.mark.parametrize("chunked", [False, True])
def test_an_interrupted_upload_leaves_nothing(ours, chunked):
    path = ours.tree / "w" / "fresh"
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {10 * len(BIG)}"
    head = f"PUT /w/fresh HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n".encode()
    with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
        connection.sendall(head + (f"{len(BIG):x}\r\n".encode() if chunked else b"") + BIG)
        wait_until(lambda: path.exists() and path.stat().st_size > 0)
        assert ask(ours, "HEAD", "/w/fresh")[0].status == 404
        assert "/w/fresh" not in properties(ours, "/w", "1")
    wait_until(lambda: not path.exists())
    # The name goes first and its lock after it; between the two a reader is told that it is locked.
    wait_until(lambda: get(ours, "/w/fresh")[0] != 423)
    assert get(ours, "/w/fresh")[0] == 404
    # The place is free.
    assert ask(ours, "PUT", "/w/fresh", body=SMALL)[0].status == 201 and path.read_bytes() == SMALL
    path.unlink()


@pytest.mark.parametrize("chunked", [False, True])
def test_an_interrupted_upload_keeps_the_old_file(ours, chunked):
    path = ours.tree / "w" / f"replaced-{chunked}"
    peers.place(path, b"old")
    path.chmod(0o640)
    owner = path.stat().st_uid
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {10 * len(BIG)}"
    head = f"PUT /w/{path.name} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n".encode()
    with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
        connection.sendall(head + (f"{len(BIG):x}\r\n".encode() if chunked else b"") + BIG)
        wait_until(lambda: any(one.stat().st_size > 0 for one in replacements(path.parent)))
        assert get(ours, f"/w/{path.name}") == (200, b"old")
        assert ask(ours, "HEAD", f"/w/{path.name}")[0].getheader("Content-Length") == "3"
        assert not [name for name in properties(ours, "/w", "1") if ".scalla" in name]
        assert ".scalla-replacing" not in xrdfs(ours, "ls", "-l", "/w").ok().out
    wait_until(lambda: not replacements(path.parent))
    assert get(ours, f"/w/{path.name}") == (200, b"old")
    for name, bad in (("Digest", "adler32=1e720468"), ("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==")):
        assert ask(ours, "PUT", f"/w/{path.name}", {name: bad}, SMALL)[0].status == 400
    assert path.read_bytes() == b"old" and not replacements(path.parent)
    assert ask(ours, "PUT", f"/w/{path.name}", body=SMALL)[0].status == 201 and path.read_bytes() == SMALL
    status = path.stat()
    assert (status.st_mode & 0o7777, status.st_uid) == (0o640, owner)


def test_an_upload_of_a_killed_server_keeps_the_old_file():
    with OurWebServer() as server:
        path = server.tree / "f"
        peers.place(path, b"old")
        with socket.create_connection(("localhost", server.port), timeout=SECONDS) as connection:
            connection.sendall(f"PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: {10 * len(BIG)}\r\n\r\n".encode() + BIG)
            wait_until(lambda: any(one.stat().st_size > 0 for one in replacements(server.tree)))
            server.restart()
        assert get(server, "/f") == (200, b"old")
        wait_until(lambda: not replacements(server.tree))
        assert ask(server, "PUT", "/f", body=SMALL)[0].status == 201
        assert path.read_bytes() == SMALL and not replacements(server.tree)


def test_names_are_changed(ours):
    place = ours.tree / "w"
    assert ask(ours, "MKCOL", "/w/c/d")[0].status == 201 and (place / "c/d").is_dir()
    assert ask(ours, "MKCOL", "/w/body", body=b"<x/>")[0].status == 415
    peers.place(place / "c/f", b"f")
    assert ask(ours, "MOVE", "/w/c/f")[0].status == 400
    for destination in ("/w/c/g", f"{ours.origin}/w/c/h%20i", "/w/c/d/j"):
        before = next(path for path in (place / "c").rglob("*") if path.is_file())
        source = "/" + str(before.relative_to(ours.tree)).replace(" ", "%20")
        assert ask(ours, "MOVE", source, {"Destination": destination})[0].status == 201
    assert (place / "c/d/j").read_bytes() == b"f"
    peers.place(place / "c/k", b"k")
    for destination, status in (("http://other.example.org/w/x", 502), ("nonsense", 400), ("/w/../x", 403), ("/w/%zz", 400)):
        assert ask(ours, "MOVE", "/w/c/k", {"Destination": destination})[0].status == status, destination
    assert ask(ours, "MOVE", "/w/c/k", {"Destination": "/w/c/d/j", "Overwrite": "F"})[0].status == 412
    assert (place / "c/k").read_bytes() == b"k" and (place / "c/d/j").read_bytes() == b"f"
    for kept in ("/w/c/d", "/w/c/k"):
        assert ask(ours, "MOVE", "/w/c/k", {"Destination": kept, "Overwrite": "f"})[0].status == 412
    assert ask(ours, "MOVE", "/w/c/k", {"Destination": "/w/c/#l"})[0].status == 400
    assert ask(ours, "MOVE", "/w/c/k", {"Destination": "/w/c/l", "Overwrite": "F"})[0].status == 201
    assert ask(ours, "MOVE", "/w/c/l", {"Destination": "/w/c/k", "Overwrite": "T"})[0].status == 201
    assert (place / "c/k").read_bytes() == b"k"
    assert ask(ours, "DELETE", "/w/c")[0].status == 409
    for path in ("/w/c/k", "/w/c/d/j", "/w/c/d", "/w/c"):
        assert ask(ours, "DELETE", path)[0].status == 200, path
    assert not (place / "c").exists()
    reply, _ = ask(ours, "OPTIONS", "/")
    assert reply.status == 200 and reply.getheader("DAV").startswith("1") and "PROPFIND" in reply.getheader("Allow")
    for method in ("COPY", "POST", "PATCH", "LOCK", "TRACE"):
        assert ask(ours, method, "/small")[0].status == 501, method


def test_conditions_of_changes_are_refused(ours):
    peers.place(ours.tree / "w/version", b"new")
    for header, value in (("If-Match", '"old"'), ("If-Match", "*"), ("If-None-Match", "*"), ("If-None-Match", '"old"'), ("If", "(<urn:uuid:1>)"),
                          ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"), ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")):
        assert ask(ours, "DELETE", "/w/version", {header: value})[0].status == 501, header
        assert ask(ours, "MOVE", "/w/version", {header: value, "Destination": "/w/version2"})[0].status == 501, header
        assert ask(ours, "MKCOL", "/w/version3", {header: value})[0].status == 501, header
        assert ask(ours, "PUT", "/w/version", {header: value}, b"newer")[0].status == (412 if value == "*" and "None" in header else 501), header
    assert (ours.tree / "w/version").read_bytes() == b"new"
    assert not (ours.tree / "w/version2").exists() and not (ours.tree / "w/version3").exists()


def test_names_that_the_xroot_protocol_cannot_express_are_not_created(ours):
    place = ours.tree / "w/n"
    place.mkdir()
    peers.give(place)
    peers.place(place / "plain", SMALL)
    before = set(place.iterdir())
    for escaped in ("plain%3Fx", "a%0Ab", "a%0D%0Ab", "a%7F", "sub%3F/a"):
        assert ask(ours, "PUT", f"/w/n/{escaped}", body=b"x")[0].status == 400, escaped
        assert ask(ours, "MKCOL", f"/w/n/{escaped}")[0].status == 400, escaped
        assert ask(ours, "MOVE", "/w/n/plain", {"Destination": f"/w/n/{escaped}"})[0].status == 400, escaped
        assert set(place.iterdir()) == before, escaped
    # Those that exist can be read, renamed and removed.
    for name, escaped in (("plain?x", "plain%3Fx"), ("a\nb", "a%0Ab")):
        peers.place(place / name, name.encode())
        assert get(ours, f"/w/n/{escaped}") == (200, name.encode())
        assert ask(ours, "HEAD", f"/w/n/{escaped}")[0].status == 200
        # Listings leave out names with control characters.
        assert (f"/w/n/{escaped}" in properties(ours, "/w/n", "1")) == ("?" in name)
        assert ask(ours, "DELETE", f"/w/n/{escaped}")[0].status == 200 and not (place / name).exists()
        peers.place(place / name, name.encode())
        assert ask(ours, "MOVE", f"/w/n/{escaped}", {"Destination": "/w/n/renamed"})[0].status == 201
        assert (place / "renamed").read_bytes() == name.encode() and not (place / name).exists()
    assert (place / "plain").read_bytes() == SMALL


def properties(server, path, depth, body=None):
    """Returns size, time and kind by path."""
    reply, body = ask(server, "PROPFIND", path, {"Depth": depth}, body)
    assert reply.status == 207, body
    dav = "{DAV:}"
    entries = {}
    for entry in ElementTree.fromstring(body).findall(f"{dav}response"):
        values = entry.find(f"{dav}propstat/{dav}prop")
        entries[entry.find(f"{dav}href").text] = (
            values.find(f"{dav}getcontentlength").text, values.find(f"{dav}getlastmodified").text,
            values.find(f"{dav}resourcetype/{dav}collection") is not None)
    return entries


def test_directories_are_listed(ours):
    found = properties(ours, "/d", "1")
    assert set(found) == {"/d", "/d/e", "/d/f", "/d/a%20b%25%26%3C"}
    assert found["/d/f"][0] == str(len(SMALL)) and not found["/d/f"][2] and found["/d/e"][2] and found["/d"][2]
    assert set(properties(ours, "/d/", "0", "<propfind/>")) == {"/d"}
    assert set(properties(ours, "/d/f", "1")) == {"/d/f"}
    assert "/d" in properties(ours, "/", "1")
    assert ask(ours, "PROPFIND", "/d", {"Depth": "infinity"})[0].status == 501
    assert ask(ours, "PROPFIND", "/none", {"Depth": "1"})[0].status == 404
    assert ask(ours, "PROPFIND", "/d", {"Depth": "1"}, b"x" * 100_000)[0].status == 413
    for path in ("/d", "/d/"):
        reply, page = ask(ours, "GET", path)
        assert reply.status == 200 and reply.getheader("Content-Type") == "text/html; charset=utf-8"
        assert b'href="/d/a%20b%25%26%3C">a b%&amp;&lt;</a>' in page and b'href="/d/e/">e/</a>' in page


def test_properties_are_those_of_the_real_server(ours, theirs):
    mine, others = (properties(server, "/d", "1") for server in (ours, theirs))
    # The real server does not escape these names.
    plain = {"/d", "/d/e", "/d/f"}
    assert {path: mine[path][0::2] for path in plain} == {path: others[path][0::2] for path in plain}


def test_a_large_directory_is_listed_in_parts(ours):
    directory = ours.tree / "many"
    directory.mkdir()
    for number in range(5000):
        (directory / f"file-{number:05}").touch()
    found = properties(ours, "/many", "1")
    assert len(found) == 5001 and "/many/file-04999" in found
    _, page = ask(ours, "GET", "/many/")
    assert page.count(b"<tr><td") == 5000 and page.endswith(b"</html>\n")


def test_requests_of_one_connection_are_answered_in_order(ours):
    connection = http.client.HTTPConnection("localhost", ours.port, timeout=SECONDS)
    for _ in range(3):
        for path, content in (("/small", SMALL), ("/big", BIG), ("/none", None)):
            connection.request("GET", path)
            reply = connection.getresponse()
            body = reply.read()
            assert (reply.status, body) == (200, content) if content else reply.status == 404
    connection.close()
    one = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n"
    received = raw(ours, one * 3 + one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + one)
    assert statuses(received) == [200] * 4 and received.count(SMALL) == 4
    assert raw(ours, b"GET /small HTTP/1.0\r\n\r\n").endswith(SMALL)
    # Bytes that arrive one by one, and the other protocol on the same port.
    assert statuses(raw(ours, *(bytes([byte]) for byte in one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))) == [200]
    assert xrdfs(ours, "cat", "/small").ok().raw == SMALL


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
AMBIGUOUS = {
    "two lengths": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody" + SMUGGLED, [400]),
    "a list of lengths": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 5\r\n\r\nbody" + SMUGGLED, [400]),
    "a signed length": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\nbody" + SMUGGLED, [400]),
    "no number": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length: 4x\r\n\r\nbody" + SMUGGLED, [400]),
    # Either is served as chunked and the connection ends, or it is refused.
    "length before chunked": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [201]),
    "chunked before length": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED, [201]),
    "chunked twice removed": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "an unknown coding": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "a compressed body": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "chunked twice": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "two codings": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" + SMUGGLED,
                    [400]),
    "chunked in 1.0": (b"PUT /w/s HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "a bad chunk": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x4\r\nbody\r\n0\r\n\r\n" + SMUGGLED, [400]),
    "a chunk without its end": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbodyX0\r\n\r\n" + SMUGGLED, [400]),
    "a folded line": (b"GET /small HTTP/1.1\r\nHost: h\r\nX-Folded: a\r\n b\r\n\r\n" + SMUGGLED, [400]),
    "a folded length": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n 4\r\n\r\nbody" + SMUGGLED, [400]),
    "a bare CR": (b"GET /small HTTP/1.1\r\nHost: h\r\nX-Bare: a\rb\r\n\r\n" + SMUGGLED, [400]),
    "a NUL": (b"GET /small HTTP/1.1\r\nHost: h\r\nX-Nul: a\0b\r\n\r\n" + SMUGGLED, [400]),
    "a blank before the colon": (b"PUT /w/s HTTP/1.1\r\nHost: h\r\nContent-Length : 4\r\n\r\nbody" + SMUGGLED, [400]),
    "no colon": (b"GET /small HTTP/1.1\r\nHost: h\r\nnonsense\r\n\r\n" + SMUGGLED, [400]),
    "no host": (b"GET /small HTTP/1.1\r\nConnection: close\r\n\r\n", [400]),
    "two hosts": (b"GET /small HTTP/1.1\r\nHost: h\r\nHost: i\r\nConnection: close\r\n\r\n", [400]),
    "a blank in the target": (b"GET /sm all HTTP/1.1\r\nHost: h\r\n\r\n" + SMUGGLED, [400]),
    "another version": (b"GET /small HTTP/3.7\r\nHost: h\r\n\r\n" + SMUGGLED, [400]),
    "HTTP/1.1 behind the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED, [400]),
    "a malformed preface": (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + SMUGGLED, [400]),
    "a tunnel": (b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + SMUGGLED, [501]),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_requests_are_not_followed_by_others(ours, name):
    sent, expected = AMBIGUOUS[name]
    # Each case has a name of its own, because the module's server keeps what the others write.
    written = f"w/ambiguous-{sorted(AMBIGUOUS).index(name)}"
    # The server must end the connection: it sends no more than this.
    received = raw(ours, sent.replace(b"/w/s ", f"/{written} ".encode()))
    found = statuses(received)
    # A request that cannot be parsed may also only end the connection.
    assert found == expected or (expected == [400] and found == []), received
    assert b"smuggled" not in received
    if expected == [201]:
        assert (ours.tree / written).read_bytes() == b"", "the body ends with the last chunk"
    else:
        assert not (ours.tree / written).exists()


def test_an_absolute_target_is_a_path(ours):
    received = raw(ours, b"GET http://elsewhere.example.org/small?x=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert statuses(received) == [200] and received.endswith(SMALL)


def test_heads_are_limited(ours):
    line = b"GET /small HTTP/1.1\r\nHost: h\r\n"
    for sent, expected in ((b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", {414, 431, 400}),
                           (line + b"X-Long: " + b"a" * 300_000 + b"\r\n\r\n", {431}),
                           (line + b"".join(b"X-%d: 1\r\n" % number for number in range(200)) + b"\r\n", {431}),
                           (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", {414})):
        with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
            try:
                connection.sendall(sent)
            except ConnectionError:
                pass
            received = connection.recv(65536)
        assert set(statuses(received)) <= expected and received, received[:200]
    assert get(ours, "/small") == (200, SMALL)


def test_pages_about_the_server_need_a_directive(ours):
    assert get(ours, "/healthz")[0] == 404
    # The login that clients need does not concern them.
    settings = "scalla.http status\nxrootd.seclib libXrdSec.so\nsec.protocol unix\n"
    with OurWebServer(settings) as server:
        assert get(server, "/healthz") == (200, b"ok\n") and get(server, "/readyz") == (200, b"ready\n")
        assert get(server, "/metrics")[0] != 200
        assert ask(server, "PUT", "/healthz", body=b"x")[0].status == 405
        assert get(server, "/anything")[0] == 403


def test_settings_of_sites_are_in_force():
    settings = "http.listingdeny yes\nhttp.staticheader X-All one two\nhttp.staticheader -verb=GET X-Get 1\n"
    with OurWebServer(settings) as server:
        place_tree(server)
        assert get(server, "/d") == (403, b"Listings are disabled.\n")
        reply, _ = ask(server, "GET", "/small")
        assert (reply.getheader("X-All"), reply.getheader("X-Get")) == ("one two", "1")
        reply, _ = ask(server, "HEAD", "/small")
        assert (reply.getheader("X-All"), reply.getheader("X-Get")) == ("one two", None)
    with OurWebServer("http.listingredir https://browse.example.org/\n") as server:
        place_tree(server)
        reply, _ = ask(server, "GET", "/d/e/")
        assert (reply.status, reply.getheader("Location")) == (302, "https://browse.example.org/d/e/")


def test_exports_are_those_of_the_xroot_protocol():
    with peers.Linked(settings=HTTP, export="/d") as server:
        place_tree(server)
        assert get(server_at(server), "/d/f") == (200, SMALL)
        status, body = get(server_at(server), "/small")
        assert status == 403 and b"disallowed" in body
        assert ask(server_at(server), "PUT", "/new", body=b"x")[0].status == 403 and not (server.tree / "new").exists()


def server_at(server):
    server.web_port = server.port
    return server


def test_clients_must_log_in_as_over_the_xroot_protocol(tmp_path):
    for login in ("sec.protocol unix\n", "sec.protocol sss -s {work}/keys\n"):
        server = OurWebServer(f"xrootd.seclib libXrdSec.so\n{login}")
        server.settings = server.settings.replace("{work}", str(server.work))
        if "sss" in login:
            peers.place(server.work / "keys", b"0 u:nobody g:nogroup n:one N:1 c:1 e:0 f:0 k:" + b"00" * 32 + b"\n").chmod(0o600)
        with server:
            place_tree(server)
            for method, path in (("GET", "/small"), ("HEAD", "/small"), ("PUT", "/w/x"), ("PROPFIND", "/d"), ("DELETE", "/small"), ("GET", "/none")):
                reply, _ = ask(server, method, path, {"Authorization": "Bearer x"}, b"x" if method == "PUT" else None)
                assert reply.status == 403, (method, path)
            assert (server.tree / "small").exists() and not (server.tree / "w/x").exists()
    # A host that need not authenticate is served.
    with OurWebServer("xrootd.seclib libXrdSec.so\nsec.protocol host\n") as server:
        place_tree(server)
        assert get(server, "/small") == (200, SMALL)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def authority():
    with certificates.new_authority() as authority:
        yield authority


def with_tokens(server, issuer):
    server.settings += (f"ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config={server.work}/issuers\nacc.authdb {server.work}/authdb\n"
                        "http.header2cgi Authorization authz\n")
    peers.place(server.work / "authdb", b"u * /public lr\n")
    peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
    peers.place(server.work / "issuers", f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /protected\n"
                                         f"jwks_file = {server.work}/keys\n".encode())
    for name in ("protected", "public"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", SMALL)
    return server


def test_tokens_decide_about_requests(issuer):
    read, write = (issuer.token(scope=f"storage.{right}:/") for right in ("read", "create"))
    with with_tokens(OurWebServer(), issuer) as server:
        def status(method, path, token=None, **more):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return ask(server, method, path, headers, **more)[0].status
        assert status("GET", "/public/f") == 200 and status("GET", "/protected/f") == 403
        assert status("GET", "/protected/f", read) == 200 and status("HEAD", "/protected/f", read) == 200
        assert status("PUT", "/protected/g", read, body=b"x") == 403 and status("DELETE", "/protected/f", read) == 403
        assert status("PUT", "/protected/g", write, body=b"x") == 201 and status("GET", "/protected/f", write) == 403
        assert ask(server, "GET", f"/protected/f?authz=Bearer%20{read}")[0].status == 200
        assert status("GET", "/protected/f", read[:-4] + "AAAA") == 403
        # Requests of one connection each have their own rights.
        connection = http.client.HTTPConnection("localhost", server.port, timeout=SECONDS)
        for token, expected in ((read, 200), (None, 403), (write, 403), (read, 200)):
            connection.request("GET", "/protected/f", headers={"Authorization": f"Bearer {token}"} if token else {})
            reply = connection.getresponse()
            reply.read()
            assert reply.status == expected
        connection.close()
        assert read not in server.output() and write not in server.output()


def https(authority, server, *arguments):
    """Returns the status of a request of curl, and the body."""
    done = subprocess.run(["curl", "-sS", "--max-time", str(int(SECONDS)), "--cacert", authority.file, "-w", "\n%{http_code}", *arguments[:-1],
                           f"https://localhost:{server.port}{arguments[-1]}"], capture_output=True)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status or 0), body


def test_files_of_sites_name_the_certificate_of_https_in_their_way(authority):
    lines = f"http.cert {authority.certificate}\nhttp.key {authority.key}\nhttp.cadir {authority.directory}\n"
    with OurWebServer(lines) as server:
        place_tree(server)
        assert https(authority, server, "/small") == (200, SMALL)
        assert "HTTP and HTTPS are served" in server.output()
        # The xroot protocol is as before, and can be encrypted.
        trusted = {"X509_CERT_DIR": str(authority.directory)}
        for scheme in ("root", "roots"):
            said = run([XRDFS, f"{scheme}://localhost:{server.port}", "stat", "/small"], **trusted).ok().out
            assert f"Size:   {len(SMALL)}" in said, said
    said = peers.refused_start(OurWebServer(lines.replace(f"http.key {authority.key}", "http.key /nonexistent")))
    assert "/nonexistent" in said, said


def test_encrypted_requests_and_tokens_as_logins(authority, issuer, tmp_path):
    read = issuer.token(scope="storage.read:/")
    settings = f"xrootd.seclib libXrdSec.so\nsec.protocol ztn\n{authority.settings()}"
    with with_tokens(OurWebServer(settings), issuer) as server:
        assert https(authority, server, "/protected/f")[0] == 401
        # Even what the rules let everybody read needs the login that the xroot protocol asks for.
        assert https(authority, server, "/public/f")[0] == 401
        assert https(authority, server, "-H", f"Authorization: Bearer {read}", "/protected/f") == (200, SMALL)
        assert https(authority, server, "-H", "Authorization: Bearer nonsense", "/public/f")[0] == 401
        # A token over a connection that is not encrypted is known to others.
        assert ask(server, "GET", "/protected/f", {"Authorization": f"Bearer {read}"})[0].status == 403
        assert read not in server.output()
    with OurWebServer(authority.settings("xrootd.tls all")) as server:
        place_tree(server)
        assert get(server, "/small")[0] == 403
        assert https(authority, server, "/small") == (200, SMALL) and https(authority, server, "/big") == (200, BIG)
        (tmp_path / "source").write_bytes(BIG)
        assert https(authority, server, "-T", tmp_path / "source", "/w/put")[0] == 201
        assert (server.tree / "w/put").read_bytes() == BIG


def test_what_is_not_in_force_stops_the_start():
    for line in ("http.secretkey 0123456789abcdef0123456789abcdef", "http.gridmap required /etc/map", "http.secxtractor required libXrdVoms.so"):
        said = peers.refused_start(OurWebServer(f"{line}\n"))
        assert line.split()[0] in said, said
    with OurWebServer("http.exthandler xrdmacaroons libXrdMacaroons.so\nhttp.cipherfilter HIGH\nhttp.gridmap /etc/map\n") as server:
        assert "http.exthandler" in server.output() and "http.cipherfilter" in server.output()
    # Without xrd.protocol, nobody is served by HTTP.
    with peers.Ours(settings="") as server:
        assert raw(server, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n") == b""


def test_http_has_a_port_of_its_own():
    port = peers.free_port()
    added = peers.free_port()
    lines = f"xrd.protocol XrdHttp:{port} libXrdHttp.so\nxrd.protocol XrdHttp:{added} +port\n"
    with peers.Ours(settings=lines) as server:
        place_tree(server)
        web = argparse.Namespace(port=port)
        head = b"GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        for _ in range(2):
            assert raw(argparse.Namespace(port=added), head).endswith(SMALL)
            assert raw(web, head).endswith(SMALL) and xrdfs(server, "cat", "/small").ok().raw == SMALL
            # Each port has one protocol.
            assert raw(server, head) == b""
            assert raw(web, HANDSHAKE) == b""
            server.restart()
        first, last = sorted((port, added))
        assert f"HTTP is served on port {first} and port {last}" in server.output()
        # A server that finds the port taken names it.
        said = peers.refused_start(peers.Ours(settings=f"xrd.protocol http:{port} *\n"))
        assert f"{port}" in said and "in use" in said, said
        # The port is closed when the server stops, before its last requests end.
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", port), SECONDS)


def test_redirects_lead_to_servers_with_http_ports_of_their_own():
    ports = {name: peers.free_port() for name in ("man", "s1", "s2")}
    settings = "".join(f"if named {name}\nxrd.protocol http:{port} *\nfi\n" for name, port in ports.items())
    with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
        area = clusters.Area(cluster)
        area.put("f", SMALL, "s1")

        def follow(method, name, body=None):
            reply, _ = ask(cluster.man, method, str(area / name), {}, body, port=ports["man"])
            assert reply.status == (302 if method == "GET" else 307), method
            host, _, rest = reply.getheader("Location").partition("://")[2].partition("/")
            return ask(cluster.man, method, f"/{rest}", {}, body, port=int(host.rpartition(":")[2]))

        assert follow("GET", "f")[1] == SMALL
        assert follow("PUT", "new", b"new")[0].status == 201 and area.get("new") == b"new"
        # The port of its own has the file as well.
        assert ask(cluster.man, "GET", str(area / "f"), {}, None, port=ports["s1"])[1] == SMALL


def test_a_proxy_reads_from_our_server(ours):
    with Proxy(ours.origin) as proxy:
        for path, content in (("/small", SMALL), ("/big", BIG), ("/empty", b"")):
            assert xrdfs(proxy, "cat", path).ok().raw == content
        listed = xrdfs(proxy, "ls", "/d").ok().out.split("\n")
        assert {"/d/e", "/d/f"} <= set(listed)
        assert xrdfs(proxy, "stat", "/none").status != 0


def test_a_stopping_server_ends_requests():
    server = OurWebServer()
    with server:
        place_tree(server)
        connection = http.client.HTTPConnection("localhost", server.port, timeout=SECONDS)
        connection.request("GET", "/small")
        assert connection.getresponse().read() == SMALL
        assert server.stop() == 0
        connection.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_stopping_server_keeps_no_unfinished_upload(chunked):
    with OurWebServer("scalla.drain 1\n") as server:
        place_tree(server)
        path = server.tree / "w/unfinished"
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {10 * len(BIG)}"
        head = f"PUT /w/{path.name} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n".encode()
        with socket.create_connection(("localhost", server.port), timeout=SECONDS) as connection:
            connection.sendall(head + (f"{len(BIG):x}\r\n".encode() if chunked else b"") + BIG)
            wait_until(lambda: path.exists() and path.stat().st_size > 0)
            assert server.stop() == 0
            assert not path.exists()
        assert "1 HTTP connections were closed" in server.output()


def test_clients_that_take_nothing_hold_little_memory(ours):
    before = ours.memory()
    stuck = []
    for _ in range(50):
        connection = socket.create_connection(("localhost", ours.port), timeout=SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n" * 20)
        stuck.append(connection)
    # Others are served meanwhile.
    for _ in range(20):
        assert get(ours, "/big") == (200, BIG)
    assert ours.memory() - before < 100 << 20
    for connection in stuck:
        connection.close()
    wait_until(lambda: ours.descriptors() < 60)


def test_pages_of_other_sites_read_replies():
    with OurWebServer("http.cors libXrdHttpCors.so\ncors.origin https://one.example https://two.example:8443\n") as server:
        place_tree(server)
        for origin, allowed in (("https://one.example", True), ("https://two.example:8443", True), ("https://one.example:8443", False), (None, False)):
            for method, path in (("GET", "/small"), ("GET", "/none"), ("PROPFIND", "/d")):
                reply, _ = ask(server, method, path, {"Origin": origin} if origin else {})
                assert reply.getheader("Access-Control-Allow-Origin") == (origin if allowed else None), (origin, path)


def test_a_trailer_has_the_result_of_a_transfer(ours):
    for path, content in (("/small", SMALL), ("/empty", b""), ("/big", BIG)):
        received = raw(ours, f"GET {path} HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nX-Transfer-Status: true\r\nConnection: TE, close\r\n\r\n".encode())
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"\r\ntransfer-encoding: chunked" in head.lower() and b"\r\ntrailer: x-transfer-status" in head.lower(), head
        data = b""
        while True:
            size, _, rest = body.partition(b"\r\n")
            if int(size, 16) == 0:
                break
            data, body = data + rest[:int(size, 16)], rest[int(size, 16) + 2:]
        assert data == content
        assert rest.lower() == b"x-transfer-status: 200: ok\r\n\r\n"


def test_requests_beyond_the_memory_are_refused():
    with OurWebServer("scalla.memory 64m\n") as server:
        place_tree(server)
        waiting = []
        try:
            # Each PUT is charged 256 KiB, and one host has 8 MiB of the 32 MiB of HTTP.
            for number in range(50):
                connection = socket.create_connection(("localhost", server.port), timeout=SECONDS)
                waiting.append(connection)
                connection.sendall(f"PUT /w/{number} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode())
                if statuses(connection.recv(4096)) == [503]:
                    break
            assert 25 <= len(waiting) < 50
            reply, _ = ask(server, "GET", "/small")
            assert reply.status == 503 and int(reply.getheader("Retry-After")) > 0
            # Other hosts and sessions of the xroot protocol are not disturbed.
            with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS, source_address=("127.0.0.2", 0)) as other:
                other.sendall(b"GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                assert statuses(other.recv(4096)) == [200]
            xrdfs(server, "stat", "/small").ok()
            # Those that have begun end.
            waiting[0].sendall(b"complete!")
            assert statuses(waiting[0].recv(4096)) == [201]
        finally:
            for connection in waiting:
                connection.close()
        wait_until(lambda: get(server, "/small") == (200, SMALL))


def test_redirects_of_encrypted_requests_stay_encrypted(authority):
    for line, scheme in (("", "https"), ("http.desthttps no\n", "http")):
        settings = f"xrd.protocol http *\nhttp.header2cgi X-Auth k\n{authority.settings()}\n{line}"
        with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
            area = clusters.Area(cluster)
            area.put("f", SMALL, "s1")
            found = https(authority, cluster.man, "-H", "X-Auth: secret", "-w", "\n%{redirect_url}\n%{http_code}", f"{area / 'f'}?x=1&k=own")
            place = found[1].decode()
            assert found[0] == 302 and scheme + "://" in place and "x=1" in place, found
            assert ("k=own" in place) == (scheme == "https"), place
            if scheme == "https":
                place = https(authority, cluster.man, "-H", "X-Auth: secret", "-w", "\n%{redirect_url}\n%{http_code}", str(area / "f"))[1].decode()
                assert "k=secret" in place
            else:
                place = https(authority, cluster.man, "-H", "X-Auth: secret", "-w", "\n%{redirect_url}\n%{http_code}", str(area / "f"))[1].decode()
                assert "http://" in place and "secret" not in place


def test_a_manager_redirects_to_servers():
    settings = "xrd.protocol http *\nhttp.header2cgi Authorization authz\nhttp.header2cgi X-Kept kept strip-on-redirect\n"
    with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
        area = clusters.Area(cluster)
        area.put("f", SMALL, "s1")
        path, manager = str(area / "f"), cluster.man

        def follow(method, path, body=None):
            headers = {"Authorization": "Bearer a.b.c", "X-Kept": "1"}
            reply, _ = ask(manager, method, f"{path}?x=1", headers, body, port=manager.port)
            assert reply.status == (302 if method == "GET" else 307), method
            scheme, _, place = reply.getheader("Location").partition("://")
            host, _, rest = place.partition("/")
            assert scheme == "http" and "authz=Bearer%20a.b.c" in rest and "kept" not in rest and "x=1" in rest, place
            assert int(host.rpartition(":")[2]) in [server.port for server in cluster.servers]
            return ask(manager, method, f"/{rest}", headers, body, port=int(host.rpartition(":")[2]))

        assert follow("GET", path)[1] == SMALL and follow("HEAD", path)[0].status == 200
        assert follow("PUT", str(area / "new"), b"new")[0].status == 201
        assert area.get("new") == b"new"
        assert follow("PUT", str(area / "new"), b"newer")[0].status == 201 and area.get("new") == b"newer"
        # The destination of a MOVE names the manager, or is a path.
        for name, place in (("moved", f"http://localhost:{manager.port}{area / 'moved'}"), ("again", str(area / "again"))):
            source = str(area / ("new" if name == "moved" else "moved"))
            move = {"Destination": place, "Host": f"localhost:{manager.port}"}
            reply, _ = ask(manager, "MOVE", source, move, port=manager.port)
            assert reply.status == 307
            server, _, rest = reply.getheader("Location").partition("://")[2].partition("/")
            port = int(server.rpartition(":")[2])
            assert ask(manager, "MOVE", f"/{rest}", {**move, "Host": server}, port=port)[0].status == 201
            assert area.get(name) == b"newer"
        elsewhere = {"Destination": f"http://other.example{area / 'x'}"}
        assert ask(manager, "MOVE", str(area / "again"), elsewhere, port=manager.port)[0].status == 502
        area.put("new", b"newer", "s1")
        # A client that waits for 100 Continue is redirected before it sends a new file.
        with socket.create_connection(("localhost", manager.port), timeout=SECONDS) as connection:
            connection.sendall(f"PUT {area / 'newest'} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode())
            assert statuses(connection.recv(65536)) == [307]
        assert ask(manager, "GET", str(area / "none"), port=manager.port)[0].status == 404
