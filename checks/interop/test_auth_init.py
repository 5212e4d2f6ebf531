"""`scalla auth init` and `scalla auth whoami`: from an open server to a protected one, with the
commands that the program prints."""

import json
import os
import pathlib
import shutil

import pytest

import peers
from codes import Exit, ShellCode
from grid import openssl
from tools import XRDFS, run, scalla, xrdfs

KEYTAB = "XrdSecSSSKT"
# Only root can give the files to the user of the servers.
OWNER = ["--user", "nobody"] if os.getuid() == 0 else []


@pytest.fixture
def protected():
    """A server with the configuration of `auth init`."""
    server = peers.Ours()
    directory = server.work / "security"
    scalla("auth", "init", "sss", "--admin", "alice", "--dir", directory, *OWNER).ok()
    server.settings = peers.SETTINGS + (directory / "security.cfg").read_text()
    yield server.start()
    server.remove()


def copied(server, directory, name="sss.keytab"):
    """A copy of a key table that belongs to the user of the tests."""
    path = directory / name
    path.write_bytes((server.work / "security" / "sss.keytab").read_bytes())
    path.chmod(0o600)
    return str(path)


def test_the_administrator_may_do_everything_and_others_nothing(protected, tmp_path):
    key = {KEYTAB: copied(protected, tmp_path)}
    xrdfs(protected, "mkdir", "/made", **key).ok()
    scalla("ls", protected.url("/"), HOME=tmp_path).fails(Exit.FAILED, "there is no key table")
    # What init prints for further users. Root leaves the file to the user of the server.
    keytab = protected.work / "security" / "sss.keytab"
    run([peers.link("xrdsssadmin"), "-k", "scalla", "-u", "bob", "-g", "staff", "add", keytab]).ok()
    protected.stop()
    protected.start()
    installed = tmp_path / "bob.keytab"
    run([peers.link("xrdsssadmin"), "-u", "bob", "install", installed], input=keytab.read_bytes()).ok()
    bob = {KEYTAB: str(installed)}
    identity = json.loads(scalla("auth", "whoami", "--json", protected.url("/"), **bob).ok().out)
    assert (identity["protocol"], identity["name"], identity["groups"]) == ("sss", "bob", "staff")
    xrdfs(protected, "rmdir", "/made", **bob).fails(ShellCode.SERVER_ERROR, "permission denied")
    xrdfs(protected, "rmdir", "/made", **key).ok()


def test_whoami_without_authentication(ours, theirs):
    lines = scalla("auth", "whoami", ours.url("/")).ok().out.splitlines()
    assert lines[0].split(maxsplit=1) == ["protocol", "none: the server asks for no authentication"]
    assert lines[1].split()[0] == "host"
    scalla("auth", "whoami", theirs.url("/")).fails(Exit.FAILED, "does not report identities")


@pytest.mark.parametrize("existing", ["sss.keytab", "authdb", "security.cfg"])
def test_no_file_is_replaced(existing, tmp_path):
    (tmp_path / existing).write_text("mine")
    scalla("auth", "init", "sss", "--admin", "alice", "--dir", tmp_path).fails(Exit.FAILED, f"{existing} exists already")
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "a b", "anybody", "a\nu", "a/b", "x" * 200])
def test_names_that_cannot_stand_in_a_rule(name, tmp_path):
    scalla("auth", "init", "sss", "--admin", name, "--dir", tmp_path / "new").fails(Exit.USAGE, "cannot be the administrator")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_the_configuration_cannot_name(tmp_path):
    scalla("auth", "init", "sss", "--admin", "alice", "--dir", tmp_path / "a b").fails(Exit.USAGE, "--dir")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_where_others_can_replace_the_key(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    scalla("auth", "init", "sss", "--admin", "alice", "--dir", shared).fails(Exit.FAILED, "shared")
    assert list(shared.iterdir()) == [], "nothing is left behind"


def initialized(kind, *words):
    """A server with the configuration of `auth init`, and what the command prints."""
    server = peers.Ours()
    directory = server.work / "security"
    made = json.loads(scalla("auth", "init", kind, "--host", "localhost", "--dir", directory, "--json", *words, *OWNER).ok().out)
    server.settings = peers.SETTINGS + pathlib.Path(made["configuration"]).read_text()
    return server, made


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def authorities(made, directory):
    """A copy of the authorities, because clients trust only those of their own user and of root."""
    return str(shutil.copytree(made["authorities"], directory / "authorities"))


@pytest.fixture
def with_tokens():
    server, made = initialized("token", "--admin", "alice")
    yield server.start(), made
    server.remove()


def test_tokens_of_a_new_issuer(with_tokens, tmp_path):
    """The first token is that of the administrator; the command makes further ones."""
    server, made = with_tokens
    client = {"X509_CERT_DIR": authorities(made, tmp_path), "XDG_RUNTIME_DIR": "/nonexistent", "HOME": str(tmp_path)}
    alice = {**client, "BEARER_TOKEN_FILE": private(tmp_path / "first", pathlib.Path(made["token"]).read_text())}
    url = f"root://localhost:{server.port}//"
    identity = json.loads(scalla("auth", "whoami", "--json", url, **alice).ok().out)
    assert (identity["protocol"], identity["name"]) == ("ztn", "alice")
    scalla("mkdir", url + "made", **alice).ok()
    run([XRDFS, f"localhost:{server.port}", "stat", "/made"], **alice).ok()
    # A stranger: without a token, with one of another issuer, and with one that names another user.
    scalla("ls", url, **client).fails(Exit.FAILED, "ztn")
    foreign = tmp_path / "foreign"
    scalla("auth", "init", "token", "--admin", "alice", "--host", "localhost", "--dir", foreign).ok()
    stranger = {**client, "BEARER_TOKEN_FILE": str(foreign / "alice.token")}
    scalla("ls", url, **stranger).fails(Exit.FAILED, "ztn authentication failed")
    issue = lambda *words: scalla("auth", "token", *words, "--dir", server.work / "security").ok().out
    bob = {**client, "BEARER_TOKEN_FILE": private(tmp_path / "bob", issue("bob"))}
    assert json.loads(scalla("auth", "whoami", "--json", url, **bob).ok().out)["name"] == "bob"
    scalla("ls", url, **bob).fails(Exit.FAILED, "permission denied")
    reader = {**client, "BEARER_TOKEN_FILE": private(tmp_path / "reader", issue("bob", "--scope", "storage.read:/made"))}
    scalla("ls", url + "made", **reader).ok()
    scalla("rmdir", url + "made", **reader).fails(Exit.FAILED, "permission denied")
    again = {**client, "BEARER_TOKEN_FILE": private(tmp_path / "again", issue("alice", "--validity", "1h"))}
    scalla("rmdir", url + "made", **again).ok()


def test_certificates_of_a_new_authority(tmp_path):
    server, made = initialized("tls")
    with server:
        url = f"roots://localhost:{server.port}//"
        trusted = {"X509_CERT_DIR": authorities(made, tmp_path)}
        scalla("ls", url, **trusted).ok()
        run([XRDFS, f"roots://localhost:{server.port}", "ls", "/"], **trusted).ok()
        other = tmp_path / "other"
        scalla("auth", "init", "tls", "--host", "localhost", "--dir", other).ok()
        scalla("ls", url, X509_CERT_DIR=other / "certificates").fails(Exit.FAILED, "certificate")


def test_a_new_certificate_of_the_same_authority(tmp_path):
    init = lambda *words: scalla("auth", "init", "tls", "--host", "localhost", "--dir", tmp_path, *words)
    init().ok()
    (before,), old = (tmp_path / "certificates").iterdir(), (tmp_path / "host.pem").read_bytes()
    init().fails(Exit.FAILED, "host.pem exists already")
    assert (tmp_path / "host.pem").read_bytes() == old
    for name in ("host.pem", "host.key"):
        (tmp_path / name).unlink()
    init().ok()
    assert list((tmp_path / "certificates").iterdir()) == [before] and (tmp_path / "host.pem").read_bytes() != old
    openssl("verify", "-CAfile", tmp_path / "ca.pem", "-purpose", "sslserver", tmp_path / "host.pem")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.is_file()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "host.pem": 0o644, "host.key": 0o600, "tls.cfg": 0o644}
    # The name in the certificate is that of a host.
    for host in ("", "ho\u00e9st", "a b", "host\njwks_file = /x"):
        scalla("auth", "init", "tls", "--host", host, "--dir", tmp_path / "bad").fails(Exit.USAGE, "change --host")


def test_words_that_cannot_stand_in_a_token(tmp_path):
    scalla("auth", "init", "token", "--dir", tmp_path).fails(Exit.USAGE, "--admin")
    scalla("auth", "token", "bob", "--dir", tmp_path).fails(Exit.FAILED, "make the files by scalla auth init token")
    for words in ([""], ["a b"], ["bob", "--scope", "storage.read:/ storage.modify:/"]):
        scalla("auth", "token", *words, "--dir", tmp_path).fails(Exit.USAGE, "cannot stand in a token")
