"""TLS: the real programs against our server, at each position where a connection can be encrypted."""

import os
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

import keytabs
import peers
import raw
from between import Between
from tools import XRDCP, XRDFS, pattern, run, wait_until

CONTENT = pattern(3_000_000)


class Authority:
    """A certificate authority, its directory of hashed names, and a certificate for this host."""

    def __init__(self, directory):
        self.directory = directory / "certificates"
        self.certificate, self.key = directory / "host.pem", directory / "host.key"
        self.file = authority = directory / "ca.pem"
        authority_key, request = directory / "ca.key", directory / "host.csr"
        extensions = directory / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,DNS:localhost.localdomain\nextendedKeyUsage=serverAuth\n")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", authority_key, "-out", authority, "-days", "90",
                "-subj", "/O=Test/CN=Authority")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", request, "-subj", "/O=Test/CN=localhost")
        openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "60",
                "-out", self.certificate, "-extfile", extensions)
        self.directory.mkdir()
        name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", authority], capture_output=True, check=True).stdout
        (self.directory / f"{name.decode().strip()}.0").write_bytes(authority.read_bytes())
        os.chmod(self.key, 0o600)
        # Clients trust only authorities of root or of their own user.
        peers.give(self.key)

    def settings(self, requirements=""):
        return f"xrd.tls {self.certificate} {self.key}\nxrd.tlsca certdir {self.directory}\n{requirements}\n"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-tls-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Authority(Path(directory))


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
