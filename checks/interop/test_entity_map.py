"""Identities by a file of rules (`sec.entitymap`): the real client and ours at our server."""

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

RULES = "g staff /staff a\ng visitors /visitors rl\nu guest /own a\n"


@pytest.fixture
def directory():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-entity-map-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        (Path(path) / "rules").write_text(RULES)
        yield Path(path)


def user():
    return pwd.getpwuid(os.geteuid()).pw_name


def settings(directory, protocols, rules, others=""):
    (directory / "map").write_text(rules)
    return peers.SETTINGS + (f"{protocols}\nsec.entitymap {directory}/map {others}\nsec.trace debug\n"
                             f"ofs.authorize\nacc.authdb {directory}/rules\nxrootd.log login\n")


UNIX = "xrootd.seclib default\nsec.protocol unix"


@pytest.mark.parametrize("real", [True, False])
def test_names_and_groups_of_the_rules_decide(serve, directory, real):
    rules = f"protocol=krb5 -> refuse\nprotocol=unix name={user()} host=localhost* -> user=guest groups=visitors\n-> refuse\n"
    server = serve(settings=settings(directory, UNIX, rules))
    files(server)
    for name, allowed in (("visitors", True), ("own", True), ("staff", False)):
        assert may_read(server, name, real, XrdSecPROTOCOL="unix") is allowed, (name, server.output())
    wait_until(lambda: "login as guest by unix" in server.output())
    wait_until(lambda: f"{directory}/map:2 (sec.entitymap): {user()} (unix) is guest" in server.output())


@pytest.mark.parametrize("real", [True, False])
def test_clients_without_a_rule_are_refused_if_configured(serve, directory, real):
    for others, allowed in (("", True), ("keep", True), ("refuse", False)):
        with peers.Ours(settings=settings(directory, UNIX, "name=nobody-else -> user=guest\n", others)) as server:
            files(server)
            (directory / "rules").write_text(f"u {user()} /own rl\n")
            server.restart()
            assert may_read(server, "own", real, XrdSecPROTOCOL="unix") is allowed, (others, server.output())
            if not allowed:
                wait_until(lambda: f"{directory}/map: no rule matches {user()} (unix) at" in server.output())


def test_a_reload_replaces_all_rules_or_none(serve, directory):
    server = serve(settings=settings(directory, UNIX, f"name={user()} -> user=guest\n"))
    files(server)
    admin = lambda command: scalla("admin", "--admin-path", server.work / "admin", command)
    assert may_read(server, "own", True) and not may_read(server, "staff", True)
    (directory / "map").write_text(f"name={user()} -> groups=staff\n")
    admin("reload").ok()
    wait_until(lambda: may_read(server, "staff", True))
    assert not may_read(server, "own", True)
    (directory / "map").write_text(f"name={user()} -> user=guest\nname\n")
    assert f"{directory}/map:2: a rule has the form" in admin("reload").all + server.output()
    assert may_read(server, "staff", True) and not may_read(server, "own", True)
    assert "as read earlier" in admin("status").ok().out


def test_certificates_are_mapped_and_the_client_sees_the_line(serve, directory):
    rules = '# users of the grid\nprotocol=gsi subject="/*/CN=Alice Example*" -> user=alice groups="staff" vo=lab\n'
    with grid.new_site() as site:
        gsi = site.settings("-crl:0", "-gmapopt:nomap,usedn")
        server = serve(settings=settings(directory, gsi, rules, "refuse"))
        files(server)
        proxy = site.proxy("plain")
        for real in (True, False):
            for name, allowed in (("staff", True), ("visitors", False)):
                assert may_read(server, name, real, **site.client(proxy)) is allowed, (name, real, server.output())
        identity = json.loads(scalla("auth", "whoami", "--json", server.url("/"), **site.client(proxy)).ok().out)
        assert (identity["name"], identity["groups"], identity["organizations"], identity["map_line"]) == ("alice", "staff", "lab", "2")
        other = site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))
        for real in (True, False):
            assert not may_read(server, "visitors", real, **site.client(other))
        wait_until(lambda: "no rule matches /O=Grid/CN=Other" in server.output())
        # A proxy is verified and then named.
        shown = run([peers.program(), "auth", "check", f"@{proxy}", "/staff/f", "read", "--config", server.work / "scalla.cfg"]).ok()
        assert f"sec.entitymap ({directory}/map:2) gives this identity to /" in shown.out and "as alice" in shown.out


def test_check_shows_the_rule(serve, directory):
    rules = "protocol=sss group=lab -> user=guest\nname=bad* -> refuse\n"
    table = peers.give(keytabs.add(directory / "keytab", name="all", user="anybody", group="anygroup"))
    server = serve(settings=settings(directory, f"{UNIX}\nsec.protocol sss -s {table}", rules))
    config = server.work / "scalla.cfg"
    check = lambda *words: run([peers.program(), "auth", "check", *words, "--config", config])
    named = check("ann", "/own/f", "read", "--protocol", "sss", "--groups", "lab").ok()
    assert "logs in by sss as guest" in named.out and f"sec.entitymap ({directory}/map:1) gives this identity to ann" in named.out
    login = json.loads(check("ann", "/own/f", "read", "--protocol", "sss", "--groups", "lab", "--json").ok().out)["login"]
    assert (login["name"], login["replaced"], login["sources"]) == ("guest", "ann", [f"sec.entitymap ({directory}/map:1)"])
    kept = check("ann", "/own/f", "read", "--protocol", "unix", "--groups", "lab")
    kept.fails(Exit.FAILED, "denied: ann", f"sec.entitymap ({directory}/map, which has no rule for it)")
    refused = check("bad guy", "/own/f", "read", "--protocol", "unix").fails(Exit.FAILED)
    assert f"the login (unix) is refused: {directory}/map:2: the rule refuses bad guy (unix)" in refused.out
    assert "sec.entitymap is not applied to a name without --protocol" in check("guest", "/own/f", "read").ok().err


def test_the_check_of_a_configuration_reads_the_rules(directory, tmp_path):
    config = tmp_path / "site.cfg"
    lines = UNIX + f"\nsec.entitymap {directory}/map\nall.export /\noss.localroot {directory}\nxrd.network nodnr\n"
    config.write_text(lines)
    check = lambda: run([peers.program(), "config", "check", config])
    (directory / "map").write_text("name=a* -> user=x\nname=ab -> keep\nprotocol=pwd -> keep\nhost=*.org -> keep\n")
    found = check()
    for line, reason in ((2, "the rule in line 1 holds wherever it does"), (3, "no client can log in by pwd here"),
                         (4, "names of hosts are not looked up")):
        assert f"{config}:3:1: warning: sec.entitymap: {directory}/map:{line}: the rule never applies, because {reason}" in found.all
    (directory / "map").write_text("name=a -> user=\n")
    check().fails(Exit.FAILED, f"{config}:3:1: error: sec.entitymap: {directory}/map:1: the user is not")
    (directory / "map").unlink()
    check().fails(Exit.FAILED, f"{config}:3:1: error: sec.entitymap: cannot read {directory}/map")
    config.write_text(lines)
    refused = peers.refused_start(peers.Ours(settings=f"{UNIX}\nsec.entitymap {directory}/map\n"))
    assert "cannot authenticate clients: sec.entitymap: cannot read" in refused
