"""Credentials that expire during a session, and clocks that differ: the rights of the session, new
operations, and the login over a new connection."""

import os
import subprocess
import threading
import time

import pytest

import grid
import peers
from kerberos import Realm
from test_ztn import authority, issuer, prepared
from tools import XRDFS, run, scalla, wait_until

__all__ = ["authority", "issuer"]

# Lifetimes that are tried in turn: on a busy machine a credential can expire before its session has begun.
LIFETIMES = (6, 20, 60)


class Shell:
    """A client that stays connected and runs one command at a time."""

    def __init__(self, server, program, url=None, **environment):
        command = [program, url or f"localhost:{server.port}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=peers.environment(**environment))
        self.text = ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.text += piece.decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def stat(self, path):
        """Returns the output of `stat`."""
        before = len(self.text)
        self.process.stdin.write(f"stat {path}\n".encode())
        self.process.stdin.flush()
        patience = peers.Patience(60 * peers.SLOWNESS)
        while not (any(word in self.text[before:] for word in ("Flags:", "ERROR", "FATAL")) and self.text.rstrip().endswith(">")):
            assert not patience.over() and self.process.poll() is None, self.text
            time.sleep(0.02)
        return self.text[before:]


def in_time(make, before, after):
    """Makes a credential that expires in some seconds, and runs `before` while it is valid and `after` when it
    has expired. `make` receives the time of the expiry."""
    for seconds in LIFETIMES:
        ends = int(time.time()) + seconds
        subject = make(ends)
        try:
            begun = before(subject)
        except AssertionError:
            assert time.time() >= ends - 1
            continue
        if time.time() >= ends - 1:
            begun.__exit__()
            continue
        with begun:
            wait_until(lambda: time.time() > ends + 1, seconds=seconds + 30)
            return after(begun)
    raise AssertionError("each credential expired before its session had begun")


@pytest.mark.parametrize("program", ["ours", "theirs"])
def test_the_rights_of_a_session_end_with_its_proxy(serve, own_site, tmp_path, program):
    """The session goes on as that of a client without a name. Over a new connection there is no login, and our
    client names the reason."""
    site = own_site
    (site.directory / "grid-mapfile").write_text(f'"{site.user.subject}" alice\n')
    rules = site.directory / "authdb"
    rules.write_text("u alice /mapped lr\nu * /public lr\n")
    server = serve(settings=peers.SETTINGS + site.settings() + f"ofs.authorize\nacc.authdb {rules}\n")
    for name in ("mapped", "public"):
        (server.tree / name).mkdir()
        peers.place(server.tree / name / "f", b"content")
    command = XRDFS if program == "theirs" else peers.link("xrdfs")
    made = iter(range(9))

    def begin(proxy):
        shell = Shell(server, command, **site.client(proxy))
        assert "Flags:" in shell.stat("/mapped/f") and "Flags:" in shell.stat("/public/f"), shell.text
        return shell

    def later(shell):
        assert "3010" in shell.stat("/mapped/f")
        assert "Flags:" in shell.stat("/public/f"), "the session stays"
        server.restart()
        text = shell.stat("/public/f")
        assert "Flags:" not in text, text
        if program == "ours":
            assert "the proxy expired" in text and "voms-proxy-init" in text, text

    in_time(lambda ends: site.proxy_between(f"short{next(made)}", time.time() - 60, ends), begin, later)


def test_the_rights_of_a_session_end_with_its_token_and_return_with_a_new_one(issuer, authority, tmp_path):
    """Our client reads the file with the token for each login."""
    with prepared(peers.Ours, issuer, authority) as server:
        file = tmp_path / "token"
        file.touch(mode=0o600)
        environment = {"X509_CERT_DIR": str(authority.directory), "BEARER_TOKEN_FILE": str(file)}

        def make(ends):
            file.write_text(issuer.token(exp=ends, scope="storage.read:/"))

        def begin(_):
            shell = Shell(server, peers.link("xrdfs"), f"roots://localhost:{server.port}", **environment)
            assert "Flags:" in shell.stat("/protected/f"), shell.text
            return shell

        def later(shell):
            assert "3010" in shell.stat("/protected/f")
            assert "Flags:" in shell.stat("/public/f"), "the session stays"
            server.restart()
            text = scalla("ls", f"roots://localhost:{server.port}//protected", **environment).fails(1, "ztn: the server refused it").err
            assert "the token expired" in text and "get a new one" in text, text
            file.write_text(issuer.token(scope="storage.read:/"))
            assert "Flags:" in shell.stat("/protected/f"), shell.text

        in_time(make, begin, later)


def test_a_session_outlives_its_ticket_and_the_next_login_needs_a_new_one(begin, tmp_path):
    """The rights of a session end 300 s after the ticket, which the unit tests of the protocol show."""
    with grid.new_site(kind=lambda directory: Realm(directory, skew=1)) as realm, realm:
        server = peers.Ours(settings=peers.SETTINGS + realm.settings())
        server.variables = realm.variables(server.work)
        begin(server)
        caches = iter(range(9))

        def make(ends):
            seconds = max(ends - int(time.time()), 1)
            return realm.login(tmp_path / f"cache{next(caches)}", "alice", "-l", f"{seconds}s")

        def log_in(environment):
            shell = Shell(server, peers.link("xrdfs"), **environment)
            assert "Flags:" in shell.stat("/"), shell.text
            return shell

        def later(shell):
            assert "Flags:" in shell.stat("/"), "the session stays"
            server.restart()
            text = shell.stat("/")
            assert "Flags:" not in text and "expired" in text and "run kinit" in text, text

        in_time(make, log_in, later)


# Clocks

def test_a_proxy_that_is_not_valid_yet(serve, own_site):
    """The clock of the client or of the issuer differs by an hour."""
    site = own_site
    server = serve(settings=peers.SETTINGS + site.settings())
    early = site.proxy_between("early", time.time() + 3600, time.time() + 7200)
    done = scalla("ls", f"root://localhost:{server.port}//", **site.client(early))
    done.fails(1, "the proxy is not valid until", "check the clock")
    assert run([XRDFS, f"localhost:{server.port}", "ls", "/"], **site.client(early)).status != 0
    assert " login as " not in server.output()


def test_a_token_of_the_future(issuer, authority):
    with prepared(peers.Ours, issuer, authority) as server:
        for changes, accepted in (({"nbf": int(time.time()) + 3600}, False), ({"nbf": int(time.time()) - 1}, True)):
            done = scalla("ls", f"roots://localhost:{server.port}//protected/sub", X509_CERT_DIR=str(authority.directory),
                          BEARER_TOKEN=issuer.token(scope="storage.read:/", **changes))
            assert (done.status == 0) == accepted, done
        wait_until(lambda: "not valid" in server.output())
