"""TLS: the real programs against our server, at each position where a connection can be encrypted."""

import os
import socket
import ssl
import struct
import subprocess

import pytest

import keytabs
import peers
import raw
from between import Between
from certificates import new_authority
from clusters import PYTHONS
from tools import XRDCP, XRDFS, pattern, run, wait_until

CONTENT = pattern(3_000_000)


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


POSITIONS = [
    ("roots", ""),
    ("root", "xrootd.tls login"),
    ("root", "xrootd.tls session"),
    ("root", "xrootd.tls data"),
    ("root", "xrootd.tls capable all"),
    ("roots", "xrootd.tls all\nxrootd.tlsreuse on"),
]


@pytest.mark.parametrize("scheme, requirements", POSITIONS)
@pytest.mark.parametrize("streams", [1, 4])
def test_copies_of_the_real_client(serve, authority, tmp_path, scheme, requirements, streams):
    server = serve(settings=peers.SETTINGS + authority.settings(requirements))
    client = {"X509_CERT_DIR": str(authority.directory), "XRD_TLSNODATA": "0"}
    url = f"{scheme}://localhost:{server.port}/"
    (tmp_path / "up").write_bytes(CONTENT)
    run([XRDCP, "-f", "-S", streams, tmp_path / "up", f"{url}/f"], **client).ok()
    run([XRDCP, "-f", "-S", streams, f"{url}/f", tmp_path / "down"], **client).ok()
    assert (tmp_path / "down").read_bytes() == CONTENT
    run([XRDFS, url, "stat", "/f"], **client).ok()


@pytest.mark.parametrize("size", [0, 10, 5_000, 100_000, 3_000_000])
def test_reads_across_the_end_of_a_file(launch, authority, size):
    """`cat` always asks for more bytes than are left: the reply has the rest and says that nothing follows."""
    server = launch(settings=peers.SETTINGS + authority.settings())
    (server.tree / "f").write_bytes(CONTENT[:size])
    client = {"X509_CERT_DIR": str(authority.directory), "XRD_TLSNODATA": "0"}
    for scheme in ("root", "roots"):
        shown = subprocess.run([XRDFS, f"{scheme}://localhost:{server.port}", "cat", "/f"], capture_output=True,
                               timeout=30, env={**os.environ, **client}, check=True)
        assert shown.stdout == CONTENT[:size], (scheme, len(shown.stdout))


@pytest.mark.parametrize("python", PYTHONS, ids=["newest", "5.5.3"])
def test_many_replies_at_once(launch, authority, tmp_path, python):
    """Many short replies leave together, and the client sees each."""
    server = launch(settings=peers.SETTINGS + authority.settings())
    for file in (server.tree / "f", tmp_path / "f"):
        file.write_bytes(CONTENT)
    steps = peers.REPOSITORY / "checks/interop" / "parallel_reads.py"
    for _ in range(5):
        done = run([python, steps, f"roots://localhost:{server.port}//f", tmp_path / "f", 300], X509_CERT_DIR=str(authority.directory))
        assert done.ok().out.strip() == "equal"


@pytest.mark.parametrize("scheme, requirements", [
    ("roots", ""),
    ("root", "xrootd.tls login"),
    ("root", "xrootd.tls session"),
    # `data` alone is tested with the real client at our server.
    ("root", "xrootd.tls session data"),
    ("root", "xrootd.tls capable all"),
])
@pytest.mark.parametrize("streams", [1, 4])
def test_copies_of_our_client(launch, authority, tmp_path, scheme, requirements, streams):
    """At our server and at the real one. If the real one has ended by itself, the copies are made again
    at another one, at most five times."""
    (tmp_path / "up").write_bytes(CONTENT)
    for _ in range(6):
        server = launch(settings=peers.SETTINGS + authority.settings(requirements))
        client = {"X509_CERT_DIR": str(authority.directory), "XRD_SUBSTREAMSPERCHANNEL": str(streams)}
        url = f"{scheme}://localhost:{server.port}/"
        copied = run([peers.program(), "cp", tmp_path / "up", f"{url}/f"], **client)
        if copied.status == 0:
            copied = run([peers.program(), "cp", "-f", f"{url}/f", tmp_path / "down"], **client)
        if server.alive() or isinstance(server, peers.Ours):
            break
    copied.ok()
    assert (tmp_path / "down").read_bytes() == CONTENT


def test_our_client_refuses_servers_that_it_cannot_trust(serve, authority):
    server, plain = serve(settings=peers.SETTINGS + authority.settings()), serve()
    client = {"X509_CERT_DIR": str(authority.directory)}

    def listing(url, **more):
        return run([peers.program(), "ls", url], **{**client, **more})

    listing(f"roots://localhost:{server.port}/").ok()
    # The name in the URL counts, not the address.
    listing(f"roots://127.0.0.1:{server.port}/").fails(1, "not valid for name")
    listing(f"roots://localhost:{server.port}/", X509_CERT_DIR="/nonexistent").fails(1, "X509_CERT_DIR")
    listing(f"roots://localhost:{server.port}/", X509_CERT_DIR="/usr/share").fails(1, "no certificate authority found")
    listing(f"roots://localhost:{plain.port}/").fails(1, "the server has no TLS")
    listing(f"roots://localhost:{plain.port}/", XRD_NOTLSOK="1").ok()
    # But no secret in clear text, whether or not there is a connection already.
    for secret in ("/?authz=token", "/?x=1?token"):
        listing(f"roots://localhost:{plain.port}/{secret}", XRD_NOTLSOK="1").fails(1)


def test_a_protocol_that_is_limited_to_tls(serve, authority, tmp_path):
    """`sec.bindtls`: clients that support TLS encrypt before they authenticate, others cannot use the protocol."""
    login = "xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol unix\nsec.bindtls unix\n"
    server = serve(settings=peers.SETTINGS + authority.settings(login))
    client = {"X509_CERT_DIR": str(authority.directory)}
    url = f"root://localhost:{server.port}/"
    (tmp_path / "up").write_bytes(CONTENT)
    run([XRDCP, "-f", tmp_path / "up", f"{url}/f"], **client).ok()
    run([peers.program(), "cp", f"{url}/f", tmp_path / "down"], **client).ok()
    assert (tmp_path / "down").read_bytes() == CONTENT
    wait_until(lambda: server.output().count("by unix") >= 2)
    # Clients without TLS have no protocol left.
    with raw.Connection(server, login=False) as clear:
        clear.hello()
        with pytest.raises(raw.Failed) as failed:
            clear.login()
        assert failed.value.code == 3028
    keytab = peers.give(keytabs.add(authority.directory.parent / "server.keytab", name="k"))
    other = serve(settings=peers.SETTINGS + authority.settings(f"{login}sec.protocol sss -s {keytab}\n"))
    with raw.Connection(other, login=False, authenticates=False) as clear:
        clear.hello()
        offers = clear.login()[16:]
        assert offers.startswith(b"&P=sss,") and b"unix" not in offers
        with pytest.raises(raw.Failed) as failed:
            clear.ask(raw.AUTH, bytes(12) + b"unix", b"unix\0tester\0")
        assert (failed.value.code, "disallowed for non-TLS" in failed.value.text) == (3030, True)
        clear.send(raw.request(7, raw.STAT, payload=b"/f"))
        assert struct.unpack(">i", clear.frame().body[:4])[0] == 3006
        assert clear.closed()


class AfterUpgrade(Between):
    """Forwards connections of clients that speak only TLS, to a server that was asked to switch to it."""

    ABLE_AND_WANT_TLS = 0x02 | 0x04
    GOTO_TLS = 0x40000000

    def greet(self, server):
        asked = struct.pack(">iB", 0x520, self.ABLE_AND_WANT_TLS).ljust(16, b"\0")
        server.sendall(raw.HANDSHAKE + raw.request(0, raw.PROTOCOL, asked))
        # The answers to the handshake and to the request.
        answers = server.recv(16 + 16, socket.MSG_WAITALL)
        assert struct.unpack(">I", answers[-4:])[0] & self.GOTO_TLS, answers


def test_no_client_renegotiates(serve, authority):
    """OpenSSL's client offers it only with TLS 1.2."""
    server = serve(settings=peers.SETTINGS + authority.settings())
    with AfterUpgrade(server) as between:
        command = ["openssl", "s_client", "-connect", between.host, "-tls1_2"]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        begun = b""
        while b"Verify return code" not in begun:
            begun += client.stdout.readline()
        # A line with this letter asks for it.
        rest, _ = client.communicate(b"R\n", timeout=30)
    assert b"RENEGOTIATING" in rest and b"no renegotiation" in rest and client.returncode != 0, rest
    run([peers.program(), "ls", f"roots://localhost:{server.port}/"], X509_CERT_DIR=str(authority.directory)).ok()


# Two kinds of messages of TLS, and two alerts.
HANDSHAKE, ALERT = 22, 21
HANDSHAKE_FAILURE, PROTOCOL_VERSION = 40, 70
# Suites of old clients: AES with CBC and SHA-1, with RSA and with an ephemeral key.
CBC_SUITES = (0x002F, 0x0035, 0xC013, 0xC014)
GCM_SUITES = (0xC02F, 0xC030)
# Extensions of a client of TLS 1.2: curves, forms of points, signatures.
EXTENSIONS = {10: struct.pack(">HHH", 4, 23, 24), 11: b"\1\0", 13: struct.pack(">HHHH", 6, 0x0804, 0x0401, 0x0403)}


def client_hello(version, suites, extensions=EXTENSIONS):
    """Returns the first message of a client that supports TLS up to a version, in one record."""
    extra = b"".join(struct.pack(">HH", kind, len(body)) + body for kind, body in extensions.items())
    body = struct.pack(">H32sBH", version, b"r" * 32, 0, 2 * len(suites)) + struct.pack(f">{len(suites)}H", *suites) + b"\1\0"
    body += struct.pack(">H", len(extra)) + extra
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", HANDSHAKE, 0x0301, len(message)) + message


class Upgraded(raw.Connection):
    """A connection whose next bytes are those of TLS."""

    def __init__(self, server):
        super().__init__(server, login=False)
        self.send(raw.HANDSHAKE + raw.request(0, raw.PROTOCOL, struct.pack(">iB", 0x520, AfterUpgrade.ABLE_AND_WANT_TLS).ljust(16, b"\0")))
        assert self.receive(16)[:8] == bytes(7) + b"\x08"
        assert struct.unpack(">I", self.frame().body[4:8])[0] & AfterUpgrade.GOTO_TLS

    def encrypt(self, authority, versions=(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3), context=None, session=None):
        """Performs the handshake with the lowest and the highest version, and logs in."""
        if context is None:
            context = ssl.create_default_context(cafile=authority.file)
            context.minimum_version, context.maximum_version = versions
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost", session=session)
        self.login()
        return self


@pytest.mark.parametrize("version, suites, alert", [
    (0x0301, CBC_SUITES, PROTOCOL_VERSION),
    (0x0302, CBC_SUITES, PROTOCOL_VERSION),
    (0x0302, GCM_SUITES, PROTOCOL_VERSION),
    (0x0303, CBC_SUITES, HANDSHAKE_FAILURE),
], ids=["tls1.0", "tls1.1", "tls1.1 with new suites", "tls1.2 with cbc alone"])
def test_old_versions_and_ciphers_are_refused(serve, authority, version, suites, alert):
    server = serve(settings=peers.SETTINGS + authority.settings())
    with Upgraded(server) as client:
        client.send(client_hello(version, suites))
        kind, _, length = struct.unpack(">BHH", client.receive(5))
        level, reason = client.receive(2)
        assert (kind, length, level, reason) == (ALERT, 2, 2, alert)
        assert client.closed()


def test_the_messages_of_old_clients_are_well_formed(serve, authority):
    """The same message with a version and suites of the server begins a handshake."""
    server = serve(settings=peers.SETTINGS + authority.settings())
    with Upgraded(server) as client:
        client.send(client_hello(0x0303, GCM_SUITES))
        kind, version, _ = struct.unpack(">BHH", client.receive(5))
        assert (kind, version, client.receive(1)[0]) == (HANDSHAKE, 0x0303, 2)


@pytest.mark.parametrize("version, name", [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")])
def test_clients_with_one_version(serve, authority, version, name):
    server = serve(settings=peers.SETTINGS + authority.settings())
    with Upgraded(server) as client:
        client.encrypt(authority, (version, version))
        assert client.socket.version() == name
        handle = client.create("/f")
        client.write(handle, 0, CONTENT)
        assert client.read(handle, 0, len(CONTENT)) == CONTENT


@pytest.mark.parametrize("reuse, version", [
    ("on", ssl.TLSVersion.TLSv1_2),
    ("on", ssl.TLSVersion.TLSv1_3),
    ("off", ssl.TLSVersion.TLSv1_2),
    ("off", ssl.TLSVersion.TLSv1_3),
])
def test_sessions_are_resumed_if_configured(serve, authority, reuse, version):
    """Each resumed session has a login of its own."""
    server = serve(settings=peers.SETTINGS + authority.settings(f"xrootd.tlsreuse {reuse}"))
    context = ssl.create_default_context(cafile=authority.file)
    context.minimum_version = context.maximum_version = version
    session = None
    for attempt in range(3):
        with Upgraded(server) as client:
            client.encrypt(authority, context=context, session=session)
            assert client.socket.session_reused == (reuse == "on" and attempt > 0)
            client.ask(raw.PING)
            # With TLS 1.3 the session arrives after the handshake.
            session = client.socket.session if reuse == "on" else session


@pytest.mark.parametrize("place", ["certdir", "certfile"])
def test_third_party_copies_trust_the_authorities_of_the_configuration(authority, tmp_path, place):
    """The source requires encryption, and only the configuration of the target has its authority."""
    local = "scalla.tpcsource allow loopback\nofs.tpc ttl 60 60\n"
    trusted = authority.directory if place == "certdir" else authority.file
    with (peers.Ours(settings=peers.SETTINGS + local + authority.settings("xrootd.tls capable all")) as source,
          peers.Ours(settings=peers.SETTINGS + local + f"xrd.tlsca {place} {trusted}\n") as target,
          peers.Ours(settings=peers.SETTINGS + local) as other):
        (tmp_path / "up").write_bytes(CONTENT)
        client = {"X509_CERT_DIR": str(authority.directory)}
        run([peers.program(), "cp", tmp_path / "up", f"root://localhost:{source.port}//f"], **client).ok()
        copy = lambda to: run([peers.program(), "cp", "--tpc", "only", f"root://localhost:{source.port}//f",
                               f"root://localhost:{to.port}//f"], **client)
        copy(target).ok()
        assert (target.tree / "f").read_bytes() == CONTENT
        assert copy(other).status != 0
