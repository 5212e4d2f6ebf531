"""`scalla cp --tpc` with servers of HTTP: ours and the real one, each as the server that copies and as the other one."""

import json
import os
import signal
import subprocess
import threading

import pytest

import peers
from test_http_copies import BIG, SMALL, OurCopies, TheirCopies, authority, place
from tools import run, scalla, wait_until
from web import AnsweringServer, OurWebServer, TheirWebServer

__all__ = ["authority"]

# Exit status of operations that may have been carried out.
UNCERTAIN = 3


@pytest.fixture(scope="module")
def ours(authority):
    with OurCopies(authority.settings() + "tpc.allow local\n") as server:
        yield place(server)


@pytest.fixture(scope="module")
def other(authority):
    with OurCopies(authority.settings() + "tpc.allow local\n") as server:
        yield place(server)


@pytest.fixture(scope="module")
def theirs(authority):
    with TheirCopies(authority) as server:
        yield place(server)


@pytest.fixture(scope="module")
def our_plain():
    """A server that copies nothing."""
    with OurWebServer() as server:
        yield place(server)


@pytest.fixture(scope="module")
def their_plain():
    with TheirWebServer() as server:
        yield place(server)


PAIRS = [("ours", "other"), ("ours", "theirs"), ("theirs", "ours"), ("our_plain", "ours"), ("our_plain", "theirs"), ("their_plain", "ours"),
         ("ours", "our_plain"), ("theirs", "our_plain"), ("ours", "their_plain")]


@pytest.mark.parametrize("name", ["empty", "small", "big"])
@pytest.mark.parametrize("source,target", PAIRS)
def test_servers_copy_from_each_other(request, source, target, name):
    source, target = request.getfixturevalue(source), request.getfixturevalue(target)
    path = f"/tpc-{source.web_port}-{name}"
    done = scalla("cp", "--json", "--tpc", "only", f"{source.origin}/{name}", f"{target.origin}{path}").ok()
    content = {"empty": b"", "small": SMALL, "big": BIG}[name]
    assert (target.tree / path[1:]).read_bytes() == content
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["third_party"] for line in lines if line.get("kind") == "file"] == [True], lines
    scalla("cp", "--tpc", "only", f"{source.origin}/{name}", f"{target.origin}{path}").fails(1, "exists")
    # A file of the same size and time may be the source.
    other, content = ("big", BIG) if name == "small" else ("small", SMALL)
    scalla("cp", "--tpc", "only", "--force", "--checksum", "adler32", f"{source.origin}/{other}", f"{target.origin}{path}").ok()
    assert (target.tree / path[1:]).read_bytes() == content


def test_sources_of_the_xroot_protocol(ours, their_plain):
    scalla("cp", "--tpc", "only", their_plain.url("/big"), f"{ours.origin}/from-xroot").ok()
    assert (ours.tree / "from-xroot").read_bytes() == BIG
    run([peers.link("xrdcp"), "--tpc", "only", their_plain.url("/small"), f"{ours.origin}/from-xroot-small"]).ok()
    assert (ours.tree / "from-xroot-small").read_bytes() == SMALL


def test_servers_that_do_not_copy(our_plain, their_plain):
    scalla("cp", "--tpc", "only", f"{our_plain.origin}/small", f"{their_plain.origin}/refused").fails(1)
    assert not (their_plain.tree / "refused").exists()
    # This client copies.
    done = scalla("cp", "--json", "--tpc", "first", f"{our_plain.origin}/small", f"{their_plain.origin}/through").ok()
    assert (their_plain.tree / "through").read_bytes() == SMALL and '"third_party":true' not in done.out.replace(" ", "")


def test_what_is_refused_changes_nothing(ours, other):
    before = set(os.listdir(ours.tree))
    scalla("cp", "--tpc", "only", f"{other.origin}/none", f"{ours.origin}/new").fails(1, "404")
    scalla("cp", "--tpc", "delegate", f"{other.origin}/small", f"{ours.origin}/new").fails(1, "delegated")
    scalla("cp", "--tpc", "only", f"{other.origin}/small", ours.url("/new")).fails(1, "https://")
    scalla("cp", "--tpc", "only", "--force", f"{ours.origin}/small", f"http://127.0.0.1:{ours.port}/small").fails(1, "may be the source")
    scalla("cp", "--tpc", "only", "--checksum", "adler32:00000001", f"{other.origin}/small", f"{ours.origin}/new").fails(1)
    assert set(os.listdir(ours.tree)) == before and (ours.tree / "small").read_bytes() == SMALL


class Ordered(AnsweringServer):
    """A server that answers HEAD by a file or none, and records the headers of a COPY, to which it answers with a text."""

    def __init__(self, text, size=None, status=202):
        super().__init__()
        self.text, self.size, self.orders, self.changes, self.status, self.appears = text, size, [], [], status, None
        self.server.RequestHandlerClass.do_COPY = lambda handler: self.copy(handler)

    @property
    def origin(self):
        return f"http://localhost:{self.port}"

    takes_changes = True

    def answer(self, handler, has_body):
        if handler.command not in ("GET", "HEAD"):
            self.changes.append(handler.command)
        handler.send_response(404 if self.size is None else 200)
        handler.send_header("Content-Length", str(self.size or 0))
        handler.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        handler.end_headers()

    def copy(self, handler):
        self.orders.append({name.lower(): value for name, value in handler.headers.items()})
        self.size = self.size if self.appears is None else self.appears
        handler.send_response(self.status)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in self.text:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")


@pytest.mark.parametrize("text,error,status", [
    ([b"Perf Marker\nStripe Index: 0\n", b"Stripe Bytes Transferred: 3\nEnd\nfailure: the disk\x1b is full\n"], "the disk? is full", 1),
    ([b"Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: 3\nEnd\n"], "before the result", UNCERTAIN),
    ([b"Stripe Bytes Transferred: many\n"], "no number", UNCERTAIN),
])
def test_a_copy_without_success_is_a_failure(other, text, error, status):
    with Ordered(text) as server:
        scalla("cp", "--tpc", "only", f"{other.origin}/small", f"{server.origin}/new").fails(status, error)
        scalla("cp", "--tpc", "first", f"{other.origin}/small", f"{server.origin}/new").fails(status, error)


@pytest.mark.parametrize("status,text,error", [
    (412, [b"exists\n"], "exists"), (202, [b"failure: it exists\n"], "it exists"), (202, [], "before the result"), (500, [b"no\n"], "500"),
    (202, [b"Perf Marker\nStripe Bytes Transferred: 9\nEnd\n", b"failure: it exists\n"], "it exists"),
])
def test_the_file_of_another_client_stays(other, status, text, error):
    with Ordered(text, status=status) as server:
        # It appears after this client has looked.
        server.appears = 3
        done = scalla("cp", "--tpc", "only", f"{other.origin}/small", f"{server.origin}/new")
        done.fails(UNCERTAIN if error in ("500", "before the result") else 1, error)
        assert server.changes == []


@pytest.mark.parametrize("status,text", [(504, [b"late\n"]), (202, [b"Perf Marker\nEnd\n"])])
def test_a_copy_that_may_go_on_is_not_repeated(other, status, text):
    with Ordered(text, status=status) as server:
        done = scalla("cp", "--tpc", "first", "--retry", "2", "--force", f"{other.origin}/small", f"{server.origin}/new")
        done.fails(UNCERTAIN, "may have been carried out")
        assert len(server.orders) == 1 and server.changes == []


def test_each_server_gets_its_token(other):
    with Ordered([b"success: Created\n"]) as server:
        scalla("cp", "--tpc", "only", f"{other.origin}/small?authz=FOR-SOURCE&x=1", f"{server.origin}/new?authz=FOR-TARGET", BEARER_TOKEN="OF-USER")
        order = server.orders[0]
    assert order["authorization"] == "Bearer FOR-TARGET" and order["transferheaderauthorization"] == "Bearer FOR-SOURCE"
    assert order["source"] == f"{other.origin}/small?x=1" and order["credential"] == "none" and order["overwrite"] == "F"
    with Ordered([b"success: Created\n"]) as server:
        scalla("cp", "--tpc", "only", "--force", f"{other.origin}/small", f"{server.origin}/new", BEARER_TOKEN="OF-USER")
        order = server.orders[0]
    assert "OF-USER" not in str(order) and order["overwrite"] == "T"


def test_an_interrupt_stops_the_copy(ours, other, tmp_path):
    class Endless(AnsweringServer):
        """A server whose file never ends."""

        def answer(self, handler, has_body):
            handler.send_response(200)
            handler.send_header("Content-Length", str(1 << 30))
            handler.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            handler.end_headers()
            if handler.command == "GET":
                handler.wfile.write(bytes(1 << 20))
                self.waiting.wait(60)

    with Endless() as source:
        source.waiting = threading.Event()
        before = set(os.listdir(ours.tree))
        process = subprocess.Popen([peers.program(), "cp", "--tpc", "only", f"http://localhost:{source.port}/f", f"{ours.origin}/endless"])
        try:
            wait_until(lambda: set(os.listdir(ours.tree)) != before)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) != 0
            wait_until(lambda: set(os.listdir(ours.tree)) == before)
        finally:
            process.kill()
            source.waiting.set()
