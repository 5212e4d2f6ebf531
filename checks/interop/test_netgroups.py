"""Rules for netgroups, which the name services of the system know.

The server sees /etc of its own, in a mount namespace, whose netgroups are in a file."""

import os
import shlex
import shutil
import subprocess

import pytest

import peers
import raw
from codes import ErrorCode
from raw import Connection, Failed
from tools import scalla, wait_until

RULES = """\
u * /banned lr / l
n users /users a
n nested /nested a
n hosts /hosts a
n elsewhere /elsewhere a
n banned /banned -rl
"""
# Each member is a host, a user and a domain.
NETGROUPS = """\
users (,ann,) (,bob,here)
nested users (,carl,)
hosts (localhost,,)
elsewhere (,ann,there)
banned (,eve,)
"""
SETTINGS = """\
xrootd.seclib libXrdSec.so
sec.protocol unix
ofs.authorize
acc.authdb {work}/authdb
acc.nisdomain here
"""
DIRECTORIES = ("users", "nested", "hosts", "elsewhere", "banned")


def _may_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _may_mount(), reason="needs root and mount namespaces")


class WithNetgroups(peers.Ours):
    """Our server with netgroups of its own, started by root for the user `nobody`."""

    def __init__(self):
        super().__init__(settings="", as_user=False)
        self.settings = SETTINGS.format(work=self.work)
        self.etc = self.work / "etc"
        shutil.copytree("/etc", self.etc, symlinks=True, ignore=shutil.ignore_patterns("ssl", "ca-certificates*"))
        switch = (self.etc / "nsswitch.conf").read_text().splitlines()
        kept = [line for line in switch if not line.startswith("netgroup:")]
        (self.etc / "nsswitch.conf").write_text("\n".join([*kept, "netgroup: files", ""]))
        self.netgroups(NETGROUPS)
        peers.place(self.work / "authdb", RULES.encode())
        for name in DIRECTORIES:
            (self.tree / name).mkdir()
            peers.give(self.tree / name)

    def netgroups(self, text):
        (self.etc / "netgroup").write_text(text)

    def command(self):
        command = shlex.join(map(str, super().command()))
        return ["unshare", "-m", "sh", "-c", f"mount --bind {self.etc} /etc && exec {command} --user nobody"]


def allowed(server, user):
    """Returns the directories that a user may list. The rule for everybody allows their status."""
    found = set()
    with Connection(server, user=user) as connection:
        for name in DIRECTORIES:
            try:
                connection.ask(raw.DIRLIST, bytes(16), f"/{name}".encode())
                found.add(name)
            except Failed as failed:
                assert failed.code == ErrorCode.NOT_AUTHORIZED
    return found


def test_rules_for_netgroups_of_the_system(begin):
    server = begin(WithNetgroups())
    # The host of all of them is `localhost`.
    assert allowed(server, "ann") == {"users", "nested", "hosts", "banned"}
    assert allowed(server, "bob") == {"users", "nested", "hosts", "banned"}
    assert allowed(server, "carl") == {"nested", "hosts", "banned"}
    assert allowed(server, "eve") == {"hosts"}
    server.netgroups(NETGROUPS.replace("(,carl,)", "").replace("(,eve,)", "(,bob,)").replace("localhost", "other.example"))
    scalla("admin", "--admin-path", server.work / "admin", "reload").ok()
    wait_until(lambda: allowed(server, "eve") == {"banned"})
    assert allowed(server, "bob") == {"users", "nested"}
    assert allowed(server, "carl") == {"banned"}
