"""Logins by passwords (`pwd`): the real client at our server, our client at ours and at the real one, and files of
both `xrdpwdadmin`."""

import contextlib
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import peers
from terminals import Terminal
from tools import XRDFS, run, scalla, wait_until

PASSWORD_LINE = "Password of alice: "

# The cipher of the protocol is in a module of OpenSSL that is not loaded by default.
OPENSSL = """\
openssl_conf = init
[init]
providers = providers
[providers]
default = active
legacy = active
[active]
activate = 1
"""


class PwdSite:
    """A file of passwords with the user alice, and the files of a client."""

    def __init__(self, directory):
        self.directory, self.admin, self.home = directory, directory / "server", directory / "home"
        self.admin.mkdir()
        self.home.mkdir()
        self.openssl = directory / "openssl.cnf"
        self.openssl.write_text(OPENSSL)
        self.password = self.random_password("add", "-srvID", "lab")
        for path in (self.admin, self.file):
            peers.give(path)
        self.netrc("alice", self.password)

    def random_password(self, *words):
        """Gives alice a random password and returns it."""
        made = run([peers.link("xrdpwdadmin"), words[0], "alice", "-random", "-dontask", "-f", self.file, *words[1:]]).ok()
        return next(line for line in made.out.splitlines() if line.startswith(PASSWORD_LINE)).removeprefix(PASSWORD_LINE)

    @property
    def file(self):
        return self.admin / "pwdadmin"

    def netrc(self, user, password):
        path = self.home / "netrc"
        path.write_text(f"machine localhost login {user} password {password}\n")
        path.chmod(0o600)

    def settings(self):
        return peers.SETTINGS + (f"xrootd.seclib libXrdSec.so\nsec.protocol pwd -dir:{self.admin}\n"
                                 "xrootd.log login\n")

    def client(self, **more):
        return {"HOME": str(self.home), "XrdSecUSER": "alice", "XrdSecNETRC": str(self.home / "netrc"),
                "OPENSSL_CONF": str(self.openssl), "XrdSecPROTOCOL": "pwd", **more}


@pytest.fixture
def site():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-pwd-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield PwdSite(Path(directory))


def test_our_client_at_our_server(serve, site):
    server = serve(settings=site.settings())
    url = f"root://localhost:{server.port}/"
    for _ in range(2):
        scalla("ls", url, **site.client()).ok()
    wait_until(lambda: server.output().count("login as alice by pwd") == 2)
    assert site.password not in server.output()
    site.netrc("alice", "wrong")
    scalla("ls", url, **site.client()).fails(1, "pwd")
    site.netrc("nobody", site.password)
    scalla("ls", url, **site.client(XrdSecUSER="nobody")).fails(1, "pwd")
    assert server.output().count("login as") == 2


def test_a_server_whose_key_has_changed_is_refused(serve, site):
    server = serve(settings=site.settings())
    scalla("ls", f"root://localhost:{server.port}/", **site.client()).ok()
    # The file stays one of the user of the server.
    owner = site.file.stat().st_uid
    run([peers.link("xrdpwdadmin"), "-changepuk", "-f", site.file]).ok()
    assert site.file.stat().st_uid == owner and not list(site.admin.glob("pwdadmin?*"))
    other = serve(settings=site.settings())
    scalla("ls", f"root://localhost:{other.port}/", **site.client()).fails(1, "is not the one of earlier logins")


def test_the_real_client_at_our_server(serve, site):
    server = serve(settings=site.settings())
    # The second time the client knows the key.
    for logins in (1, 2):
        with Terminal([XRDFS, f"root://localhost:{server.port}/", "ls", "/"], **site.client()) as terminal:
            terminal.until("Password for alice@localhost:lab:")
            terminal.type(f"{site.password}\n")
            assert terminal.end()[0] == 0
        wait_until(lambda: server.output().count("login as alice by pwd") == logins)


def test_the_real_client_chooses_a_password(serve, site):
    """The password of the administrator counts until the user has typed a new one twice."""
    once = site.random_password("update", "-change")
    server = serve(settings=site.settings())
    url = f"root://localhost:{server.port}/"

    def log_in(*answers):
        with Terminal([XRDFS, url, "ls", "/"], **site.client()) as terminal:
            for question, password in answers:
                terminal.until(question)
                terminal.type(f"{password}\n")
            return terminal.end()[0]
    # The client asks for the repetition of a new password as for the present one.
    first, new = "Password for alice@localhost:lab:", "Enter new password:"
    assert log_in((first, once), (new, "chosen"), (first, "other"), (new, "chosen"), (first, "chosen")) == 0
    wait_until(lambda: "alice from [::ffff:127.0.0.1] has a new password" in server.output())
    assert log_in((first, "chosen")) == 0
    site.netrc("alice", once)
    scalla("ls", url, **site.client()).fails(1, "pwd")
    site.netrc("alice", "chosen")
    scalla("ls", url, **site.client()).ok()
    wait_until(lambda: server.output().count("login as alice by pwd") == 3)
    assert once not in server.output() and "chosen" not in server.output()


def test_our_client_chooses_a_password(serve, site):
    once = site.random_password("update", "-change")
    server = serve(settings=site.settings())
    url = f"root://localhost:{server.port}/"
    # A file cannot answer.
    site.netrc("alice", once)
    scalla("ls", url, **site.client()).fails(1, "the server demands a new password of alice")
    client = site.client()
    del client["XrdSecNETRC"]
    with Terminal([peers.program(), "ls", url], **client) as terminal:
        for question, password in (("Password for alice", once), ("New password for alice", "chosen"), ("New password again", "chosen")):
            terminal.until(question)
            terminal.type(f"{password}\n")
        assert terminal.end()[0] == 0
    site.netrc("alice", "chosen")
    scalla("ls", url, **site.client()).ok()
    wait_until(lambda: server.output().count("login as alice by pwd") == 2)


def test_logins_of_a_host_at_once_wait_for_each_other(serve, site):
    """A failed attempt locks the host, so one password is checked at a time. Those of the real client and of ours
    are correct."""
    settings = site.settings().replace("sec.protocol pwd", "sec.protocol pwd -maxfail:1")
    server = serve(settings=settings)
    url = f"root://localhost:{server.port}/"
    scalla("ls", url, **site.client()).ok()
    with ThreadPoolExecutor(12) as threads, contextlib.ExitStack() as stack:
        real = [stack.enter_context(Terminal([XRDFS, url, "ls", "/"], **site.client())) for _ in range(4)]
        for terminal in real:
            terminal.until("Password for alice@localhost:lab:")
        ours = [threads.submit(scalla, "ls", url, **site.client()) for _ in range(12)]
        for terminal in real:
            terminal.type(f"{site.password}\n")
        for terminal in real:
            assert terminal.end()[0] == 0, server.output()
        for done in ours:
            done.result().ok()
    wait_until(lambda: server.output().count("login as alice by pwd") == 17)
    # The host is locked by the first wrong one.
    site.netrc("alice", "wrong")
    scalla("ls", url, **site.client()).fails(1, "pwd")
    site.netrc("alice", site.password)
    scalla("ls", url, **site.client()).fails(1, "pwd")
    wait_until(lambda: "too many failed attempts" in server.output())


def test_our_client_at_the_real_server(serve, site):
    """The client knows the key from another server with the same file."""
    ours = serve(settings=site.settings())
    scalla("ls", f"root://localhost:{ours.port}/", **site.client()).ok()
    with peers.Theirs(settings=site.settings(), variables={"OPENSSL_CONF": str(site.openssl)}) as theirs:
        scalla("ls", f"root://localhost:{theirs.port}/", **site.client()).ok()
        site.netrc("alice", "wrong")
        scalla("ls", f"root://localhost:{theirs.port}/", **site.client()).fails(1)


def test_the_real_program_reads_our_file(site):
    # The file is where both releases look for it without options.
    directory = site.home / ".xrd"
    directory.mkdir(mode=0o700)
    shutil.copy2(site.file, directory)
    listed = run([peers.real("xrdpwdadmin"), "browse"], HOME=str(site.home)).ok()
    assert "name:alice_1" in listed.all and ": lab" in listed.all


@pytest.mark.skipif(peers.real_release() != 5, reason="the command line is that of XRootD 5")
def test_our_program_reads_the_file_of_the_real_one(site):
    theirs = site.directory / "theirs"
    run([peers.real("xrdpwdadmin"), "add", "bob", "-dontask", "-random", "-srvID", "other", "-f", theirs], HOME=str(site.home))
    listed = run([peers.link("xrdpwdadmin"), "browse", "-f", theirs]).ok()
    assert "name:bob_1" in listed.out and "name:+++SrvPuk_1" in listed.out
