"""A proxy whose requests have the identities of its clients (`pss.persona client`): the origin, the real server or
ours, decides about them."""

import os
import tempfile
import time
from pathlib import Path

import pytest

import keytabs
import peers
from certificates import new_authority
from macaroons import SITE, macaroon, secret_text
from origins import CONTENT, Proxy
from tools import XRDFS, data, run, wait_until, xrdcp, xrdfs

KEYTAB = "XrdSecSSSKT"
SECURITY = "xrootd.seclib libXrdSec.so\n"
RULES = "u alice /a a /shared rl\nu bob /b a /shared rl\n"
USERS = ("alice", "bob")
FOR_CLIENTS = {"user": "allusers", "group": "anygroup"}


def copied(table, name):
    """A copy of a key table for the servers' user."""
    copy = table.with_name(name)
    copy.write_bytes(table.read_bytes())
    copy.chmod(0o600)
    return peers.give(copy)


@pytest.fixture(scope="module")
def directory():
    with tempfile.TemporaryDirectory(prefix="scalla-personas-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture(scope="module")
def users(directory):
    """The key tables of the users, and one of the proxy with all of their keys."""
    everybody = directory / "everybody"
    for name in USERS:
        keytabs.add(everybody, name=name, user=name, group="staff")
    tables = {}
    for line in everybody.read_text().splitlines():
        name = next(name for name in USERS if f" u:{name} " in line)
        tables[name] = directory / f"{name}.keytab"
        tables[name].write_text(f"{line}\n")
        tables[name].chmod(0o600)
    return {name: {KEYTAB: str(table)} for name, table in tables.items()}, copied(everybody, "logins.keytab")


@pytest.fixture(scope="module", params=[peers.Ours, peers.Theirs], ids=["ours", "theirs"])
def origin(request, directory):
    table = keytabs.make(directory / f"{request.param.kind}.keytab", name="proxy", **FOR_CLIENTS)
    server = request.param()
    peers.place(server.work / "rules", RULES.encode())
    key = copied(table, f"{server.kind}-server.keytab")
    server.settings += f"{SECURITY}sec.protocol sss -s {key}\nofs.authorize\nacc.authdb {server.work / 'rules'}\n"
    for name in ("a", "b", "shared"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", CONTENT)
    server.key = copied(table, f"{server.kind}-proxy.keytab")
    with server:
        yield server


class SssProxy(Proxy):
    """A proxy that has run into its second second. Credentials of the second of its start could have been used before."""

    def __enter__(self):
        server = super().__enter__()
        begun = int(time.time())
        wait_until(lambda: int(time.time()) > begun)
        return server


def persona(origin, login, key):
    proxy = SssProxy(f"127.0.0.1:{origin.port}", f"pss.persona client strict\n{SECURITY}{login}\n")
    proxy.variables = {**proxy.variables, KEYTAB: str(key)}
    return proxy


def test_the_origin_decides_about_each_client(origin, users, tmp_path):
    users, logins = users
    (tmp_path / "new").write_bytes(data(100_000))
    with persona(origin, f"sec.protocol sss -s {logins}", origin.key) as proxy:
        for _ in range(2):
            for user, own, other in (("alice", "/a", "/b"), ("bob", "/b", "/a")):
                who = users[user]
                for place in (own, "/shared"):
                    assert xrdfs(proxy, "cat", f"{place}/f", **who).ok().raw == CONTENT, (user, place)
                    assert f"{place}/f" in xrdfs(proxy, "ls", place, **who).ok().out
                    xrdfs(proxy, "stat", f"{place}/f", **who).ok()
                xrdcp("-f", tmp_path / "new", proxy.url(f"{own}/new"), **who).ok()
                assert (origin.tree / own[1:] / "new").read_bytes() == data(100_000)
                for words in (["cat", f"{other}/f"], ["ls", other], ["stat", f"{other}/f"], ["rm", f"{other}/f"],
                              ["truncate", "/shared/f", "1"], ["mv", f"{own}/new", f"{other}/new"], ["query", "checksum", f"{other}/f"]):
                    xrdfs(proxy, *words, **who).fails(54)
                assert xrdcp("-f", tmp_path / "new", proxy.url(f"{other}/new2"), **who).status != 0
                xrdfs(proxy, "rm", f"{own}/new", **who).ok()
        assert sorted(os.listdir(origin.tree / "a")) == sorted(os.listdir(origin.tree / "b")) == ["f"]


def test_a_client_without_a_proven_name_gets_nothing(origin, users):
    with persona(origin, f"sec.protocol unix\nsec.protocol sss -s {users[1]}", origin.key) as proxy:
        xrdfs(proxy, "cat", "/shared/f", XrdSecPROTOCOL="unix").fails(54, "does not prove")


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


def test_the_name_of_a_token_is_no_identity(origin, users, authority):
    """The bearer of a macaroon can add a name."""
    proxy = persona(origin, f"sec.protocol ztn -tokenlib libXrdMacaroons.so\nsec.protocol sss -s {users[1]}", origin.key)
    peers.place(proxy.work / "secret", secret_text()).chmod(0o600)
    peers.place(proxy.work / "rules", RULES.encode())
    proxy.settings += (f"{authority.settings()}ofs.authorize\nofs.authlib ++ libXrdMacaroons.so\nall.sitename {SITE}\n"
                       f"macaroons.secretkey {proxy.work / 'secret'}\nacc.authdb {proxy.work / 'rules'}\n")
    with proxy:
        for token in (macaroon("DOWNLOAD", "/a", "name:alice", name=None), macaroon("DOWNLOAD", "/a")):
            variables = {"X509_CERT_DIR": str(authority.directory), "XDG_RUNTIME_DIR": "/nonexistent", "BEARER_TOKEN": token}
            for words in (["stat", "/a/f"], ["cat", "/a/f"]):
                refused = run([XRDFS, f"roots://localhost:{proxy.port}", *words], XrdSecPROTOCOL="ztn", **variables)
                refused.fails(54, "does not prove")


def test_a_key_of_one_user_does_not_stand_for_clients(origin, users, directory):
    tables, logins = users
    own = copied(directory / "alice.keytab", f"{origin.kind}-one.keytab")
    with persona(origin, f"sec.protocol sss -s {logins}", own) as proxy:
        failed = xrdfs(proxy, "cat", "/a/f", **tables["alice"])
        assert failed.status != 0 and "cannot stand for clients" in failed.err + proxy.output(), failed.err
