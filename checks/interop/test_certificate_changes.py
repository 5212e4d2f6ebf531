"""Certificates of a running server: a new one counts for new connections, the time left is in the log and in
statistics."""

import re
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

import grid
import peers
import raw
from test_tls import Upgraded
from tools import XRDFS, data, run, scalla, wait_until

STATISTICS = 1
DAY = 24 * 3600


@pytest.fixture
def site():
    with grid.new_site() as site:
        yield site


def host(site, name, days):
    return site.issue(name, "/O=Grid/CN=localhost", "subjectAltName=DNS:localhost\n", days=days)


def put(site, pair):
    """Replaces the certificate of the server and its key. Owner and mode of the files remain."""
    for kept, fresh in ((site.host.certificate, pair.certificate), (site.host.key, pair.key)):
        Path(kept).write_bytes(Path(fresh).read_bytes())


def statistics(connection):
    return connection.ask(raw.QUERY, struct.pack(">H", STATISTICS).ljust(16, b"\0"), b"p").decode()


def seconds_left(text, protocol):
    return int(re.search(rf'<stats id="certs">.*<{protocol}><left>(\d+)</left></{protocol}>', text).group(1))


class Trusting(Upgraded):
    """A client of a server with a certificate of a site."""

    def __init__(self, server, site):
        super().__init__(server)
        context = ssl.create_default_context(cafile=site.authority.certificate)
        self.encrypt(None, context=context)

    def number(self):
        return self.socket.getpeercert()["serialNumber"]


def test_a_new_certificate_counts_for_new_connections(serve, site):
    """Earlier connections go on: one that reads, and one of the real client."""
    content = data(3_000_000)
    settings = f"xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n"
    server = serve(settings=peers.SETTINGS + settings)
    peers.place(server.tree / "f", content)
    environment = peers.environment(X509_CERT_DIR=str(site.certificates))
    real = subprocess.Popen([XRDFS, f"roots://localhost:{server.port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=environment)

    def ask_real():
        real.stdin.write("stat /f\n")
        real.stdin.flush()
        return next((line for line in real.stdout if "Size:" in line or "ERROR" in line), "")

    with real, Trusting(server, site) as early:
        try:
            assert "3000000" in ask_real()
            handle = early.open("/f")
            first = early.number()
            # The answer of 3 MB is on the way while the certificate changes, because the client does not read it.
            stream = early.start(raw.READ, handle + struct.pack(">qi", 0, len(content)))
            put(site, host(site, "next", 20))
            scalla("admin", "--admin-path", server.work / "admin", "reload").ok()
            with Trusting(server, site) as late:
                assert late.number() != first
                assert 19 * DAY < seconds_left(statistics(late), "tls") <= 20 * DAY
            assert early.result(stream) == content
            assert early.read(handle, 1000, 1000) == content[1000:2000] and early.number() == first
            assert "3000000" in ask_real()
            # A key of another certificate changes nothing.
            Path(site.host.key).write_bytes(Path(host(site, "other", 60).key).read_bytes())
            scalla("admin", "--admin-path", server.work / "admin", "reload")
            with Trusting(server, site) as late:
                assert late.number() != first
            wait_until(lambda: "the earlier certificate stays in force" in server.output())
            early.ping()
        finally:
            real.kill()


@pytest.mark.parametrize("protocol", ["tls", "gsi"])
@pytest.mark.parametrize("days, text", [(20, "expires in 19 days and 23 hours"), (2, "expires in 1 days and 23 hours"), (40, None)])
def test_the_expiry_is_logged_and_in_statistics(serve, site, protocol, days, text):
    put(site, host(site, "soon", days))
    lines = {"tls": f"xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n",
             "gsi": f"{site.settings().replace('* only gsi', '* only gsi unix')}sec.protocol unix\n"}
    server = serve(settings=peers.SETTINGS + lines[protocol])
    with raw.Connection(server) as connection:
        assert 0 <= days * DAY - seconds_left(statistics(connection), protocol) < 3600
        if text:
            wait_until(lambda: f"the certificate {site.host.certificate} {text}" in server.output())
        else:
            assert "expires in" not in server.output()


def test_logins_are_counted_by_their_outcome(serve, site):
    server = serve(settings=peers.SETTINGS + site.settings().replace("* only gsi", "* only gsi unix") + "sec.protocol unix\n")
    with raw.Connection(server) as connection:
        assert "<lgn><num>1</num><af>0</af><au>1</au><ua>0</ua></lgn>" in statistics(connection)
        with grid.new_site(name="Stranger") as other:
            stranger = {**other.client(other.proxy("foreign")), "X509_CERT_DIR": str(site.certificates), "XrdSecPROTOCOL": "gsi"}
            assert run([XRDFS, f"localhost:{server.port}", "stat", "/"], **stranger).status != 0
        run([XRDFS, f"localhost:{server.port}", "stat", "/"], **site.client(site.proxy("own"))).ok()
        num, failed, proved, others = map(int, re.search(r"<lgn><num>(\d+)</num><af>(\d+)</af><au>(\d+)</au><ua>(\d+)</ua>", statistics(connection)).groups())
        assert num == 2 and failed >= 1 and proved == 2 and others == 0
