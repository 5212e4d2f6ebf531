"""Authentication of the real clients by our server: host, unix and sss, bindings of protocols to
hosts, and signed requests.

The real clients are xrdcp and xrdfs 5.5.3 and the Python client of the newest version, which runs
in processes of its own, because its variables are read once."""

import os
import re
import struct
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import clusters
import keytabs
import peers
import raw
from tools import pattern, run, wait_until, xrdcp, xrdfs

CLIENT_KEYTAB = "XrdSecSSSKT"
# A key with which clients name their user.
ANY_USER = {"name": "test", "user": "anybody", "group": "anygroup"}
SECURITY = "xrootd.seclib libXrdSec.so\nxrootd.log login\n"
# The protocols of all clients of these tests, which come from the loopback address.
UNIX = SECURITY + "sec.protocol unix\n"
ROUND = """\
    import sys
    from XRootD import client
    from XRootD.client.flags import OpenFlags
    host = sys.argv[1]
    status, _ = client.FileSystem(host).stat("/file")
    if not status.ok:
        sys.exit(status.message)
    with client.File() as file:
        status, _ = file.open(host + "//python", OpenFlags.DELETE | OpenFlags.UPDATE)
        assert status.ok, status.message
        assert file.write(b"written")[0].ok
        assert file.sync()[0].ok
        assert file.read()[1] == b"written"
    print("done")
"""


def python_client(server, **variables):
    """Stats, writes and reads with the newest Python client."""
    return run([sys.executable, "-c", textwrap.dedent(ROUND), f"root://{server.host}"], **variables)


def started(serve, settings, **how):
    """Starts a server with a file of 10,000 bytes."""
    server = serve(settings=peers.SETTINGS + settings, **how)
    peers.place(server.tree / "file", pattern(10_000))
    return server


def use(server, directory, **variables):
    """Lists, uploads and downloads with the real command line clients."""
    assert "/file" in xrdfs(server, "ls", "/", **variables).ok().out
    target = directory / "downloaded"
    xrdcp("--force", server.url("/file"), target, **variables).ok()
    assert target.read_bytes() == pattern(10_000)
    source = directory / "source"
    source.write_bytes(pattern(3_000_000))
    xrdcp("--force", "--cksum", "adler32", source, server.url("/uploaded"), **variables).ok()
    assert (server.tree / "uploaded").read_bytes() == pattern(3_000_000)
    xrdfs(server, "mkdir", "/made", **variables).ok()
    xrdfs(server, "rmdir", "/made", **variables).ok()


def refuses(server, *texts, **variables):
    """All real clients are refused, and nothing is changed."""
    before = sorted(os.listdir(server.tree))
    for result in (xrdfs(server, "ls", "/", **variables), xrdcp(server.url("/file"), "-", **variables)):
        assert result.status != 0, result
        assert any(text in result.all for text in ("Auth failed", "authentication", *texts)), result
    assert python_client(server, **variables).status != 0
    assert sorted(os.listdir(server.tree)) == before


def key_pair(directory, **key):
    """Returns the keytabs of a server and of a client with the same new key."""
    own = keytabs.add(directory / "client.keytab", **{**ANY_USER, **key})
    copy = directory / "server.keytab"
    copy.write_bytes(own.read_bytes())
    copy.chmod(0o600)
    directory.chmod(0o755)
    return peers.give(copy), own


@pytest.fixture
def directory():
    """A directory that the servers' user can enter."""
    with tempfile.TemporaryDirectory(prefix="scalla-keys-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_unix(serve, directory):
    server = started(serve, UNIX)
    use(server, directory)
    assert python_client(server).ok().out == "done\n"
    user = "root" if os.geteuid() == 0 else run(["/usr/bin/id", "-un"]).out.strip()
    wait_until(lambda: f"login as {user} by unix" in server.output())


def test_sss(serve, directory):
    server_keytab, own = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\n")
    use(server, directory, **{CLIENT_KEYTAB: own})
    assert python_client(server, **{CLIENT_KEYTAB: str(own)}).ok().out == "done\n"
    wait_until(lambda: "by sss" in server.output())


def test_sss_with_a_key_of_one_user(serve, directory):
    server_keytab, own = key_pair(directory, user="alice", group="staff")
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\n")
    use(server, directory, **{CLIENT_KEYTAB: own})
    wait_until(lambda: "login as alice by sss" in server.output())


def test_sss_suggests_a_keytab(serve, directory):
    server_keytab, own = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab} -c {own}\n")
    use(server, directory, HOME=str(directory))


def test_sss_refuses_a_wrong_key(serve, directory):
    server_keytab, own = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\n")
    (directory / "other").mkdir()
    wrong = keytabs.add(directory / "other" / "wrong.keytab", **ANY_USER)
    refuses(server, **{CLIENT_KEYTAB: str(wrong)})
    wait_until(lambda: "a client was not authenticated" in server.output())
    # A good client is served afterwards.
    use(server, directory, **{CLIENT_KEYTAB: own})


def test_sss_without_a_keytab(serve, directory):
    server_keytab, _ = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\n")
    refuses(server, "No protocols left to try", HOME=str(directory))


def test_key_rollover_without_a_restart(serve, directory):
    server_keytab, old = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\n")
    # Two keys of one file have different ids.
    both = keytabs.add(directory / "both.keytab", **ANY_USER)
    both.write_bytes(old.read_bytes())
    keytabs.add(both, **{**ANY_USER, "name": "second"})
    new = directory / "new.keytab"
    new.write_text(next(line for line in both.read_text().splitlines() if "n:second" in line))
    new.chmod(0o600)
    refuses(server, **{CLIENT_KEYTAB: str(new)})
    server_keytab.write_bytes(both.read_bytes())
    os.kill(server.process.pid, 1)
    wait_until(lambda: xrdfs(server, "ls", "/", **{CLIENT_KEYTAB: str(new)}).status == 0)
    use(server, directory, **{CLIENT_KEYTAB: old})


def test_the_client_takes_the_first_protocol_for_which_it_has_credentials(serve, directory):
    server_keytab, own = key_pair(directory)
    server = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\nsec.protocol unix\n")
    use(server, directory, HOME=str(directory))
    wait_until(lambda: "by unix" in server.output())
    assert "by sss" not in server.output()
    use(server, directory, **{CLIENT_KEYTAB: own})
    wait_until(lambda: "by sss" in server.output())
    xrdfs(server, "ls", "/", XrdSecPROTOCOL="unix").ok()
    refuses(server, "No protocols left to try", XrdSecPROTOCOL="krb5")


def test_no_authentication_for_some_hosts(serve, directory):
    local = "sec.protbind [::* none\nsec.protbind [::ffff:127.* none\n"
    server = started(serve, f"xrd.network nodnr\n{UNIX}{local}sec.protbind * only unix\n")
    use(server, directory, XrdSecPROTOCOL="none")
    wait_until(lambda: "login by host" in server.output())
    assert "by unix" not in server.output()


def test_bindings_by_name(serve, directory):
    server = started(serve, f"{UNIX}sec.protbind localhost none\nsec.protbind * only unix\n")
    use(server, directory, XrdSecPROTOCOL="none")
    other = started(serve, f"{UNIX}sec.protbind *.example.org none\nsec.protbind * only unix\n")
    use(other, directory)
    refuses(other, "No protocols left to try", XrdSecPROTOCOL="none")


def test_host_needs_no_credentials(serve, directory):
    server = started(serve, f"{SECURITY}sec.protocol host\n")
    use(server, directory, XrdSecPROTOCOL="none")


@pytest.mark.parametrize("level", ["compatible", "standard", "intense", "pedantic"])
def test_signed_requests(serve, directory, level):
    server = started(serve, f"{UNIX}sec.level all {level} force\n")
    use(server, directory)
    assert python_client(server).ok().out == "done\n"
    with raw.Connection(server, login=False) as client:
        client.send(raw.HANDSHAKE)
        client.receive(16)
        client.send(raw.request(1, raw.PROTOCOL, struct.pack(">iBB", 0x520, 1, 3)))
        body = client.frame().body
        number = ["compatible", "standard", "intense", "pedantic"].index(level) + 1
        assert body[8:] == b"S\0\0\x02" + bytes([number, 0])


def test_level_without_force_has_no_effect_without_a_key(serve, directory):
    server = started(serve, f"{UNIX}sec.level pedantic\n")
    use(server, directory)
    assert "sec.level has no effect without force" in server.output()


def test_an_unsigned_request_is_refused(serve):
    server = started(serve, f"{UNIX}sec.protbind * none\nsec.level standard force\n")
    with raw.Connection(server) as client:
        client.send(raw.request(7, raw.MKDIR, payload=b"/d"))
        frame = client.frame()
        assert (frame.status, struct.unpack(">i", frame.body[:4])[0]) == (raw.ERROR, 3022)
        assert client.closed()
    assert not (server.tree / "d").exists()


def test_requests_before_authentication(serve):
    server = started(serve, UNIX)
    for code in (raw.STAT, raw.OPEN, raw.DIRLIST, raw.MKDIR, raw.QUERY, raw.SET, raw.RM, raw.LOCATE, raw.LOGIN, raw.BIND):
        with raw.Connection(server, authenticates=False) as client:
            client.send(raw.request(7, code, payload=b"/file"))
            frame = client.frame()
            assert (frame.status, struct.unpack(">i", frame.body[:4])[0]) == (raw.ERROR, 3006), code
            assert client.closed()
    assert (server.tree / "file").is_file()


def test_an_unauthenticated_session_cannot_be_joined(serve):
    server = started(serve, UNIX)
    with raw.Connection(server, login=False) as first, raw.Connection(server, login=False) as second:
        first.send(raw.HANDSHAKE)
        first.receive(16)
        first.send(raw.request(0, raw.LOGIN, struct.pack(">i8sBBBB", 1, b"tester", 0, 0, 5, 0)))
        session = first.frame().body[:16]
        second.send(raw.HANDSHAKE)
        second.receive(16)
        second.send(raw.request(0, raw.BIND, session))
        frame = second.frame()
        assert (frame.status, struct.unpack(">i", frame.body[:4])[0]) == (raw.ERROR, 3000)


def test_invalid_security_settings_prevent_the_start(directory):
    path, _ = key_pair(directory)
    path.chmod(0o644)
    for settings, text in [
        (f"{SECURITY}sec.protocol pwd -dir:{directory}/none\n", "cannot authenticate clients: pwd: "),
        (f"{SECURITY}sec.protocol gsi -certdir:/x\n", "gsi: cannot read /x"),
        ("sec.protocol unix\n", "xrootd.seclib is missing"),
        (f"{SECURITY}sec.protocol sss -s {directory}/none\n", "cannot authenticate clients"),
        (f"{SECURITY}sec.protocol sss -s {path}\n", "cannot authenticate clients"),
        (f"{UNIX}sec.protbind * sss\n", "there is no sec.protocol sss"),
    ]:
        assert text in peers.refused_start(peers.Ours(settings=settings)), settings


def test_nothing_secret_is_logged(serve, directory):
    server_keytab, own = key_pair(directory)
    settings = f"{SECURITY}sec.protocol sss -s {server_keytab}\nsec.trace all\nxrootd.trace all\n"
    server = started(serve, settings, arguments=["-v", "-v"])
    use(server, directory, **{CLIENT_KEYTAB: own})
    key = next(word[2:] for word in own.read_text().split() if word.startswith("k:"))
    log = server.log.read_bytes()
    assert b"authenticated by sss" in log
    assert key.encode() not in log and bytes.fromhex(key) not in log


def test_a_third_party_copy_lends_no_key(serve, directory):
    """The destination connects to a source that its client chooses. It must not authenticate there, neither with a key
    that its own user has nor as its client."""
    server_keytab, own = key_pair(directory, user="alice", group="staff")
    peers.give(keytabs.add(server_keytab, name="lent", user="lent", group="lent"))
    lent = directory / "lent.keytab"
    lent.write_text(next(line for line in server_keytab.read_text().splitlines() if " n:lent " in line))
    lent.chmod(0o600)
    settings = f"{SECURITY}sec.protocol sss -s {server_keytab}\nofs.tpc ttl 60 60\n"
    source = started(serve, settings)
    # The key opens the source for those who may use it.
    xrdfs(source, "stat", "/file", **{CLIENT_KEYTAB: lent}).ok()
    wait_until(lambda: "login as lent by sss" in source.output())
    home = directory / "home"
    (home / ".xrd").mkdir(parents=True)
    for path in (lent, home / ".xrd/sss.keytab"):
        path.write_text(lent.read_text())
        path.chmod(0o600)
    for path in (lent, home, home / ".xrd", home / ".xrd/sss.keytab"):
        peers.give(path)
    target = serve(settings=peers.SETTINGS + settings, variables={CLIENT_KEYTAB: str(lent), "HOME": str(home)})
    before = source.output()
    urls = [f"root://127.0.0.1:{server.port}//{name}" for server, name in ((source, "file"), (target, "copy"))]
    copied = xrdcp("-N", "--tpc", "only", *urls, **{CLIENT_KEYTAB: own})
    assert copied.status != 0, copied
    assert "the server demands authentication" in copied.all
    wait_until(lambda: not (target.tree / "copy").exists())
    # The client checks the source, and opens it for the grant.
    wait_until(lambda: "login as alice by sss" in source.output())
    logins = re.findall(r"login as (\S+) by (\w+)", source.output().removeprefix(before))
    assert logins and set(logins) == {("alice", "sss")}, logins
    # A source that admits the destination by its host needs no key.
    open_source = started(serve, f"{SECURITY}sec.protocol sss -s {server_keytab}\nsec.protbind * none\nofs.tpc ttl 60 60\n")
    urls[0] = f"root://127.0.0.1:{open_source.port}//file"
    xrdcp("-N", "--tpc", "only", *urls, **{CLIENT_KEYTAB: own}).ok()
    assert (target.tree / "copy").read_bytes() == pattern(10_000)
    assert "by sss" not in open_source.output()


@pytest.mark.parametrize("managers, servers", [("ours", "ours"), ("ours", "real"), ("real", "ours")])
def test_clients_authenticate_at_managers_and_servers(directory, managers, servers):
    makers = clusters.mixed(clusters.PAIR, managers=managers, servers=servers)
    # The manager needs no credentials of its servers: cms.seclib is not set.
    with clusters.Cluster(clusters.PAIR, makers, settings=UNIX) as cluster:
        source = directory / "source"
        source.write_bytes(pattern(100_000))
        # The servers log in to the manager meanwhile.
        wait_until(lambda: xrdcp("--force", source, cluster.top.url("/uploaded")).status == 0, seconds=120)
        target = directory / "downloaded"
        xrdcp(cluster.top.url("/uploaded"), target).ok()
        assert target.read_bytes() == pattern(100_000)
        refused = xrdfs(cluster.top, "ls", "/", XrdSecPROTOCOL="none")
        assert refused.status != 0 and "No protocols left to try" in refused.all, refused
        with raw.Connection(cluster.top, authenticates=False) as client:
            client.send(raw.request(7, raw.LOCATE, payload=b"/uploaded"))
            frame = client.frame()
            assert (frame.status, struct.unpack(">i", frame.body[:4])[0]) == (raw.ERROR, 3006)


def test_a_server_asks_for_authentication_that_its_manager_does_not_need(directory):
    settings = f"if named s1 s2\n{UNIX}fi\n"
    with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
        source = directory / "source"
        source.write_bytes(pattern(1000))
        # The servers log in to the manager meanwhile.
        wait_until(lambda: xrdcp("--force", source, cluster.top.url("/uploaded")).status == 0, seconds=120)
        with raw.Connection(cluster.top) as client:
            client.send(raw.request(7, raw.PING))
            assert client.frame().status == raw.OK
        refused = xrdcp(cluster.top.url("/uploaded"), directory / "downloaded", XrdSecPROTOCOL="none")
        assert refused.status != 0 and not (directory / "downloaded").exists(), refused
