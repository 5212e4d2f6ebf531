"""Revocation lists of grid authorities that the server downloads (`-crl:use,updt`, `-crl:require,updt`), from an HTTP server of
the test."""

import http.server
import ssl
import threading
import time

import pytest

import grid
import peers
from codes import Exit
from tools import XRDFS, run, scalla, wait_until

# One byte more than the largest list.
TOO_LARGE = (16 << 20) + 1
LOOPBACK = "gsi.crlsource allow loopback\n"


class ListServer:
    """An HTTP server. `answer` is the body of all replies, or a function of the handler. `requests` counts them."""

    def __init__(self, pair=None):
        self.answer, self.requests = b"", 0
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.requests += 1
                if callable(owner.answer):
                    return owner.answer(self)
                self.send_response(200 if owner.answer else 404)
                self.send_header("Content-Length", str(len(owner.answer)))
                self.end_headers()
                self.wfile.write(owner.answer)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        if pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = f"{'https' if pair else 'http'}://localhost:{self.http.server_port}/list"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def site():
    with grid.new_site() as site:
        yield site


@pytest.fixture
def lists():
    lists = ListServer()
    yield lists
    lists.stop()


class Logins:
    """A user and a revoked user of a site, whose list is at `address`, and the server at which they log in."""

    def __init__(self, site, address):
        self.site = site
        (site.certificates / f"{site.hash}.crl_url").write_text(f"# The list\n{address}\n")
        self.plain = site.proxy("plain")
        self.revoked = site.issue("revoked", "/O=Grid/CN=Revoked")
        self.revoked_proxy = site.proxy("revoked", of=self.revoked)
        self.server = None

    def start(self, serve, *options, more=LOOPBACK):
        self.server = serve(settings=peers.SETTINGS + self.site.settings("-crlrefresh:1", *options) + more)

    def ls(self, proxy):
        return run([XRDFS, f"localhost:{self.server.port}", "ls", "/"], **self.site.client(proxy))

    def expect(self, revoked):
        """Both users log in, or only the one that is not revoked."""
        self.ls(self.plain).ok()
        assert (self.ls(self.revoked_proxy).status != 0) == revoked
        if revoked:
            wait_until(lambda: "was revoked" in self.server.output())

    def await_text(self, text, count=1):
        wait_until(lambda: self.server.output().count(text) >= count)


NEW = "a new revocation list of"


def test_a_certificate_is_refused_after_the_list_was_downloaded(serve, site, lists):
    logins = Logins(site, lists.url)
    now = time.time()
    lists.answer = site.revocation_list(issued=now - 60)
    logins.start(serve, "-crl:use,updt")
    logins.await_text(NEW)
    logins.expect(revoked=False)
    lists.answer = site.revocation_list(logins.revoked, issued=now - 30)
    logins.await_text(NEW, 2)
    logins.expect(revoked=True)
    # Our client is refused, too.
    failed = scalla("ls", f"root://localhost:{logins.server.port}//", **site.client(logins.revoked_proxy))
    assert failed.status != 0
    wait_until(lambda: f"from {lists.url}" in logins.server.output())


def test_no_failure_of_the_download_brings_an_older_list_back(serve, site, lists):
    logins = Logins(site, lists.url)
    now = time.time()
    older = site.revocation_list(issued=now - 60)
    newer = site.revocation_list(logins.revoked, issued=now - 30)
    lists.answer = newer
    logins.start(serve, "-crl:require,updt")
    logins.await_text(NEW)

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(TOO_LARGE // 4096 + 1):
            handler.wfile.write(bytes(4096))

    def elsewhere(handler):
        handler.send_response(302)
        handler.send_header("Location", lists.url)
        handler.end_headers()

    failures = [
        (older, "older than the one in force"),
        (b"<html>this is no list</html>", "neither PEM nor DER"),
        (newer[: len(newer) // 2], "neither PEM nor DER"),
        (b"", "status: 404"),
        (endless, "larger than"),
        (elsewhere, "too many redirects"),
    ]
    for number, (answer, reason) in enumerate(failures, 1):
        known = logins.server.output().count(reason)
        lists.answer = answer
        logins.await_text(reason, known + 1)
        # A reason is logged once.
        before = lists.requests
        wait_until(lambda: lists.requests >= before + 2)
        if number == 1:
            logins.expect(revoked=True)
        lists.answer = newer
        logins.await_text("can be downloaded again", number)
    output = logins.server.output()
    assert (output.count("cannot be downloaded"), output.count(NEW)) == (len(failures), 1)
    # The list is kept while nothing answers, and over a restart.
    lists.stop()
    logins.await_text("cannot be downloaded", len(failures) + 1)
    logins.expect(revoked=True)
    logins.server.restart()
    logins.expect(revoked=True)
    assert NEW not in logins.server.output()


def test_a_list_is_kept_again_after_its_file_was_lost(serve, site, lists):
    logins = Logins(site, lists.url)
    lists.answer = site.revocation_list(logins.revoked)
    logins.start(serve, "-crl:use,updt")
    logins.await_text(NEW)

    def kept():
        return list(logins.server.work.rglob(".revocation-lists/*.r0"))

    wait_until(kept)
    kept()[0].unlink()
    wait_until(kept)
    # It is the only list after a restart without the authority.
    lists.stop()
    logins.server.restart()
    logins.expect(revoked=True)


def test_an_authority_that_does_not_answer_delays_no_login(serve, site, lists):
    logins = Logins(site, lists.url)
    site.revoke(logins.revoked)
    end, ended = threading.Event(), threading.Event()

    def silent(handler):
        end.wait()
        ended.set()

    lists.answer = silent
    logins.start(serve, "-crl:13")
    wait_until(lambda: lists.requests >= 1)
    # The lists in files count meanwhile.
    logins.expect(revoked=True)
    assert not ended.is_set()
    end.set()


def test_without_any_list_nobody_is_admitted(serve, site, lists):
    logins = Logins(site, lists.url)
    logins.start(serve, "-crl:12")
    logins.await_text("cannot be downloaded")
    assert "is missing" not in logins.server.output()
    assert logins.ls(logins.plain).status != 0
    logins.await_text("is missing")
    lists.answer = site.revocation_list()
    logins.await_text(NEW)
    logins.expect(revoked=False)


@pytest.mark.parametrize("redirects", [False, True])
def test_lists_are_only_downloaded_from_permitted_servers(serve, site, lists, redirects):
    logins = Logins(site, lists.url)
    other = ListServer()
    other.answer = site.revocation_list()

    def elsewhere(handler):
        handler.send_response(302)
        handler.send_header("Location", other.url.replace("localhost", "127.0.0.1"))
        handler.end_headers()

    lists.answer = elsewhere
    if redirects:
        logins.start(serve, "-crl:use,updt", more="gsi.crlsource allow localhost\n")
        logins.await_text("is not among the allowed sources (gsi.crlsource)")
        assert lists.requests >= 1
    else:
        logins.start(serve, "-crl:use,updt", more="")
        logins.await_text("is a loopback address (gsi.crlsource)")
        assert lists.requests == 0
    assert other.requests == 0
    other.stop()


def test_https_servers_must_have_a_certificate_of_an_authority(serve, site):
    lists = ListServer(site.host)
    logins = Logins(site, lists.url)
    lists.answer = site.revocation_list(logins.revoked)
    logins.start(serve, "-crl:use,updt")
    logins.await_text(NEW)
    logins.expect(revoked=True)
    lists.stop()
    with grid.new_site(name="Other") as other:
        lists = ListServer(other.host)
        lists.answer = site.revocation_list()
        strange = Logins(site, lists.url)
        strange.start(serve, "-crl:use,updt")
        strange.await_text("cannot be downloaded")
        assert lists.requests == 0 and "UnknownIssuer" in strange.server.output()
        lists.stop()


def test_the_tools_know_the_lists_that_the_server_has_kept(serve, site, lists):
    logins = Logins(site, lists.url)
    lists.answer = site.revocation_list(logins.revoked)
    rules = site.directory / "authdb"
    rules.write_text("u * / lr\n")
    logins.start(serve, "-crl:use,updt", more=f"{LOOPBACK}ofs.authorize\nacc.authdb {rules}\n")
    config = logins.server.work / "scalla.cfg"
    check = lambda proxy: scalla("auth", "check", f"@{proxy}", "/", "read", "--config", config)
    logins.await_text(NEW)
    kept = logins.server.work / "admin" / ".revocation-lists"
    wait_until(lambda: list(kept.glob("*.r0")))
    assert "logs in by gsi" in check(logins.plain).all
    assert "was revoked" in check(logins.revoked_proxy).fails(Exit.FAILED).all
    assert "revocation list" not in scalla("config", "check", config).all
    # As at a server before its first download. One that runs would download the list again.
    logins.server.kill()
    for file in kept.glob("*.r0"):
        file.unlink()
    assert "is missing" in check(logins.plain).fails(Exit.FAILED).all
