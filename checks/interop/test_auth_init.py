"""`scalla auth init` and `scalla auth whoami`: from an open server to a protected one, with the
commands that the program prints."""

import json
import os

import pytest

import peers
from codes import Exit, ShellCode
from tools import run, scalla, xrdfs

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
