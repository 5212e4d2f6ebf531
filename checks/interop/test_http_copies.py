"""Third-party copies over HTTP (COPY), ordered by curl: between our servers and the real one in both
directions, and with remote servers that misbehave."""

import asyncio
import contextlib
import socket
import subprocess
import threading

import pytest

import certificates
import clusters
import peers
from tools import wait_until
from web import HTTP, AnsweringServer, OurWebServer, TheirWebServer

SECONDS = 60 * peers.SLOWNESS
SMALL = b"hello world\n"
BIG = bytes(range(256)) * 20_000
SECRET = "secret-of-the-user"
HANDLER = "http.exthandler xrdtpc +notls libXrdHttpTPC.so\n"


class OurCopies(OurWebServer):
    """Our server with third-party copies over HTTP."""

    def __init__(self, settings="", **how):
        super().__init__(settings=HANDLER + settings, **how)


class TheirCopies(TheirWebServer):
    """The real server with them. It loads the plug-in only if it has a certificate."""

    def __init__(self, authority):
        super().__init__(f"{authority.settings()}http.exthandler xrdtpc libXrdHttpTPC.so\ntpc.allow local\n")


def place(server):
    peers.give(server.tree)
    for name in ("empty", "small", "big"):
        peers.place(server.tree / name, {"empty": b"", "small": SMALL, "big": BIG}[name])
    return server


@pytest.fixture(scope="module")
def authority():
    with certificates.new_authority() as authority:
        yield authority


@pytest.fixture(scope="module")
def ours(authority):
    with OurCopies(authority.settings()) as server:
        yield place(server)


@pytest.fixture(scope="module")
def other():
    with OurCopies() as server:
        yield place(server)


@pytest.fixture(scope="module")
def theirs(authority):
    with TheirCopies(authority) as server:
        yield place(server)


def curl(*arguments):
    """Returns curl, which writes the body and then a line with the status."""
    return ["curl", "-sS", "--max-time", str(int(SECONDS)), "-w", "\n%{http_code}", *arguments]


def order(server, path, *headers, options=()):
    """Returns the status and the lines of the reply to a COPY."""
    named = [word for header in headers for word in ("-H", header)]
    done = subprocess.run(curl("-X", "COPY", *options, *named, f"{server.origin}{path}"), capture_output=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body.splitlines()


def markers(lines):
    """Checks the markers of a reply, and returns their numbers of bytes."""
    text = "\n".join(lines)
    counts = []
    for marker in text.split("Perf Marker\n")[1:]:
        fields = dict(line.split(": ", 1) for line in marker.split("\nEnd")[0].splitlines())
        assert fields["Stripe Index"] == "0" and fields["Total Stripe Count"] == "1" and int(fields["Timestamp"]) > 1_700_000_000
        assert fields.get("RemoteConnections", "tcp:").startswith("tcp:")
        counts.append(int(fields["Stripe Bytes Transferred"]))
    return counts


def names(server):
    return {path.name for path in server.tree.iterdir()} - {"empty", "small", "big"}


@pytest.mark.parametrize("name", ["empty", "small", "big"])
@pytest.mark.parametrize("active,remote", [("ours", "other"), ("ours", "theirs"), ("theirs", "ours")])
def test_files_are_copied_in_both_directions(request, active, remote, name):
    active, remote = request.getfixturevalue(active), request.getfixturevalue(remote)
    content = (active.tree / name).read_bytes()
    for header, target in (("Source", active), ("Destination", remote)):
        path = f"/copied-{header}-{name}"
        local, far = (path, f"/{name}") if header == "Source" else (f"/{name}", path)
        more = ["X-Number-Of-Streams: 4", "SciTag: 66"] if content else []
        status, lines = order(active, local, f"{header}: {remote.origin}{far}", "Credential: none", *more)
        assert status in (201, 202) and lines[-1] == "success: Created", lines
        assert (target.tree / path[1:]).read_bytes() == content
        (target.tree / path[1:]).unlink()
        counts = markers(lines)
        assert counts == sorted(counts) and counts, lines
        if isinstance(active, OurCopies):
            assert counts[-1] == len(content)


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("name", ["empty", "small", "big"])
def test_real_servers_copy_to_and_from_our_encrypted_port(authority, ours, name, streams):
    """They use libcurl, which offers HTTP/2 in the handshake."""
    settings = f"{authority.settings()}http.cafile {authority.file}\nhttp.exthandler xrdtpc libXrdHttpTPC.so\n"
    with TheirWebServer(settings) as active:
        place(active)
        for header, target in (("Source", active), ("Destination", ours)):
            path = f"/encrypted-{header}-{name}"
            local, far = (path, f"/{name}") if header == "Source" else (f"/{name}", path)
            more = [f"X-Number-Of-Streams: {streams}"] if streams > 1 and name != "empty" and header == "Source" else []
            status, lines = order(active, local, f"{header}: https://localhost:{ours.port}{far}", "Credential: none", *more)
            assert lines[-1] == "success: Created", lines
            assert (target.tree / path[1:]).read_bytes() == (ours.tree / name).read_bytes()
            (target.tree / path[1:]).unlink()


def test_encrypted_remote_servers_are_verified(authority, ours, other):
    source = f"https://localhost:{ours.port}/big"
    with OurCopies(f"http.cafile {authority.file}\n") as server:
        place(server)
        status, lines = order(server, "/copy", f"Source: {source}")
        assert status == 202 and lines[-1] == "success: Created" and (server.tree / "copy").read_bytes() == BIG
        status, lines = order(server, "/big", f"Destination: https://localhost:{ours.port}/pushed")
        assert lines[-1] == "success: Created" and (ours.tree / "pushed").read_bytes() == BIG
        status, lines = order(server, "/copy", f"Source: https://127.0.0.1:{ours.port}/small")
        assert status == 500 and "TLS" in lines[0], lines
    status, lines = order(other, "/copy", f"Source: {source}")
    assert status == 500 and lines[0].startswith("failure: TLS"), lines
    assert names(other) == set()


def test_sources_of_the_xroot_protocol(ours, other):
    for name in ("empty", "small", "big"):
        status, lines = order(ours, f"/xroot-{name}", f"Source: root://localhost:{other.port}//{name}")
        assert status == 202 and lines[-1] == "success: Created", lines
        assert (ours.tree / f"xroot-{name}").read_bytes() == (other.tree / name).read_bytes()
    status, lines = order(ours, "/none", f"Source: root://localhost:{other.port}//none")
    assert status == 404 and not (ours.tree / "none").exists(), lines


def test_orders_that_cannot_be_carried_out_change_nothing(ours, other):
    source = f"Source: {other.origin}/small"
    before = names(ours)
    for expected, path, *headers in (
        (404, "/new", f"Source: {other.origin}/none"),
        (404, "/none", f"Destination: {other.origin}/new"),
        (400, "/new"),
        (400, "/new", source, f"Destination: {other.origin}/x"),
        (400, "/new", source, "Credential: gridsite"),
        (400, "/new", "Source: ftp://localhost/x"),
        (400, "/new", "Source: http://user:word@localhost/x"),
        (400, "/new", source, "TransferHeaderHost: other"),
        (400, "/new", "Source: root://localhost//x", "TransferHeaderAuthorization: Bearer x"),
        (500, "/new", "Source: http://localhost:1/x"),
        (412, "/small", source, "Overwrite: F"),
        (501, "/new", source, "If-Match: \"x\""),
    ):
        status, lines = order(ours, path, *headers)
        assert status == expected, (path, headers, status, lines)
    assert order(ours, "/small", source, "Overwrite: F")[1][0].startswith("failure: Unable to create /small; file exists, local=/small, remote=")
    assert names(ours) == before and (ours.tree / "small").read_bytes() == SMALL
    with socket.create_connection(("127.0.0.1", ours.port), SECONDS) as client:
        # The body does not arrive.
        client.sendall(f"COPY /new HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n{source}\r\n\r\n".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 415 ")
    # Directories of the path stay.
    assert order(ours, "/deep/new", "Source: http://localhost:1/x")[0] == 500
    assert list((ours.tree / "deep").iterdir()) == []
    (ours.tree / "deep").rmdir()
    assert names(ours) == before
    status, lines = order(ours, "/small", f"Source: {other.origin}/big")
    assert lines[-1] == "success: Created" and (ours.tree / "small").read_bytes() == BIG
    peers.place(ours.tree / "small", SMALL)
    with peers.Ours(settings="xrd.protocol http *\n") as server:
        server.origin = f"http://localhost:{server.port}"
        assert order(server, "/new", source)[0] == 501


class Remote(AnsweringServer):
    """A remote server whose replies are those of functions, by path. It keeps the heads of requests."""

    def __init__(self):
        super().__init__()
        self.replies, self.heads = {}, []
        owner = self

        def put(handler):
            owner.answer(handler, True)

        self.server.RequestHandlerClass.do_PUT = put

    @property
    def origin(self):
        return f"http://localhost:{self.port}"

    def answer(self, handler, has_body):
        path = handler.path.split("?")[0]
        self.heads.append((handler.command, handler.path, dict(handler.headers)))
        handler.close_connection = True
        with contextlib.suppress(OSError):
            self.replies[path](handler)


def send(handler, head, *pieces):
    handler.wfile.write(head)
    for piece in pieces:
        handler.wfile.write(piece)


@pytest.fixture
def remote():
    with Remote() as server:
        yield server


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def stall(handler):
    send(handler, HEAD, b"a" * 1000)
    handler.rfile.read(1)


@pytest.mark.parametrize("reply", [
    lambda handler: send(handler, HEAD, b"a" * 1000),
    lambda handler: send(handler, CHUNKED, b"5\r\nhello\r\n"),
    lambda handler: send(handler, CHUNKED, b"5\r\nhello\r\nzz\r\n"),
    lambda handler: send(handler, CHUNKED, b"ffffffffffffffffff\r\nhello"),
    lambda handler: send(handler, b"HTTP/1.1 200 OK\r\n\r\n", b"no end is known"),
    lambda handler: send(handler, b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\n", b"hello"),
    lambda handler: send(handler, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", b"hello"),
    lambda handler: send(handler, b"HTTP/1.1 302 Found\r\nLocation: /f\r\nContent-Length: 0\r\n\r\n"),
    lambda handler: send(handler, b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
    lambda handler: send(handler, b"HTTP/1.1 500 X\r\nContent-Length: 18\r\n\r\n", b"\r\nsuccess: Created"),
    lambda handler: send(handler, b"nonsense\r\n\r\n"),
    lambda handler: send(handler, b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"),
    stall,
], ids=["short", "chunks end", "garbage chunk", "huge chunk", "no length", "a part", "encoded", "loop", "other scheme", "text", "no HTTP", "head", "stall"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_files_that_do_not_arrive_whole_are_not_kept(hasty, remote, reply, exists):
    remote.replies["/f"] = reply
    if exists:
        peers.place(hasty.tree / "target", SMALL)
    status, lines = order(hasty, "/target", f"Source: {remote.origin}/f")
    assert lines[-1].startswith("failure: ") and "success: Created" not in lines, lines
    assert status in (202, 500, 504), lines
    if not exists:
        assert not (hasty.tree / "target").exists()
    else:
        assert (hasty.tree / "target").read_bytes() == SMALL
        (hasty.tree / "target").unlink()


@pytest.fixture(scope="module")
def hasty():
    """Our server with short times."""
    with OurCopies("tpc.timeout 1 2\nscalla.tpcsource deny 127.0.0.2\n") as server:
        yield place(server)


def test_refused_addresses_are_not_connected_to(hasty, remote):
    def refused(where):
        status, lines = order(hasty, "/refused", f"Source: {where}")
        assert status == 403 and "connection to the remote server is forbidden" in lines[0], lines
        assert not (hasty.tree / "refused").exists()
    listener = socket.create_server(("127.0.0.2", 0))
    listener.setblocking(False)
    address = f"127.0.0.2:{listener.getsockname()[1]}"
    with listener:
        refused(f"http://{address}/x")
        refused(f"root://{address}//x")
        remote.replies["/f"] = lambda handler: send(handler, f"HTTP/1.1 302 Found\r\nLocation: http://{address}/x\r\nContent-Length: 0\r\n\r\n".encode())
        refused(f"{remote.origin}/f")
        status, lines = order(hasty, "/small", f"Destination: {remote.origin}/f")
        assert lines[-1].startswith("failure: connection to the remote server is forbidden"), lines
        with pytest.raises(BlockingIOError):
            listener.accept()
    with OurCopies("tpc.deny local\n") as server:
        status, lines = order(server, "/x", f"Source: {remote.origin}/f")
        assert status == 403 and "tpc.deny" in lines[0], lines


def receive(handler):
    """Takes an upload and accepts it."""
    body = handler.rfile.read(int(handler.headers["Content-Length"]))
    send(handler, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    return body


def test_redirects_keep_headers_but_no_credentials_for_others(ours, remote):
    with Remote() as second:
        bodies = []
        second.replies["/there"] = lambda handler: bodies.append(receive(handler))
        to = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {second.origin}/there?ticket=1\r\nContent-Length: 0\r\n\r\n".encode()

        def redirect(handler):
            send(handler, to)
            # A client that waited for it too long sends the file meanwhile. Closed now, the connection would be reset,
            # with the reply.
            handler.rfile.read()

        remote.replies["/f"] = redirect
        sent = [f"TransferHeaderAuthorization: Bearer {SECRET}", "TransferHeaderX-Tag: 7"]
        status, lines = order(ours, "/big", f"Destination: {remote.origin}/f?authz={SECRET}", *sent)
        assert lines[-1] == "success: Created", lines
        # The remote server has answered before it notes the body.
        wait_until(lambda: bodies == [BIG])
        (method, path, first), (_, there, then) = remote.heads[0], second.heads[0]
        assert (method, path, there) == ("PUT", f"/f?authz={SECRET}", "/there?ticket=1")
        assert first["Authorization"] == f"Bearer {SECRET}" and "Authorization" not in then
        for head in (first, then):
            assert head["X-Tag"] == "7" and head["Content-Length"] == str(len(BIG)) and head["Expect"] == "100-continue"
        second.replies["/there"] = lambda handler: send(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello")
        status, lines = order(ours, "/redirected", f"Source: {remote.origin}/f?authz={SECRET}", *sent)
        assert lines[-1] == "success: Created" and (ours.tree / "redirected").read_bytes() == b"hello"
        assert "Authorization" not in second.heads[-1][2] and second.heads[-1][2]["X-Tag"] == "7"
        # A redirect within the server keeps them.
        remote.replies["/near"] = lambda handler: send(handler, b"HTTP/1.1 302 Found\r\nLocation: /last\r\nContent-Length: 0\r\n\r\n")
        remote.replies["/last"] = lambda handler: send(handler, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
        status, lines = order(ours, "/new", f"Source: {remote.origin}/near?authz={SECRET}", *sent)
        assert status == 403 and remote.heads[-1][2]["Authorization"] == f"Bearer {SECRET}"
        assert SECRET not in "\n".join(lines)
    assert SECRET not in ours.output()


def test_uploads_that_fail(hasty, remote):
    for reply in (
        lambda handler: send(handler, b"HTTP/1.1 507 Full\r\nContent-Length: 4\r\n\r\n", b"full"),
        # It reports success before it has the file.
        lambda handler: send(handler, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
        lambda handler: handler.rfile.read(1000) and None,
        lambda handler: handler.rfile.read(int(handler.headers["Content-Length"])) and None,
        lambda handler: handler.rfile.read(2**40) and None,
    ):
        remote.replies["/f"] = reply
        status, lines = order(hasty, "/big", f"Destination: {remote.origin}/f")
        assert status == 202 and lines[-1].startswith("failure: "), lines
    assert (hasty.tree / "big").read_bytes() == BIG


def test_checksums_are_verified(ours, other):
    adler = "adler32=1e720467"
    for expected, *headers in (
        (True, f"Digest: {adler}"),
        (True, "Repr-Digest: md5=:b1kCrCNwJL3QwXbLkwY9xA==:"),
        (True, "RequireChecksumVerification: true"),
        (True, "RequireChecksumVerification: false"),
        (False, "Digest: adler32=1e720468"),
        (False, "Repr-Digest: md5=:AAAAAAAAAAAAAAAAAAAAAA==:"),
    ):
        status, lines = order(ours, "/checked", f"Source: {other.origin}/small", *headers)
        assert (lines[-1] == "success: Created") == expected, (headers, lines)
        assert (ours.tree / "checked").exists() == expected
        (ours.tree / "checked").unlink(missing_ok=True)
    status, lines = order(ours, "/checked", f"Source: {other.origin}/small", "Digest: adler32=1e720468")
    assert "Mismatch between client-provided and remote server checksums: client = (adler32=1e720468) server = (" in lines[-1], lines


def test_a_source_without_the_wanted_checksum_is_refused(ours, remote):
    remote.replies["/f"] = lambda handler: send(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello" if handler.command == "GET" else b"")
    status, lines = order(ours, "/unchecked", f"Source: {remote.origin}/f", "RequireChecksumVerification: true")
    assert status == 500 and not (ours.tree / "unchecked").exists(), lines
    status, lines = order(ours, "/unchecked", f"Source: {remote.origin}/f", "Digest: adler32=00000001")
    assert lines[-1].startswith("failure: ") and not (ours.tree / "unchecked").exists(), lines


def test_a_client_that_leaves_ends_its_copy(ours, remote):
    gone = threading.Event()

    def endless(handler):
        handler.wfile.write(CHUNKED)
        try:
            while True:
                handler.wfile.write(b"1000\r\n" + b"a" * 0x1000 + b"\r\n")
                gone.wait(0.01)
        except OSError:
            gone.set()

    remote.replies["/endless"] = endless
    client = subprocess.Popen(curl("-N", "-X", "COPY", "-H", f"Source: {remote.origin}/endless", f"{ours.origin}/endless"), stdout=subprocess.PIPE)
    try:
        # The first marker.
        assert client.stdout.readline() == b"Perf Marker\n"
        assert (ours.tree / "endless").exists()
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    assert gone.wait(SECONDS), "the transfer goes on"
    wait_until(lambda: not (ours.tree / "endless").exists())


def test_many_copies_at_once(other):
    number = 1000
    with OurCopies() as server:
        place(server)
        peers.give(server.tree)

        async def copy(index):
            for _ in range(20):
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.write(f"COPY /many-{index} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nSource: {other.origin}/small\r\n\r\n".encode())
                    reply = await reader.read()
                    writer.close()
                    # A copy that waits too long for its place must be ordered again.
                    if reply and not reply.startswith(b"HTTP/1.1 503 "):
                        return reply
                except ConnectionError:
                    pass
                await asyncio.sleep(0.1)
            return b""

        async def all_copies():
            return await asyncio.wait_for(asyncio.gather(*(copy(index) for index in range(number))), 5 * SECONDS)

        replies = asyncio.run(all_copies())
        failed = [reply for reply in replies if b"success: Created" not in reply]
        assert not failed, (len(failed), failed[:3])
        assert all((server.tree / f"many-{index}").read_bytes() == SMALL for index in range(number))
        assert order(server, "/after", f"Source: {other.origin}/small")[1][-1] == "success: Created"


def test_rights_are_those_of_put_and_get(other, remote):
    server = OurCopies()
    server.settings += f"ofs.authorize\nacc.authdb {server.work}/authdb\n"
    peers.place(server.work / "authdb", b"u * /public lr /in irwl /blind l\n")
    for name in ("public", "in", "blind"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", SMALL)
    received = []
    remote.replies["/f"] = lambda handler: received.append(receive(handler))
    with server:
        # A remote server is not contacted for those who may not do it.
        for path, header in (("/public/new", "Source"), ("/public/f", "Source"), ("/blind/f", "Destination"), ("/none", "Destination")):
            status, lines = order(server, path, f"{header}: {remote.origin}/f")
            assert status == 403, (path, header, lines)
        assert remote.heads == [] and (server.tree / "public/f").read_bytes() == SMALL
        assert order(server, "/in/new", f"Source: {other.origin}/big")[1][-1] == "success: Created"
        assert (server.tree / "in/new").read_bytes() == BIG
        assert order(server, "/public/f", f"Destination: {remote.origin}/f")[1][-1] == "success: Created"
        wait_until(lambda: received == [SMALL])


def test_a_manager_redirects_copies_to_servers(other):
    with clusters.Cluster(clusters.PAIR, "ours", settings=HTTP + HANDLER) as cluster:
        area = clusters.Area(cluster)
        area.put("f", SMALL, "s1")
        manager = cluster.man
        manager.origin = f"http://localhost:{manager.port}"
        assert order(manager, str(area / "other"), f"Source: {other.origin}/big")[0] == 307
        status, lines = order(manager, str(area / "new"), f"Source: {other.origin}/big", options=["-L"])
        assert lines[-1] == "success: Created" and area.get("new") == BIG, lines
        status, lines = order(manager, str(area / "f"), f"Destination: {other.origin}/from-cluster", options=["-L"])
        assert lines[-1] == "success: Created" and (other.tree / "from-cluster").read_bytes() == SMALL, lines
        assert order(manager, str(area / "none"), f"Destination: {other.origin}/none")[0] == 404
        # The manager contacts no remote server, not even if a file is to be replaced.
        with socket.socket() as source:
            source.bind(("127.0.0.1", 0))
            source.listen()
            url = f"http://localhost:{source.getsockname()[1]}/f"
            assert order(manager, str(area / "f"), f"Source: {url}")[0] == 307
            assert order(manager, str(area / "f"), f"Source: {url}", "Overwrite: F")[0] == 412
            source.setblocking(False)
            with pytest.raises(BlockingIOError):
                source.accept()
        assert area.get("f") == SMALL


def test_options_name_the_method(ours):
    done = subprocess.run(["curl", "-sSi", "--max-time", "30", "-X", "OPTIONS", f"{ours.origin}/"], capture_output=True, text=True)
    assert "COPY" in next(line for line in done.stdout.splitlines() if line.startswith("Allow:"))
