"""Certificates of clients over HTTPS: curl, davix and Python at our server, with an authority that the tests make."""

import http.client
import ssl
import time

import pytest

import grid
import peers
from test_voms import RULES as VOMS_RULES
from test_voms import VomsSite
from tools import XRDFS, run, scalla, wait_until
from web import HTTP

SECONDS = 30 * peers.SLOWNESS
CONTENT = b"for alice\n"
RULES = "u alice /alice a\nu * /public rl\n"


def tls(site, options=""):
    return f"{HTTP}xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates} {options}\n"


def mapped(site, rules=RULES, required=""):
    """The lines of a server that knows the user of the site as alice."""
    (site.directory / "map").write_text(f'"{site.user.subject}" alice\n')
    (site.directory / "rules").write_text(rules)
    return f"http.gridmap {required}{site.directory}/map\nofs.authorize\nacc.authdb {site.directory}/rules\n"


def placed(server):
    for name in ("alice", "public"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", CONTENT)
    return server


@pytest.fixture
def start(begin):
    return lambda settings, **how: placed(begin(peers.Ours(settings=peers.SETTINGS + settings, **how)))


def curl(site, server, path, *options, method="GET"):
    """Returns the status of a request, or the exit status of curl if there is no reply."""
    command = ["curl", "-sS", "--max-time", int(SECONDS), "--capath", site.certificates, "-o", "/dev/null", "-w", "%{http_code}", "-X", method, *options,
               f"https://localhost:{server.port}{path}"]
    done = run([str(word) for word in command])
    return int(done.out) if done.status == 0 else f"curl {done.status}"


def reload(server):
    scalla("admin", "--admin-path", server.work / "admin", "reload").ok()


def shown(proxy, key=None):
    """The options of curl that show a certificate."""
    return ("--cert", proxy, "--key", key or proxy)


def test_a_certificate_or_a_proxy_has_the_name_of_the_map(start, site, tmp_path):
    server = start(tls(site) + mapped(site))
    first = site.proxy("first")
    second = site.proxy("second", of=first)
    for options in (shown(site.user.certificate, site.user.key), shown(first), shown(second)):
        for version in (("--tlsv1.3",), ("--tls-max", "1.2")):
            assert curl(site, server, "/alice/f", *options, *version) == 200, (options, version)
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    assert curl(site, server, "/alice/new", *shown(first), "-T", source, method="PUT") == 201
    assert (server.tree / "alice/new").read_bytes() == CONTENT
    # Without a certificate nobody has a name, and rules for all count.
    assert curl(site, server, "/alice/f") == 403 and curl(site, server, "/public/f") == 200
    # A subject that is not in the map has the hash of its name.
    other = site.issue("other", "/O=Grid/CN=Other")
    name = grid.openssl("x509", "-noout", "-subject_hash", "-in", other.certificate).strip()
    assert curl(site, server, "/alice/f", *shown(other.certificate, other.key)) == 403
    (site.directory / "rules").write_text(RULES + f"u {name} /alice rl\n")
    reload(server)
    wait_until(lambda: curl(site, server, "/alice/f", *shown(other.certificate, other.key)) == 200)


def test_davix_with_a_proxy(start, site, tmp_path):
    server = start(tls(site) + mapped(site))
    (tmp_path / "source").write_bytes(CONTENT)
    proxy, url = site.proxy("davix"), f"https://localhost:{server.port}/alice"
    shows = ["--capath", site.certificates, "--cert", proxy]
    run(["davix-put", *shows, tmp_path / "source", f"{url}/davix"]).ok()
    run(["davix-get", *shows, f"{url}/davix", tmp_path / "back"]).ok()
    assert (tmp_path / "back").read_bytes() == CONTENT
    assert run(["davix-get", "--capath", site.certificates, f"{url}/davix", tmp_path / "none"]).status != 0


def test_broken_chains_are_refused_with_the_reason_in_the_log(start, own_site):
    site = own_site
    revoked = site.issue("revoked", "/O=Grid/CN=Revoked")
    site.revoke(revoked)
    server = start(tls(site) + mapped(site, rules="u * / a\n"))
    now = time.time()
    expired = site.proxy_between("expired", now - 7200, now - 3600)
    early = site.proxy_between("early", now + 3600, now + 7200)
    assert curl(site, server, "/public/f") == 200
    with grid.new_site(name="Stranger") as stranger:
        for options, reason in (
            (shown(expired), "expired"),
            (shown(early), "not valid yet"),
            (shown(revoked.certificate, revoked.key), "revoked"),
            (shown(stranger.proxy("stranger")), 'its issuer "/O=Grid/CN=Stranger" is unknown'),
            (shown(site.proxy("too-deep", of=site.proxy("last", length=0))), "prox"),
        ):
            before = len(server.output())
            refused = curl(site, server, "/public/f", *options)
            assert isinstance(refused, str), (reason, refused)
            said = wait_until(lambda: "is refused" in server.output()[before:] and server.output()[before:])
            assert reason.lower() in said.lower(), (reason, said)
    # Others are served.
    assert curl(site, server, "/public/f", *shown(site.proxy("fine"))) == 200


def test_options_of_the_authorities_count(start, own_site):
    site = own_site
    server = start(tls(site, "noproxies") + mapped(site))
    assert curl(site, server, "/alice/f", *shown(site.user.certificate, site.user.key)) == 200
    assert isinstance(curl(site, server, "/alice/f", *shown(site.proxy("any"))), str)
    server = start(tls(site, "crlcheck all") + mapped(site))
    assert isinstance(curl(site, server, "/alice/f", *shown(site.user.certificate, site.user.key)), str)
    site.revoke()
    server = start(tls(site, "crlcheck all") + mapped(site))
    assert curl(site, server, "/alice/f", *shown(site.user.certificate, site.user.key)) == 200


def test_a_required_map_refuses_other_subjects_only(start, site):
    server = start(tls(site) + mapped(site, required="required "))
    other = site.issue("unmapped", "/O=Grid/CN=Unmapped")
    assert curl(site, server, "/alice/f", *shown(site.proxy("mapped"))) == 200
    assert curl(site, server, "/public/f", *shown(other.certificate, other.key)) == 403
    wait_until(lambda: "is not in the grid map" in server.output())
    assert curl(site, server, "/public/f") == 200


def test_limited_proxies_read_only(start, site, tmp_path):
    server = start(tls(site) + mapped(site))
    limited = site.proxy("limited", policy=grid.LIMITED)
    (tmp_path / "source").write_bytes(CONTENT)
    assert curl(site, server, "/alice/f", *shown(limited)) == 200
    assert curl(site, server, "/alice/limited", *shown(limited), "-T", tmp_path / "source", method="PUT") == 403


def test_clients_are_not_asked_if_the_configuration_says_so(start, site):
    server = start(tls(site) + "http.tlsclientauth off\n" + mapped(site))
    assert curl(site, server, "/alice/f", *shown(site.proxy("unasked"))) == 403
    assert curl(site, server, "/public/f", *shown(site.proxy("unasked too"))) == 200


def test_with_gsi_a_certificate_is_a_login_by_gsi(start, site):
    (site.directory / "grid-mapfile").write_text(f'"{site.user.subject}" alice\n')
    (site.directory / "rules").write_text(RULES)
    authorization = f"ofs.authorize\nacc.authdb {site.directory}/rules\n"
    server = start(tls(site) + site.settings("-gmapopt:usemap") + authorization)
    assert curl(site, server, "/alice/f", *shown(site.proxy("gsi"))) == 200
    other = site.issue("no gsi", "/O=Grid/CN=No")
    assert curl(site, server, "/public/f", *shown(other.certificate, other.key)) == 403
    # Clients must authenticate, and a certificate is the only way.
    assert curl(site, server, "/public/f") == 403
    # The xroot protocol has the same authorities and names.
    run([XRDFS, f"localhost:{server.port}", "stat", "/alice/f"], **site.client(site.proxy("xroot"))).ok()


def test_a_certificate_is_no_login_by_another_protocol(start, site):
    server = start(tls(site) + mapped(site) + "xrootd.seclib libXrdSec.so\nsec.protocol unix\n")
    assert curl(site, server, "/alice/f", *shown(site.proxy("unix"))) == 403
    # It is one for hosts that need no login.
    server = start(tls(site) + mapped(site) + "xrootd.seclib libXrdSec.so\nsec.protocol unix\nsec.protbind * none\n")
    assert curl(site, server, "/alice/f", *shown(site.proxy("none"))) == 200 and curl(site, server, "/alice/f") == 403


def test_attributes_of_voms_count(begin):
    with grid.new_site(VomsSite) as site:
        (site.directory / "rules").write_text(VOMS_RULES)
        settings = f"http.secxtractor libXrdVoms.so\nofs.authorize\nacc.authdb {site.directory}/rules\n"
        server = peers.Ours(settings=peers.SETTINGS + tls(site) + settings)
        server.variables.update(X509_VOMS_DIR=str(site.signers))
        begin(server)
        for name in ("prod", "dteam", "role"):
            (server.tree / name).mkdir()
            peers.give(server.tree / name)
            peers.place(server.tree / name / "f", CONTENT)
        member = site.proxy_with("member", "/dteam/Role=NULL/Capability=NULL")
        producer = site.proxy_with("producer", "/dteam/prod/Role=production/Capability=NULL")
        assert curl(site, server, "/dteam/f", *shown(member)) == 200
        assert curl(site, server, "/prod/f", *shown(member)) == 403
        assert curl(site, server, "/prod/f", *shown(producer)) == 200
        assert curl(site, server, "/role/f", *shown(producer)) == 200
        assert curl(site, server, "/dteam/f", *shown(site.proxy("plain"))) == 403
        assert curl(site, server, "/dteam/f") == 403


def test_a_resumed_session_is_verified_again(start, own_site):
    site = own_site
    server = start(tls(site) + "xrootd.tlsreuse on\n" + mapped(site))
    context = ssl.create_default_context(capath=str(site.certificates))
    # Sessions of TLS 1.2 are there when the handshake ends.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(site.user.certificate, site.user.key)

    class Connection(http.client.HTTPSConnection):
        session = None

        def connect(self):
            http.client.HTTPConnection.connect(self)
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost", session=self.session)

    def ask(session=None):
        connection = Connection("localhost", server.port, timeout=SECONDS, context=context)
        connection.session = session
        try:
            connection.request("GET", "/alice/f")
            reused = connection.sock.session_reused
            session = connection.sock.session
            return connection.getresponse().status, reused, session
        finally:
            connection.close()

    status, reused, session = ask()
    assert (status, reused) == (200, False)
    assert ask(session)[:2] == (200, True)
    site.revoke(site.user)
    reload(server)
    wait_until(lambda: ask(session)[0] == 403)
    assert ask(session)[1]
    assert "is refused" in server.output() and "revoked" in server.output().lower()
