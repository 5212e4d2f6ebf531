"""HTTP/2 by curl, nghttp2 and Python's library: the replies are those of HTTP/1.1, encrypted and not; and clients that
reset, flood, or take nothing."""

import re
import socket
import struct
import subprocess

import h2.errors
import hpack
import pytest

import clusters
import peers
from http2_client import Http2Client
from test_http_server import BIG, SMALL, ask, place_tree, replacements, statuses, with_tokens
from issuers import Issuer
from test_http_copies import authority
from test_metrics import scrape
from tools import run, wait_until, xrdfs
from web import OurWebServer

__all__ = ["authority"]

SECONDS = 60 * peers.SLOWNESS
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# The limits of crates/http/src/limits.rs.
STREAMS_MAX = 100
HEADERS_MAX = 100
HEAD_BYTES_MAX = 64 << 10
RESETS_MAX = 256
CANCEL, NO_ERROR = h2.errors.ErrorCodes.CANCEL, h2.errors.ErrorCodes.NO_ERROR
VERSIONS = ("--http1.1", "--http2-prior-knowledge")


@pytest.fixture(scope="module")
def ours(authority):
    settings = (f"scalla.http status metrics dashboard taperest\nhttp.exthandler xrdtpc libXrdHttpTPC.so\ntpc.allow local\n"
                f"http.cors libXrdHttpCors.so\ncors.origin https://one.example\nhttp.staticheader X-Static 1\n{authority.settings()}")
    with OurWebServer(settings) as server:
        place_tree(server)
        yield server


def curl(server, version, method, path, *arguments, scheme="http", body=None):
    """Returns version, status, headers and body of the reply to a request of curl."""
    options = ["-X", method] if method not in ("HEAD", "GET") else ["-I"] if method == "HEAD" else []
    if body is not None:
        options += ["--data-binary", "@-", "-H", "Content-Type:"]
    command = ["curl", "-sS", "-i", "--max-time", str(SECONDS), version, *options, *arguments, f"{scheme}://localhost:{server.port}{path}"]
    done = subprocess.run(command, input=body, capture_output=True, timeout=2 * SECONDS)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    found = re.match(r"HTTP/(\S+) (\d+)", lines[0])
    assert found, (command, done)
    headers = sorted((name.lower(), value) for name, value in (line.split(": ", 1) for line in lines[1:]))
    return found[1], int(found[2]), headers, content


# A request, and what must be there before it.
REQUESTS = {
    "GET": ("GET", "/small"),
    "GET of a large file": ("GET", "/big"),
    "GET of an empty file": ("GET", "/empty"),
    "GET of nothing": ("GET", "/none"),
    "a range": ("GET", "/big", "-r", "70000-170000"),
    "an unsatisfiable range": ("GET", "/small", "-r", "70000-"),
    "a checksum": ("GET", "/small", "-H", "Want-Digest: adler32"),
    "a condition": ("GET", "/small", "-H", "If-None-Match: *"),
    "another site": ("GET", "/small", "-H", "Origin: https://one.example"),
    "a directory": ("GET", "/d"),
    "HEAD": ("HEAD", "/big"),
    "HEAD of nothing": ("HEAD", "/none"),
    "OPTIONS": ("OPTIONS", "/small"),
    "PROPFIND": ("PROPFIND", "/d", "-H", "Depth: 1"),
    "PROPFIND of a file": ("PROPFIND", "/small", "-H", "Depth: 0"),
    "PUT": ("PUT", "/w/new"),
    "PUT with a wrong checksum": ("PUT", "/w/new", "-H", "Digest: adler32=00000001"),
    "PUT without a body": ("PUT", "/w/new"),
    "PUT of a range": ("PUT", "/w/new", "-H", "Content-Range: bytes 0-1/2"),
    "MKCOL": ("MKCOL", "/w/new"),
    "MKCOL with a body": ("MKCOL", "/w/new"),
    "MOVE": ("MOVE", "/w/old", "-H", "Destination: /w/new"),
    "MOVE to a URL": ("MOVE", "/w/old", "-H", "Destination: http://localhost:{port}/w/new"),
    "MOVE to another server": ("MOVE", "/w/old", "-H", "Destination: http://other.example/w/new"),
    "DELETE": ("DELETE", "/w/old"),
    "DELETE of nothing": ("DELETE", "/w/none"),
    "COPY": ("COPY", "/w/new", "-H", "Source: http://localhost:{port}/small"),
    "COPY of nothing": ("COPY", "/w/new", "-H", "Source: http://localhost:{port}/none"),
    "COPY without a source": ("COPY", "/w/new"),
    "POST": ("POST", "/small"),
    "PATCH": ("PATCH", "/small"),
    "a relative path": ("GET", "/a/../small", "--path-as-is"),
    "the tape API": ("GET", "/.well-known/wlcg-tape-rest-api"),
    "an archive": ("POST", "/api/v1/archiveinfo"),
    "/healthz": ("GET", "/healthz"),
    "/dashboard": ("GET", "/dashboard"),
    "/dashboard under another name": ("GET", "/dashboard", "-H", "Host: evil.example"),
    "/metrics under another name": ("GET", "/metrics", "-H", "Host: evil.example"),
}
BODIES = {"PUT": BIG, "PUT with a wrong checksum": SMALL, "PUT of a range": SMALL, "MKCOL with a body": SMALL, "PATCH": SMALL,
          "PROPFIND": b"<propfind/>", "an archive": b'{"paths":["/small","/none"]}'}
# What differs between two equal requests: the time, and the numbers of reports.
CHANGING = {"date"}


def result(server, version, name):
    """Makes a request, and returns its reply and the files that are there then."""
    for file in (server.tree / "w").iterdir():
        file.rmdir() if file.is_dir() else file.unlink()
    peers.place(server.tree / "w/old", SMALL)
    method, path, *arguments = [word.replace("{port}", str(server.port)) for word in REQUESTS[name]]
    spoken, status, headers, body = curl(server, version, method, path, *arguments, body=BODIES.get(name))
    assert spoken == {"--http1.1": "1.1"}.get(version, "2")
    # What frames a body belongs to HTTP/1.1 alone.
    headers = [(key, value) for key, value in headers if key not in CHANGING and key not in ("connection", "transfer-encoding")]
    if method == "COPY":
        body = re.sub(rb"Timestamp: \d+", b"", body)
    files = {file.name: file.is_dir() or file.read_bytes() for file in (server.tree / "w").iterdir()}
    return status, headers, body, files


@pytest.mark.parametrize("name", REQUESTS)
def test_replies_are_those_of_http1(ours, name):
    expected, found = (result(ours, version, name) for version in VERSIONS)
    assert found == expected


def test_several_ranges_are_parts_of_one_body(ours):
    def parts(version):
        _, status, headers, body = curl(ours, version, "GET", "/big", "-r", "0-99,1000-1999")
        boundary = re.search(r"boundary=(\w+)", dict(headers)["content-type"])[1]
        return status, dict(headers)["content-length"], body.replace(boundary.encode(), b"")
    assert parts(VERSIONS[0]) == parts(VERSIONS[1]) and parts(VERSIONS[1])[0] == 206


def test_metrics_are_for_their_readers(ours):
    for version in VERSIONS:
        _, status, headers, body = curl(ours, version, "GET", "/metrics")
        assert status == 200 and b"scalla_http_requests" in body and dict(headers)["content-type"].startswith("text/plain")


def test_events_of_the_dashboard_arrive(ours):
    with Http2Client(ours) as client:
        stream = client.request("GET", "/dashboard/events")
        while client.replies[stream].body.count(b"\n\n") < 2:
            assert client.receive()
        # Another request of the connection is served meanwhile.
        assert client.ask("GET", "/small").body == SMALL
        assert not client.replies[stream].ended


def test_encrypted_connections_agree_on_http2(ours, authority):
    trust = ("--cacert", str(authority.file))
    # HTTP/1.1 is preferred, so HTTP/2 is for clients that ask for it alone.
    for version, spoken in (("--http2", "1.1"), ("--http1.1", "1.1"), ("--http1.0", "1.0"), ("--no-alpn", "1.1")):
        found = curl(ours, version, "GET", "/big", *trust, scheme="https")
        assert (found[0], found[1], found[3]) == (spoken, 200, BIG), version
    for version in ("--http2", "--http1.1"):
        assert curl(ours, version, "PUT", f"/w/tls{version}", *trust, scheme="https", body=BIG)[1] == 201
        assert (ours.tree / f"w/tls{version}").read_bytes() == BIG
    # An upgrade of HTTP/1.1 is ignored.
    assert curl(ours, "--http2", "GET", "/small")[::3] == ("1.1", SMALL)


def test_programs_of_nghttp2(ours):
    said = run(["nghttp", "-nsa", f"http://localhost:{ours.port}/big"]).ok().all
    assert re.search(r" 200\s+1M /big", said), said
    loads = (("/small", 20_000), ("/big", 300))
    for path, number in loads:
        said = run(["h2load", "-n", str(number), "-c", "4", "-m", str(STREAMS_MAX), f"http://localhost:{ours.port}{path}"]).ok().out
        assert f"{number} succeeded, 0 failed" in said and f"status codes: {number} 2xx" in said, said


def test_a_hundred_streams_at_once(ours):
    with Http2Client(ours) as client:
        client.receive()
        assert client.connection.remote_settings.max_concurrent_streams == STREAMS_MAX
        streams = [client.request("GET", "/big", [("range", f"bytes={at}-{at + 9999}")]) for at in range(STREAMS_MAX)]
        for at, stream in enumerate(streams):
            reply = client.reply(stream)
            assert reply.status == 206 and reply.body == BIG[at:at + 10_000]


def test_large_uploads(ours, tmp_path):
    content = bytes(range(256)) * (100 << 12)
    (tmp_path / "source").write_bytes(content)
    before = ours.memory()
    found = curl(ours, VERSIONS[1], "PUT", "/w/large", "-T", str(tmp_path / "source"))
    assert found[:2] == ("2", 201)
    assert (ours.tree / "w/large").read_bytes() == content
    assert ours.memory() - before < 32 << 20
    # Several at the same time share the window of the connection.
    with Http2Client(ours) as client:
        streams = [client.request("PUT", f"/w/many{number}", ends=False) for number in range(20)]
        for part in range(0, len(BIG), 1 << 17):
            for stream in streams:
                client.send(stream, BIG[part:part + (1 << 17)], ends=part + (1 << 17) >= len(BIG))
        for number, stream in enumerate(streams):
            assert client.reply(stream).status == 201 and (ours.tree / f"w/many{number}").read_bytes() == BIG


def test_an_upload_may_end_with_trailers(ours):
    with Http2Client(ours) as client:
        stream = client.request("PUT", "/w/trailers", ends=False)
        client.send(stream, BIG, ends=False)
        client.connection.send_headers(stream, [("x-trailer", "1")], end_stream=True)
        client.flush()
        assert client.reply(stream).status == 201 and (ours.tree / "w/trailers").read_bytes() == BIG


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("end", [CANCEL, NO_ERROR, "close"])
def test_an_interrupted_upload_leaves_nothing(ours, sized, end):
    old = ours.tree / "w/replaced"
    peers.place(old, SMALL)
    for path in ("/w/interrupted", "/w/replaced"):
        headers = [("content-length", str(len(BIG)))] if sized else []
        with Http2Client(ours) as client:
            stream = client.request("PUT", path, headers, ends=False)
            client.send(stream, BIG[:200_000], ends=False)
            # The file exists, or the new content beside the old one.
            wait_until(lambda: (ours.tree / "w/interrupted").exists() or list(replacements(ours.tree / "w")))
            if end == "close":
                client.socket.close()
            else:
                client.reset(stream, end)
                assert client.ask("GET", "/small").body == SMALL
            wait_until(lambda: not (ours.tree / "w/interrupted").exists() and not list(replacements(ours.tree / "w")))
            assert old.read_bytes() == SMALL


def test_a_trailer_has_the_result_of_a_transfer(ours):
    with Http2Client(ours) as client:
        reply = client.ask("GET", "/big", [("te", "trailers"), ("x-transfer-status", "true")])
        assert reply.body == BIG and reply.trailers == {"x-transfer-status": "200: OK"} and reply.header("trailer") == "X-Transfer-Status"


MALFORMED = {
    "two hosts": [("host", "other.example")],
    "a connection header": [("connection", "close")],
    "a transfer coding": [("transfer-encoding", "chunked")],
    "an upgrade": [("upgrade", "h2c")],
    "a coding of the connection": [("te", "gzip")],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_refused(ours, name):
    with Http2Client(ours, checks=False) as client:
        reply = client.reply(client.request("DELETE", "/small", MALFORMED[name]))
        assert reply.status == 400 if name == "two hosts" else reply.reset == h2.errors.ErrorCodes.PROTOCOL_ERROR
        # The others of the connection are served.
        assert client.ask("GET", "/small").body == SMALL


def test_names_of_headers_have_no_upper_case(ours):
    with Http2Client(ours, checks=False) as client:
        stream = client.request("DELETE", "/small", [("X-Upper", "1")])
        client.until_closed()
        assert client.goaway == h2.errors.ErrorCodes.PROTOCOL_ERROR and not client.replies[stream].headers
    assert (ours.tree / "small").exists()


def test_a_request_has_a_host(ours):
    def head(*hosts):
        return [(":method", "GET"), (":scheme", "http"), (":path", "/small"), *hosts]
    for hosts, status in (([], 400), ([("host", "h")], 200), ([(":authority", "h")], 200), ([(":authority", "h"), ("host", "H")], 200),
                          ([(":authority", "u@h")], 400), ([("host", "h"), ("host", "h")], 400)):
        with Http2Client(ours, checks=False) as client:
            pseudo = [pair for pair in hosts if pair[0].startswith(":")]
            plain = [pair for pair in hosts if not pair[0].startswith(":")]
            reply = client.reply(client.request("GET", "/small", head=head(*pseudo) + plain))
            assert reply.status == status, hosts


def test_heads_are_limited(ours):
    with Http2Client(ours) as client:
        assert client.ask("GET", "/small", [(f"x-{number}", "1") for number in range(HEADERS_MAX)]).status == 431
        assert client.ask("GET", "/small", [(f"x-{number}", "1") for number in range(HEADERS_MAX - 5)]).status == 200
        # Larger than the setting of the server, in small headers and in large ones.
        for headers in ([("x", "y" * HEAD_BYTES_MAX)], [(f"x-{number}", "y" * 1000) for number in range(90)]):
            assert client.ask("GET", "/small", headers).status == 431
        assert client.ask("GET", "/small").body == SMALL


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4


def endless(server, first, repeated, seconds=SECONDS):
    """Sends frames again and again, until the server closes the connection, and returns the number of them. `repeated(number)`
    returns frames."""
    with socket.create_connection(("localhost", server.port), timeout=seconds) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + first)
        for number in range(200_000):
            try:
                connection.sendall(repeated(number))
            except OSError:
                return number
    raise AssertionError("the server did not close the connection")


def head(server, path, *headers):
    return hpack.Encoder().encode([(":method", "GET"), (":scheme", "http"), (":authority", f"localhost:{server.port}"), (":path", path), *headers])


def floods(server):
    """The frames of floods: the first ones, and those that are repeated."""
    request = head(server, "/big")
    cancel = struct.pack(">I", CANCEL)
    return {
        "resets": (b"", lambda number: b"".join(
            frame(HEADERS, END_STREAM | END_HEADERS, stream, request) + frame(RST_STREAM, 0, stream, cancel)
            for stream in range(200 * number + 1, 200 * number + 201, 2))),
        "continuations": (frame(HEADERS, END_STREAM, 1, request), lambda _: 100 * frame(CONTINUATION, 0, 1)),
        "large continuations": (frame(HEADERS, END_STREAM, 1, request), lambda _: frame(
            CONTINUATION, 0, 1, hpack.Encoder().encode([("x", "y" * 15_000)], huffman=False))),
        # One header fills the table of the server, and a byte names it.
        "indexed headers": (b"", lambda number: b"".join(frame(
            HEADERS, END_STREAM | END_HEADERS, stream,
            (hpack.Encoder().encode([("x", "y" * 4000)]) if number == 0 and stream == 1 else b"") + 16_000 * b"\xbe")
            for stream in range(20 * number + 1, 20 * number + 21, 2))),
        "empty data": (frame(HEADERS, END_HEADERS, 1, request), lambda _: 100 * frame(DATA, 0, 1)),
        "windows of nothing": (b"", lambda _: 100 * frame(8, 0, 0, struct.pack(">I", 0))),
    }


@pytest.mark.parametrize("name", ["resets", "continuations", "large continuations", "indexed headers", "empty data", "windows of nothing"])
def test_floods_end_their_connection_only(ours, name):
    first, repeated = floods(ours)[name]
    with Http2Client(ours) as other:
        assert other.ask("GET", "/small").body == SMALL
        before, open_before = ours.memory(), ours.descriptors()
        for _ in range(3):
            endless(ours, first, repeated)
        assert ours.memory() - before < 64 << 20
        assert other.ask("GET", "/big").body == BIG
        assert ask(ours, "GET", "/small")[1] == SMALL
    wait_until(lambda: ours.descriptors() <= open_before)


@pytest.mark.parametrize("kind", ["pings", "settings"])
def test_floods_of_what_needs_an_answer_hold_no_memory(ours, kind):
    repeated = {"pings": 1000 * frame(PING, 0, 0, b"12345678"), "settings": 1000 * frame(SETTINGS, 0, 0)}[kind]
    before = ours.memory()
    with socket.create_connection(("localhost", ours.port), timeout=1) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
        # The client reads no answer. The server reads no further frames when it cannot send any.
        with pytest.raises((TimeoutError, ConnectionError)):
            while True:
                connection.sendall(repeated)
        assert ours.memory() - before < 16 << 20
        assert ask(ours, "GET", "/small")[1] == SMALL


def test_resets_of_streams_that_are_served_end_the_connection(ours):
    with Http2Client(ours, window=1) as client:
        with pytest.raises((ConnectionError, AssertionError)):
            for _ in range(4 * RESETS_MAX):
                stream = client.request("GET", "/big")
                while not client.replies[stream].headers:
                    assert client.receive()
                client.reset(stream, CANCEL)
    with Http2Client(ours) as client:
        # Few of them are none.
        for _ in range(RESETS_MAX // 2):
            client.reset(client.request("GET", "/big"), CANCEL)
            assert client.ask("GET", "/small").body == SMALL


def test_clients_that_take_nothing_hold_little_memory(ours):
    """Without windows, the server reads no more of files than it may send."""
    before = ours.memory()
    clients = []
    try:
        for number in range(8):
            client = Http2Client(ours, window=0, address="127.0.0.1", source=f"127.0.3.{number + 1}")
            clients.append(client)
            streams = [client.request("GET", "/big") for _ in range(STREAMS_MAX)]
            while not all(client.replies[stream].headers for stream in streams):
                assert client.receive()
        for _ in range(20):
            assert ask(ours, "GET", "/big")[1] == BIG
        # 800 files are open, and at most a chunk of each is in memory.
        assert ours.memory() - before < 300 << 20
    finally:
        for client in clients:
            client.socket.close()
    wait_until(lambda: ours.descriptors() < 100)


def test_resets_end_the_operations_of_their_streams():
    """Reset requests count until they have ended, and those beyond the limit are refused for a repetition."""
    with OurWebServer("scalla.http metrics\n") as server:
        place_tree(server)
        with Http2Client(server, window=0) as client:
            streams = [client.request("GET", "/big") for _ in range(STREAMS_MAX)]
            while not all(client.replies[stream].headers for stream in streams):
                assert client.receive()
            opened = server.descriptors()
            assert opened >= STREAMS_MAX
            for stream in streams:
                client.reset(stream, CANCEL)
            wait_until(lambda: server.descriptors() < opened - STREAMS_MAX + 10)
            client.connection.update_settings({4: 65535})
            client.flush()
            assert client.ask("GET", "/small").body == SMALL


def test_requests_beyond_the_memory_are_refused():
    with OurWebServer("scalla.memory 64m\n") as server:
        place_tree(server)
        with Http2Client(server, window=0) as client:
            # One host has 8 MiB, of which each GET is charged 160 KiB.
            streams = [client.request("GET", "/big") for _ in range(STREAMS_MAX)]
            while not all(client.replies[stream].headers for stream in streams):
                assert client.receive()
            found = [client.replies[stream].status for stream in streams]
            assert set(found) == {200, 503} and 30 < found.count(200) < 60
            for stream in streams:
                if client.replies[stream].status == 200:
                    client.reset(stream, CANCEL)
            wait_until(lambda: ask(server, "GET", "/small")[0].status == 200)


def test_tokens_decide_about_streams(tmp_path):
    issuer = Issuer(tmp_path)
    read, write = (issuer.token(scope=f"storage.{right}:/") for right in ("read", "create"))
    with with_tokens(OurWebServer(), issuer) as server, Http2Client(server) as client:
        def headers(token):
            return [("authorization", f"Bearer {token}")] if token else []
        expected = [(read, 200), (None, 403), (write, 403), (read, 200), (read[:-4] + "AAAA", 403)] * 15
        streams = [client.request("GET", "/protected/f", headers(token)) for token, _ in expected]
        assert [client.reply(stream).status for stream in streams] == [status for _, status in expected]


def test_tokens_are_logins_of_encrypted_connections(authority, tmp_path):
    issuer = Issuer(tmp_path)
    read = issuer.token(scope="storage.read:/")
    with with_tokens(OurWebServer(f"xrootd.seclib libXrdSec.so\nsec.protocol ztn\n{authority.settings()}"), issuer) as server:
        for version in ("--http1.1", "--http2"):
            def status(*arguments, **how):
                return curl(server, version, "GET", "/protected/f", "--cacert", str(authority.file), *arguments, **how)[1]
            assert status(scheme="https") == 401
            assert status("-H", f"Authorization: Bearer {read}", scheme="https") == 200
        # Others have read the token of a connection that is not encrypted, whatever its scheme claims.
        with Http2Client(server) as client:
            head = [(name, "https" if name == ":scheme" else value) for name, value in client.head("GET", "/protected/f")]
            assert client.reply(client.request("GET", "", head=[*head, ("authorization", f"Bearer {read}")])).status == 403


def test_http2_can_be_turned_off(authority):
    with OurWebServer(f"scalla.http nohttp2\n{authority.settings()}") as server:
        place_tree(server)
        assert curl(server, "--http2", "GET", "/small", "--cacert", str(authority.file), scheme="https")[::3] == ("1.1", SMALL)
        with socket.create_connection(("localhost", server.port), timeout=SECONDS) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            assert not connection.recv(9).startswith(b"\0")


def test_the_preface_comes_in_pieces(ours):
    with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE:
            connection.sendall(bytes([byte]))
        connection.sendall(frame(SETTINGS, 0, 0))
        # The settings of the server.
        assert connection.recv(9)[3] == SETTINGS


def test_a_server_of_the_xroot_protocol_alone_speaks_no_http2():
    with peers.Ours(settings=peers.SETTINGS) as server:
        with socket.create_connection(("localhost", server.port), timeout=SECONDS) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            try:
                assert connection.recv(100) == b""
            except ConnectionError:
                pass
        xrdfs(server, "stat", "/").ok()


def test_a_stopping_server_ends_connections():
    with OurWebServer() as server:
        place_tree(server)
        with Http2Client(server) as idle:
            assert idle.ask("GET", "/small").body == SMALL
            command = ["curl", "-sS", VERSIONS[1], "-T", "-", "-w", "%{http_code}", f"http://localhost:{server.port}/w/new"]
            busy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            busy.stdin.write(BIG[:100_000])
            busy.stdin.flush()
            wait_until(lambda: (server.tree / "w/new").exists())
            server.process.terminate()
            # It does not reply to what the server asks at the end.
            idle.until_closed()
            assert idle.goaway == NO_ERROR
            said, _ = busy.communicate(BIG[100_000:], timeout=SECONDS)
            assert said.endswith(b"201")
        assert server.process.wait(SECONDS) == 0
        assert (server.tree / "w/new").read_bytes() == BIG


def test_a_manager_redirects_to_servers():
    with clusters.Cluster(clusters.PAIR, "ours", settings="xrd.protocol http *\n") as cluster:
        area = clusters.Area(cluster)
        area.put("f", SMALL, "s1")
        places = []
        for version in VERSIONS:
            spoken, status, headers, _ = curl(cluster.man, version, "GET", str(area / "f"))
            places.append((status, dict(headers)["location"]))
        assert places[0] == places[1] and places[0][0] == 302
        assert curl(cluster.man, VERSIONS[1], "GET", str(area / "f"), "-L")[1] == 302


def test_connections_are_counted(ours):
    before = scrape(ours.port)
    with Http2Client(ours) as client:
        for _ in range(10):
            assert client.ask("GET", "/small").status == 200
    name = 'scalla_http_requests_total{method="GET",status="2xx"}'
    assert scrape(ours.port)[name] - before[name] >= 10


def test_bodies_have_memory_where_there_is_little(tmp_path):
    """A body is charged at most its window, so that no size of memory refuses all uploads."""
    with OurWebServer("scalla.memory 64m\n") as server:
        place_tree(server)
        for version in VERSIONS:
            assert curl(server, version, "PUT", f"/w/few{version}", body=BIG)[1] == 201
            body = b'<?xml version="1.0"?><propfind xmlns="DAV:"><allprop/></propfind>'
            assert curl(server, version, "PROPFIND", "/", "-H", "Depth: 0", body=body)[1] == 207
        assert run(["h2load", "-n40", "-c4", "-m10", f"http://localhost:{server.port}/small"]).ok().out.count("40 succeeded") == 1
