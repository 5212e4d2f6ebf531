"""Peers with one version of TLS, sessions that are resumed under each, renegotiation, and connections that
end within a record."""

import os
import re
import socket
import ssl
import subprocess
import threading

import pytest

import peers
import raw
from certificates import new_authority
from tampering import Terminating
from test_tls import AfterUpgrade, Upgraded
from tools import pattern, scalla, wait_until

CONTENT = pattern(300_000)
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Names of the versions in the log of our client.
LOGGED = {"TLSv1.2": "TLSv1_2", "TLSv1.3": "TLSv1_3"}


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


def client(authority, **more):
    return {"X509_CERT_DIR": str(authority.directory), **more}


def only(authority, version):
    """The settings of a server with one version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


# Servers with one version

@pytest.mark.parametrize("version", VERSIONS)
def test_our_client_at_a_server_with_one_version(serve, authority, tmp_path, version):
    """A server with the TLS of OpenSSL."""
    (tmp_path / "up").write_bytes(CONTENT)
    with Terminating(serve(), only(authority, version)) as between:
        url = f"roots://{between.host}//f"
        scalla("cp", tmp_path / "up", url, **client(authority)).ok()
        done = scalla("cat", url, XRDTLS_DEBUG="ctx", **client(authority)).ok()
        assert done.raw == CONTENT and f'version="{LOGGED[version]}"' in done.err
        assert {found for found, _ in between.sessions} == {version}


@pytest.mark.parametrize("version", VERSIONS)
def test_our_client_at_the_real_server_with_one_version(begin, authority, version):
    """The settings of OpenSSL limit the real server."""
    settings = authority.directory.parent / f"{version}.cnf"
    settings.write_text("openssl_conf=all\n[all]\nssl_conf=ssl\n[ssl]\nsystem_default=limits\n[limits]\n"
                        f"MinProtocol={version}\nMaxProtocol={version}\n")
    server = begin(peers.Theirs(settings=peers.SETTINGS + authority.settings("xrootd.tls capable all"), variables={"OPENSSL_CONF": str(settings)}))
    peers.place(server.tree / "f", CONTENT)
    done = scalla("cat", f"roots://localhost:{server.port}//f", XRDTLS_DEBUG="ctx", **client(authority)).ok()
    assert done.raw == CONTENT
    assert set(re.findall(r'version="(\w+)"', done.err)) == {LOGGED[version]}


def test_our_client_leaves_servers_with_old_versions(serve, authority):
    context = only(authority, "TLSv1.2")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with Terminating(serve(), context) as between:
        scalla("ls", f"roots://{between.host}//", **client(authority)).fails(1, "TLS")
        assert wait_until(lambda: between.failures) and not between.decrypted


# Clients with one version

LOGIN = raw.request(0, raw.LOGIN, b"\0\0\0\1tester\0\0\0\0\5\0")
LOGGED_IN = bytes(7) + b"\x10"


def s_client(between, *options):
    """Logs in with the client of OpenSSL, and returns its output."""
    command = ["openssl", "s_client", "-connect", between.host, *map(str, options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        text = b""
        while b"Verify return code" not in text:
            piece = os.read(process.stdout.fileno(), 65536)
            assert piece, text
            text += piece
        process.stdin.write(LOGIN)
        process.stdin.flush()
        # The reply to the login comes after the tickets of TLS 1.3.
        while LOGGED_IN not in text:
            piece = os.read(process.stdout.fileno(), 65536)
            assert piece, text
            text += piece
        # A line with this letter ends the client.
        rest, _ = process.communicate(b"Q\n", timeout=60)
    return text + rest


@pytest.mark.parametrize("reuse", ["on", "off"])
@pytest.mark.parametrize("version, option", [("TLSv1.2", "-tls1_2"), ("TLSv1.3", "-tls1_3")])
def test_clients_of_openssl_resume_sessions_if_configured(serve, authority, tmp_path, version, option, reuse):
    server = serve(settings=peers.SETTINGS + authority.settings(f"xrootd.tlsreuse {reuse}"))
    session = tmp_path / "session"
    words = ("-CAfile", authority.file, "-verify_return_error", "-servername", "localhost", option)
    with AfterUpgrade(server) as between:
        first = s_client(between, *words, "-sess_out", session)
        assert f"New, {version}".encode() in first and b"Verification: OK" in first, first
        is_kept = session.exists() and session.stat().st_size > 0
        second = s_client(between, *words, "-sess_in", session) if is_kept else first
    assert (b"Reused, " in second) == (reuse == "on"), second


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_within_its_record_has_no_effect(serve, authority, version):
    """The connection ends after each number of bytes of a record with a write."""
    server = serve(settings=peers.SETTINGS + authority.settings())
    request = lambda handle: raw.request(9, raw.WRITE, handle + bytes(8) + bytes(4), b"content")

    def attempt(cut):
        """Sends a part of the record, and returns the length of the record."""
        with Cut(server) as connection:
            connection.encrypt(authority, versions=(VERSIONS[version],) * 2)
            handle = connection.create(f"/{version}-{cut}")
            record = connection.sealed(request(handle))
            connection.send_bare(record[:cut])
            connection.socket_below.shutdown(socket.SHUT_WR)
            while connection.socket_below.recv(65536):
                pass
            return len(record)

    length = attempt(0)
    for cut in range(1, length):
        attempt(cut)
    whole = attempt(length)
    assert whole == length
    for cut in range(length):
        assert (server.tree / f"{version}-{cut}").stat().st_size == 0, cut
    wait_until(lambda: (server.tree / f"{version}-{length}").read_bytes() == b"content")
    assert server.alive()


class Cut(Upgraded):
    """An encrypted connection whose records are made in memory, so that parts of them can be sent."""

    def encrypt(self, authority, versions):
        context = ssl.create_default_context(cafile=authority.file)
        context.minimum_version, context.maximum_version = versions
        self.socket_below = self.socket
        self.arrived, self.made = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.arrived, self.made, server_hostname="localhost")
        self.complete(self.tls.do_handshake)
        self.login()
        return self

    def complete(self, step):
        """Repeats a step of TLS until it needs nothing more from the server."""
        while True:
            try:
                result = step()
                self.flush()
                return result
            except ssl.SSLWantReadError:
                self.flush()
                piece = self.socket_below.recv(65536)
                if not piece:
                    raise raw.Closed("during TLS") from None
                self.arrived.write(piece)

    def flush(self):
        if out := self.made.read():
            self.socket_below.sendall(out)

    def send(self, data):
        if not hasattr(self, "tls"):
            return super().send(data)
        self.complete(lambda: self.tls.write(data))

    def receive(self, size):
        if not hasattr(self, "tls"):
            return super().receive(size)
        found = b""
        while len(found) < size:
            found += self.complete(lambda: self.tls.read(size - len(found)))
        return found

    def sealed(self, data):
        """Returns the record with data instead of sending it."""
        self.tls.write(data)
        return self.made.read()

    def send_bare(self, data):
        if data:
            self.socket_below.sendall(data)


# Renegotiation by a server

class Renegotiating(Terminating):
    """A server of OpenSSL with TLS 1.2 that asks for another handshake after the first request."""

    def __init__(self, server, authority):
        super().__init__(server, None)
        self.authority = authority
        self.text = b""

    def terminate(self, client):
        greeting = client.recv(44, socket.MSG_WAITALL)
        if len(greeting) < 44:
            return client.close()
        flags = 0x80000000 | 0x40000000 | 0x04000000 | 1
        client.sendall(bytes(4) + raw.struct.pack(">iii", 8, 0x520, 1) + bytes(4) + raw.struct.pack(">iII", 8, 0x520, flags))
        port = peers.free_port()
        command = ["openssl", "s_server", "-accept", str(port), "-naccept", "1", "-cert", self.authority.certificate, "-key", self.authority.key,
                   "-tls1_2", "-legacy_renegotiation"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while b"ACCEPT" not in (line := self.process.stdout.readline()):
            assert line, "it did not start"
        server = socket.create_connection(("localhost", port))
        self.sockets.append(server)
        threading.Thread(target=self.copy, args=(client, server, None), daemon=True).start()
        threading.Thread(target=self.copy, args=(server, client, None), daemon=True).start()
        threading.Thread(target=self.read, daemon=True).start()
        # The login arrives: the client is encrypted.
        wait_until(lambda: b"Secure Renegotiation" in self.text)
        # A line that begins with this letter is a command.
        self.process.stdin.write(b"r\n")
        self.process.stdin.flush()

    def read(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.text += piece


def test_our_client_does_not_renegotiate(serve, authority):
    server = serve(settings=peers.SETTINGS)
    with Renegotiating(server, authority) as between:
        done = scalla("ls", f"roots://{between.host}//", XRD_CONNECTIONRETRY="1", XRD_CONNECTIONWINDOW="5", XRD_REQUESTTIMEOUT="10", **client(authority))
        assert done.status == 1 and done.err and not done.out, done
        wait_until(lambda: b"no renegotiation" in between.text.lower() or between.process.poll() is not None)
        assert b"no renegotiation" in between.text.lower(), between.text
        between.process.kill()
        between.process.wait()
