"""Identities by a program of the site (`sec.entityprogram`): the real client and ours at our server."""

import json
import os
import pwd
import tempfile
from pathlib import Path

import pytest

import grid
import keytabs
import peers
from codes import Exit
from entity_files import files, may_read
from tools import run, scalla, wait_until

MAP = """\
case "$ENTITY_NAME" in
*"Alice Example") echo name=alice; echo groups=staff; echo vorg=lab ;;
USER) echo "name=$ENTITY_PROTOCOL-$1"; echo groups=visitors ;;
*) echo "no account for $ENTITY_NAME"; exit 1 ;;
esac
"""

RULES = "g staff /staff a\ng visitors /visitors rl\nu unix-lab /own a\n"


@pytest.fixture
def directory():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-entity-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        (Path(path) / "map").write_text(MAP.replace("USER", pwd.getpwuid(os.geteuid()).pw_name))
        (Path(path) / "rules").write_text(RULES)
        yield Path(path)


def settings(directory, protocols):
    return peers.SETTINGS + (f"{protocols}\nsec.entityprogram /bin/sh {directory}/map lab\n"
                             f"ofs.authorize\nacc.authdb {directory}/rules\nxrootd.log login\n")


@pytest.mark.parametrize("real", [True, False])
def test_groups_and_names_of_the_program_decide(serve, directory, real):
    server = serve(settings=settings(directory, "xrootd.seclib default\nsec.protocol unix"))
    files(server)
    for name, allowed in (("visitors", True), ("own", True), ("staff", False)):
        assert may_read(server, name, real, XrdSecPROTOCOL="unix") is allowed, (name, server.output())
    wait_until(lambda: "login as unix-lab by unix" in server.output())


def test_subjects_of_certificates_are_mapped(serve, directory):
    with grid.new_site() as site:
        gsi = site.settings("-crl:0", "-gmapopt:nomap,usedn")
        server = serve(settings=settings(directory, gsi))
        files(server)
        proxy = site.proxy("plain")
        for real in (True, False):
            for name, allowed in (("staff", True), ("visitors", False), ("own", False)):
                assert may_read(server, name, real, **site.client(proxy)) is allowed, (name, real, server.output())
        wait_until(lambda: "login as alice by gsi" in server.output())
        other = site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))
        for real in (True, False):
            assert not may_read(server, "visitors", real, **site.client(other))
        wait_until(lambda: "no account for /O=Grid/CN=Other" in server.output())


def test_check_shows_the_identity_by_the_program(serve, directory):
    with grid.new_site() as site:
        lines = site.settings("-crl:0", "-gmapopt:nomap,usedn") + "\nsec.protocol unix"
        server = serve(settings=settings(directory, lines))
        files(server)
        config = server.work / "scalla.cfg"
        as_server = ("setpriv", "--reuid=nobody", "--clear-groups")
        check = lambda *words, prefix=as_server: run([*prefix, peers.program(), "auth", "check", *words, "--config", config])
        alice = ("/O=Grid/CN=Alice Example", "/staff/f", "read", "--protocol", "gsi")
        named = check(*alice).ok()
        assert "allowed: /O=Grid/CN=Alice Example read /staff/f" in named.out
        assert "logs in by gsi as alice" in named.out and "groups: staff" in named.out
        login = json.loads(check(*alice, "--json").ok().out)["login"]
        assert login == {"accepted": True, "replaced": "/O=Grid/CN=Alice Example", "sources": ["sec.entityprogram"], "name": "alice",
                         "organizations": "lab", "groups": "staff", "roles": None, "limited": False}
        user = pwd.getpwuid(os.geteuid()).pw_name
        assert "logs in by unix as unix-lab" in check(user, "/own/f", "read", "--protocol", "unix").ok().out
        refused = check("nobody else", "/own/f", "read", "--protocol", "unix")
        refused.fails(Exit.FAILED, "denied: nobody else read /own/f")
        assert "the login (unix) is refused: /bin/sh (sec.entityprogram): it refuses the client" in refused.out
        assert "no account for nobody else" in refused.out
        # A name without a protocol is that of a rule, as the program would write it.
        plain = check("unix-lab", "/own/f", "read").ok()
        assert "sec.entityprogram is not run for a name without --protocol" in plain.err
        # A proxy is verified and then named, also by root, which continues as the user of the server.
        proxy = site.proxy("checked")
        shown = check(f"@{proxy}", "/staff/f", "read", prefix=()).ok()
        assert "sec.entityprogram gives this identity to /" in shown.out and "as alice" in shown.out
        if os.geteuid() == 0:
            root = check(*alice, prefix=()).fails(Exit.FAILED, "root does not run it")
            assert "logs in" not in root.out
        check("bob", "/own/f", "read", "--protocol", "krb5").fails(Exit.USAGE, "no sec.protocol krb5")


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("variable", ["XrdSecSSSKT", "XrdSecsssKT"])
def test_the_environment_of_a_client_names_its_key_table_and_endorsements(serve, directory, tmp_path, real, variable):
    (directory / "map").write_text('echo "$ENTITY_NAME is endorsed: $ENTITY_ENDORSEMENTS"; exit 1\n')
    table = peers.give(keytabs.add(directory / "server.keytab", name="all", user="allusers", group="usrgroup"))
    own = tmp_path / "own.keytab"
    own.write_text(table.read_text())
    own.chmod(0o600)
    server = serve(settings=settings(directory, f"xrootd.seclib default\nsec.protocol sss -s {table}"))
    environment = {variable: str(own), "XrdSecsssENDORSEMENT": "by-the-lab", "XrdSecPROTOCOL": "sss"}
    assert not may_read(server, "visitors", real, **environment)
    wait_until(lambda: "is endorsed: by-the-lab" in server.output())
