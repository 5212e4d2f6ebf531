"""Logins with Kerberos tickets (`krb5`): the real clients at our server, and our client at the real
server, with a KDC that the tests start."""

import getpass
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

import peers
import raw
from between import Between
from certificates import Authority
from kerberos import PASSWORD, REALM, SERVICE, Realm
from terminals import Terminal
from tools import XRDCP, XRDFS, pattern, run, scalla, wait_until

CONTENT = pattern(300_000)


@pytest.fixture(scope="module")
def directory():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-krb5-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def realm(directory):
    with Realm(directory) as realm:
        yield realm


@pytest.fixture
def own_realm():
    """A realm that a test may change."""
    with tempfile.TemporaryDirectory(prefix="scalla-krb5-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        with Realm(Path(directory)) as realm:
            yield realm


@pytest.fixture
def alice(realm, tmp_path):
    """The environment of alice."""
    return realm.login(tmp_path / "cache")


@pytest.fixture
def start():
    """Starts servers of both kinds with a realm."""
    started = []

    def start(kind, realm, *options, more="", configuration=None, settings=None, **how):
        server = kind(settings="", **how)
        started.append(server)
        server.settings = (settings or realm.settings)(*options) + more
        server.variables = realm.variables(server.work, configuration)
        return server.start()

    yield start
    for server in started:
        server.remove()


def url(server, path="/", scheme="root"):
    return f"{scheme}://localhost:{server.port}/{path}"


def use_by_real_client(server, directory, environment):
    source, target = directory / "up", directory / "down"
    source.write_bytes(CONTENT)
    run([XRDCP, "-f", source, url(server, "/f")], **environment).ok()
    run([XRDCP, "-f", url(server, "/f"), target], **environment).ok()
    assert target.read_bytes() == CONTENT
    run([XRDFS, f"localhost:{server.port}", "stat", "/f"], **environment).ok()


def use_by_our_client(server, directory, environment, scheme="root"):
    source = directory / "up"
    source.write_bytes(CONTENT)
    scalla("cp", "--force", source, url(server, "/g", scheme), **environment).ok()
    assert scalla("cat", url(server, "/g", scheme), **environment).ok().raw == CONTENT


def names(server):
    """Returns the names with which clients have logged in."""
    return set(wait_until(lambda: re.findall(r"login as (.+?) by krb5", server.output())))


def refused(server, environment, reason):
    """Both clients are refused, and the log has the reason."""
    assert run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).status != 0
    assert scalla("ls", url(server), **environment).status != 0
    wait_until(lambda: reason in server.output())


# The real client at our server

def test_real_client_with_a_ticket(start, realm, alice, tmp_path):
    server = start(peers.Ours, realm)
    use_by_real_client(server, tmp_path, alice)
    assert names(server) == {"alice"}


def test_real_client_without_a_ticket_takes_the_next_protocol(start, realm, tmp_path):
    server = start(peers.Ours, realm, more="sec.protocol unix\n")
    environment = realm.client(tmp_path / "none", XrdSecPROTOCOL="krb5,unix")
    run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).ok()
    scalla("ls", url(server), **environment).ok()
    wait_until(lambda: len(re.findall(r"login as \S+ by unix", server.output())) >= 2)


def private_ticket(path):
    """Checks the file of a forwarded ticket, and returns its owner."""
    status = path.lstat()
    assert stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == peers.unprivileged()[0]
    listed = run(["klist", "-c", f"FILE:{path}"]).ok().out
    assert f"krbtgt/{REALM}@{REALM}" in listed
    return re.search(r"Default principal: (\S+)", listed).group(1)


def test_real_client_forwards_its_ticket(start, realm, tmp_path):
    environment = realm.login(tmp_path / "cache", "alice", "-f")
    tickets = peers.give(Path(tempfile.mkdtemp(prefix="tickets-", dir=realm.directory)))
    server = start(peers.Ours, realm, f"-exptkn:{tickets}/krb5cc_<user>")
    command = [XRDFS, f"localhost:{server.port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=peers.environment(**environment)) as client:
        client.stdin.write(b"stat /\n")
        client.stdin.flush()
        wait_until((tickets / "krb5cc_alice").exists)
        assert private_ticket(tickets / "krb5cc_alice") == f"alice@{REALM}"
        client.stdin.close()
        client.wait()
    # It is removed with the session, and nothing else remains.
    wait_until(lambda: not os.listdir(tickets))
    assert names(server) == {"alice"}
    # A ticket that cannot be forwarded fails the protocol.
    plain = realm.login(tmp_path / "plain")
    assert run([*command, "ls", "/"], **plain).status != 0
    scalla("ls", url(server), SCALLA_KRB5_FORWARD="1", **plain).fails(1, "krb5: the ticket cannot be forwarded", "run kinit -f")


# Refusals

class Recording(Between):
    """Forwards connections and keeps the bytes of the clients."""

    def __init__(self, server):
        super().__init__(server)
        self.sent = bytearray()

    def move(self, way, source, target):
        if way == "up":
            keep = self.sent

            class Kept:
                def recv(self, size):
                    piece = source.recv(size)
                    keep.extend(piece)
                    return piece

                def shutdown(self, how):
                    source.shutdown(how)

            return super().move(way, Kept(), target)
        return super().move(way, source, target)


def first_credentials(sent):
    """Returns the payload of the first request for authentication."""
    at = sent.index(b"krb5\0\x6e\x82")
    length = int.from_bytes(sent[at + 7:at + 9]) + 9
    return bytes(sent[at:at + length])


def attempt(server, credentials):
    """Sends credentials on a new connection."""
    with raw.Connection(server, authenticates=False) as connection:
        connection.ask(raw.AUTH, bytes(12) + b"krb5", credentials)
        return connection.stat("/")


def test_replay(start, realm, alice):
    server = start(peers.Ours, realm)
    with Recording(server) as between:
        scalla("ls", f"root://localhost:{between.port}//", **alice).ok()
        credentials = first_credentials(between.sent)
    for _ in range(2):
        with pytest.raises(raw.Failed) as failed:
            attempt(server, credentials)
        assert failed.value.code == 3030 and "replay" not in failed.value.text
        wait_until(lambda: "replay" in server.output())
        # A restart does not forget it.
        server.restart()


def test_wrong_service_and_old_key(start, own_realm, tmp_path):
    realm = own_realm
    realm.order(f"addprinc -randkey other/localhost@{REALM}")
    # The server names a principal, and its key table has keys of others too.
    both = realm.key_table("both.keytab", f"other/localhost@{REALM}", SERVICE)
    server = start(peers.Ours, realm, settings=lambda: realm.settings(keytab=both, principal=f"other/localhost@{REALM}"))
    environment = realm.login(tmp_path / "cache")
    with Recording(start(peers.Ours, realm)) as between:
        scalla("ls", f"root://localhost:{between.port}//", **environment).ok()
        with pytest.raises(raw.Failed) as failed:
            attempt(server, first_credentials(between.sent))
        assert failed.value.code == 3030
    scalla("ls", url(server), **environment).ok()
    # The key of the service changes, and the key table does not.
    server = start(peers.Ours, realm)
    realm.order(f"cpw -randkey {SERVICE}")
    refused(server, realm.login(tmp_path / "later"), "kvno")


def test_principal_that_the_kdc_does_not_know(start, own_realm, tmp_path):
    realm = own_realm
    server = start(peers.Ours, realm)
    realm.order(f"delprinc -force {SERVICE}")
    text = scalla("ls", url(server), **realm.login(tmp_path / "cache"))
    text.fails(1, f"krb5: the KDC does not know the principal {SERVICE} of the server; ask the administrator")


def test_clients_without_a_local_name(start, realm, tmp_path):
    environment = realm.login(tmp_path / "cache", "bob/admin")
    server = start(peers.Ours, realm)
    refused(server, environment, f"bob/admin@{REALM} has no local name; map it with auth_to_local in krb5.conf")
    mapping = "  auth_to_local = RULE:[2:$1](bob)s/bob/robert/\n  auth_to_local = DEFAULT"
    mapped = realm.configure("mapped.conf", mapping=mapping)
    server = start(peers.Ours, realm, configuration=mapped)
    run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).ok()
    assert names(server) == {"robert"}


def test_ticket_for_another_address(start, realm, alice, tmp_path):
    # An address ticket of the KDC, whose addresses are those of this host beyond loopback, and one more.
    addresses = realm.configure("addresses.conf", more=" noaddresses = false\n extra_addresses = 192.0.2.1")
    environment = realm.login(tmp_path / "addresses", "alice", "-a", "-S", SERVICE, configuration=addresses)
    assert "192.0.2.1" in run(["klist", "-a", "-n"], **environment).ok().out
    server = start(peers.Ours, realm, "-ipchk")
    refused(server, environment, "Incorrect net address")
    # Tickets without addresses are accepted, and so are all without the option.
    run([XRDFS, f"localhost:{server.port}", "ls", "/"], **alice).ok()
    server = start(peers.Ours, realm)
    run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).ok()


def test_expired_ticket(start, directory, tmp_path):
    (directory / "expiry").mkdir()
    with Realm(directory / "expiry", skew=1) as realm:
        server = start(peers.Ours, realm)
        environment = realm.login(tmp_path / "cache", "alice", "-l", "1s")
        wait_until(lambda: run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).status != 0)
        text = scalla("ls", url(server), **environment).fails(1, f"krb5: the ticket of alice@{REALM} in FILE:", "run kinit").all
        assert re.search(r"expired \d+ s ago", text), text


def test_kdc_that_is_away(start, own_realm, tmp_path):
    realm = own_realm
    server = start(peers.Ours, realm)
    environment = realm.login(tmp_path / "cache")
    scalla("ls", url(server), **environment).ok()
    fresh = realm.login(tmp_path / "fresh")
    realm.stop()
    # The server asks no KDC, and neither does a client that has the ticket for the server.
    scalla("ls", url(server), **environment).ok()
    scalla("ls", url(server), **fresh).fails(1, f"krb5: no KDC gives a ticket for {SERVICE}: ", "check the network, and the realm in krb5.conf")


def test_a_server_that_cannot_verify_does_not_start(realm, directory):
    open_to_all = realm.key_table("open.keytab", SERVICE)
    open_to_all.chmod(0o644)
    other = f"other/localhost@{REALM}"
    for settings, variables, text in [
        (realm.settings(keytab=open_to_all), {}, "its permissions 0644 allow others to use the keys; run chmod 640"),
        (realm.settings(keytab=directory / "none"), {}, "cannot be read: no such file or directory"),
        (realm.settings(principal=other), {}, f"has no key of {other}: "),
        (realm.settings(), {"KRB5RCACHENAME": "none:"}, "KRB5RCACHENAME turns off the replay cache of Kerberos; unset it"),
    ]:
        server = peers.Ours(settings=settings)
        server.variables = {**realm.variables(server.work), **variables}
        assert text in peers.refused_start(server), text


# Our client

@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_our_client_at_both_servers(start, realm, alice, tmp_path, kind):
    server = start(kind, realm)
    use_by_our_client(server, tmp_path, alice)
    # The cache of the URL precedes that of the environment.
    of_url = f"{url(server)}?xrd.k5ccname=FILE:{tmp_path}/cache"
    scalla("ls", of_url, **{**alice, "KRB5CCNAME": "FILE:/nonexistent"}).ok()
    scalla("ls", url(server), **{**alice, "KRB5CCNAME": "FILE:/nonexistent"}).fails(1, "there is no ticket in FILE:/nonexistent; run kinit")


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_our_client_forwards_in_clear_only_when_told(start, realm, tmp_path, kind):
    tickets = peers.give(Path(tempfile.mkdtemp(prefix="tickets-", dir=realm.directory)))
    server = start(kind, realm, f"-exptkn:{tickets}/krb5cc_<user>")
    environment = realm.login(tmp_path / "cache", "alice", "-f")
    refusal = scalla("ls", url(server), **environment)
    refusal.fails(1, "not forwarded without encryption; use roots://, or set SCALLA_KRB5_FORWARD=1")
    assert not os.listdir(tickets)
    use_by_our_client(server, tmp_path, {**environment, "SCALLA_KRB5_FORWARD": "1"})


def test_our_client_forwards_over_tls(start, realm, tmp_path, directory):
    (directory / "tls").mkdir()
    authority = Authority(directory / "tls")
    tickets = peers.give(Path(tempfile.mkdtemp(prefix="tickets-", dir=realm.directory)))
    server = start(peers.Ours, realm, f"-exptkn:{tickets}/krb5cc_<user>", more=authority.settings())
    environment = realm.login(tmp_path / "cache", "alice", "-f")
    use_by_our_client(server, tmp_path, {**environment, "X509_CERT_DIR": str(authority.directory)}, scheme="roots")
    assert names(server) == {"alice"}


def test_our_client_asks_for_the_password_at_a_terminal(start, own_realm, tmp_path):
    user = getpass.getuser()
    own_realm.order(f'addprinc -pw "{PASSWORD}" {user}')
    server = start(peers.Ours, own_realm)
    environment = own_realm.client(tmp_path / "cache", XrdSecKRB5INITTKN="1", HOME=str(tmp_path))
    # Without a terminal nobody is asked.
    scalla("ls", url(server), **environment).fails(1, "kinit is not run without a terminal; run kinit")
    with Terminal([peers.program(), "stat", url(server)], **environment) as terminal:
        terminal.until(f"Password for {user}@{REALM}: ")
        terminal.type(f"{PASSWORD}\r")
        status, text = terminal.end()
        assert status == 0, text
    assert names(server) == {user}


def test_our_client_shows_its_name(start, realm, alice):
    server = start(peers.Ours, realm)
    assert "alice" in scalla("auth", "whoami", f"localhost:{server.port}", **alice).ok().out


def test_nothing_secret_is_logged(start, realm, tmp_path):
    tickets = peers.give(Path(tempfile.mkdtemp(prefix="tickets-", dir=realm.directory)))
    server = start(peers.Ours, realm, f"-exptkn:{tickets}/krb5cc_<user>", more="sec.trace all\nxrootd.trace all\n", arguments=["-v", "-v"])
    environment = realm.login(tmp_path / "cache", "alice", "-f")
    with Recording(server) as between:
        done = scalla("ls", f"root://localhost:{between.port}//", **environment, SCALLA_KRB5_FORWARD="1", XrdSecDEBUG="3").ok()
        sent = bytes(between.sent)
    wait_until(lambda: " by krb5" in server.output())
    parts = [sent[at:at + 8] for at in range(sent.index(b"krb5\0\x6e"), len(sent) - 8, 64)]
    for text in (server.output().encode(), done.all.encode()):
        assert not any(part in text or part.hex().encode() in text for part in parts if not part.isalnum())
