"""Certificates of clients in TLS handshakes: xroot servers ask for none, and clients send theirs to servers that ask."""

import contextlib
import os
import select
import socket
import ssl
import struct
import threading

import pytest

import grid
import peers
import raw
from certificates import new_authority
from tools import XRDFS, run

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
# Flags of a server that switches to TLS after the greeting.
GREETING = 0x80000000 | 0x40000000 | 0x04000000 | 1
ABLE_AND_WANT_TLS = 0x02 | 0x04


def of_user(site, name, *parts):
    """Writes the file of a user, which nobody else can read."""
    path = site.directory / name
    path.write_text("".join(part.read_text() for part in parts))
    path.chmod(0o600)
    return path


class AskingServer:
    """Encrypts connections and asks clients for a certificate. What clients send then goes to another server in clear
    text."""

    def __init__(self, site, server, version, demand=ssl.CERT_OPTIONAL):
        self.server = server
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = self.context.maximum_version = version
        self.context.load_cert_chain(site.host.certificate, site.host.key)
        self.context.load_verify_locations(site.authority.certificate)
        self.context.verify_mode = demand
        # X509_V_FLAG_ALLOW_PROXY_CERTS
        self.context.verify_flags |= 0x40
        # The subjects of the certificates of each connection, or the failure of its handshake.
        self.seen = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"roots://localhost:{self.listener.getsockname()[1]}/"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            greeting = client.recv(len(raw.HANDSHAKE) + 24, socket.MSG_WAITALL)
            stream = greeting[len(raw.HANDSHAKE):][:2]
            client.sendall(struct.pack(">HHIII", 0, 0, 8, 0x520, 1) + stream + struct.pack(">HIII", 0, 8, 0x520, GREETING))
            try:
                encrypted = self.context.wrap_socket(client, server_side=True)
            except ssl.SSLError as failure:
                self.seen.append(failure.reason)
                # The alert must not be lost by a reset.
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
                return
            chain = [one.get_info() for one in encrypted._sslobj.get_unverified_chain() or [] if one]
            self.seen.append([dict(part[0] for part in one["subject"])["commonName"] for one in chain])
            with encrypted, socket.create_connection(("127.0.0.1", self.server.port)) as clear:
                clear.sendall(raw.HANDSHAKE + raw.request(0, raw.PROTOCOL, struct.pack(">iB", 0x520, 0).ljust(16, b"\0")))
                clear.recv(16 + 16, socket.MSG_WAITALL)
                forward(encrypted, clear)


def forward(encrypted, clear):
    """Forwards bytes until one end has disconnected."""
    while True:
        ready = [encrypted] if encrypted.pending() else select.select([encrypted, clear], [], [])[0]
        for source in ready:
            content = source.recv(65536)
            if not content:
                return
            (clear if source is encrypted else encrypted).sendall(content)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_xroot_servers_ask_for_no_certificate(server_with_tls, version):
    """Neither does the real one, with the same authorities."""
    server, site = server_with_tls
    asked = []
    context = ssl.create_default_context(cafile=site.file)
    context.minimum_version = context.maximum_version = version
    # The messages of the handshake, by the name of their kind.
    context._msg_callback = lambda _connection, _direction, _version, _content, kind, _data: asked.append(getattr(kind, "name", kind))
    with raw.Connection(server, login=False) as client:
        client.send(raw.HANDSHAKE + raw.request(0, raw.PROTOCOL, struct.pack(">iB", 0x520, ABLE_AND_WANT_TLS).ljust(16, b"\0")))
        client.receive(32)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        client.login()
    assert "CERTIFICATE" in asked and "CERTIFICATE_REQUEST" not in asked


@pytest.fixture(params=["certdir", "certfile"])
def server_with_tls(launch, request):
    with new_authority() as authority:
        places = authority.directory if request.param == "certdir" else authority.file
        settings = f"xrd.tls {authority.certificate} {authority.key}\nxrd.tlsca {request.param} {places} verdepth 3\n"
        yield launch(settings=peers.SETTINGS + settings), authority


@pytest.mark.parametrize("program", ["ours", "theirs"])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_clients_send_the_certificate_that_the_environment_names(begin, site, program, version):
    command = [peers.program(), "stat"] if program == "ours" else [XRDFS]
    clear = begin(peers.Ours(settings=peers.SETTINGS))
    (clear.tree / "f").write_text("content")
    pair = of_user(site, "pair", site.user.certificate, site.user.key)
    with AskingServer(site, clear, version) as server:
        def stat(**more):
            place = [f"{server.url}/f"] if program == "ours" else [server.url, "stat", "/f"]
            run([*command, *place], X509_CERT_DIR=str(site.certificates), **more).ok()
            return server.seen.pop()

        assert stat(X509_USER_PROXY=str(pair))[0] == "Alice Example"
        # The key in another file.
        assert stat(X509_USER_PROXY=str(site.user.certificate), X509_USER_KEY=str(site.user.key))[0] == "Alice Example"
        # A certificate is optional. No other variable names one.
        assert stat(X509_USER_CERT=str(site.user.certificate), X509_USER_KEY=str(site.user.key)) == []


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_our_client_sends_a_proxy_with_the_chain_that_verifies_it(begin, site, version):
    clear = begin(peers.Ours(settings=peers.SETTINGS))
    (clear.tree / "f").write_text("content")
    first = site.proxy(f"first-{version.name}")
    second = site.proxy(f"second-{version.name}", of=first, length=4)
    client = {"X509_CERT_DIR": str(site.certificates), "XRD_CONNECTIONRETRY": "1"}
    with AskingServer(site, clear, version, ssl.CERT_REQUIRED) as server:
        stat = lambda **more: run([peers.program(), "stat", f"{server.url}/f"], **{**client, **more})
        stat(X509_USER_PROXY=str(second)).ok()
        sent = server.seen.pop()
        # Two proxies, the certificate of the user, no root.
        assert len(sent) == 3 and sent[-1] == "Alice Example", sent
        # The key of the proxy counts, also beside that of the user's certificate.
        stat(X509_USER_PROXY=str(second), X509_USER_KEY=str(site.user.key)).ok()
        # Files that cannot be used are no certificate, and the failure names the remedy.
        shared = of_user(site, f"shared-{version.name}", second)
        os.chmod(shared, 0o644)
        stat(X509_USER_PROXY=str(shared)).fails(1, "the server refuses the ", f"chmod 600 {shared}", "name a proxy")
        stat(X509_USER_PROXY="/nonexistent").fails(1, "no certificate to send", "cannot read /nonexistent")
        # Without a name in the environment, the default proxy of the user counts.
        stat(X509_USER_PROXY="").fails(1, "the server refuses the ", "/tmp/x509up_u")


def test_a_certificate_that_the_server_does_not_trust_is_named_in_the_failure(begin, site):
    clear = begin(peers.Ours(settings=peers.SETTINGS))
    with grid.new_site(name="Other") as other, AskingServer(site, clear, VERSIONS[1]) as server:
        foreign = other.proxy("foreign")
        client = {"X509_CERT_DIR": str(site.certificates), "XRD_CONNECTIONRETRY": "1", "X509_USER_PROXY": str(foreign)}
        stat = run([peers.program(), "stat", f"{server.url}/f"], **client)
        stat.fails(1, "the server refuses the client", f"sends the certificate in {foreign}")
