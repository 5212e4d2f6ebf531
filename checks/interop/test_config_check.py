"""`scalla config check` and the certificates of grids: the files that a server refuses, and those that
expire."""

import json
import os

import pytest

import grid
import peers
from codes import Exit
from tools import scalla, wait_until

SERVES = "oss.localroot /var/tmp\nall.export / r/o\n"


@pytest.fixture
def site():
    with grid.new_site() as site:
        yield site


@pytest.fixture
def check(site):
    """Checks the configuration of a server with gsi, as its user."""
    def check(*options, lines=""):
        file = site.directory / "site.cfg"
        file.write_text(SERVES + site.settings(*options) + lines)
        user = ("--user", "nobody") if os.geteuid() == 0 else ()
        return scalla("config", "check", file, *user)
    return check


def test_the_files_of_gsi(site, check):
    assert "good" in check().ok().out
    assert "good" in check("-crl:1").ok().out
    for level in (2, 3):
        assert "is missing or does not cover it, so its certificates are refused" in check(f"-crl:{level}").ok().out
    site.revoke()
    assert "good" in check("-crl:3").ok().out
    # A list of another authority, as after an exchange of its key.
    own = (site.certificates / f"{site.hash}.r0").read_bytes()
    with grid.new_site() as other:
        other.revoke()
        (site.certificates / f"{site.hash}.r0").write_bytes((other.certificates / f"{other.hash}.r0").read_bytes())
        assert "has a wrong signature, so its certificates are refused" in check("-crl:1").ok().out
    (site.certificates / f"{site.hash}.r0").write_bytes(own)
    (site.certificates / f"{site.hash}.r0").write_text("text")
    assert "the revocation list is neither PEM nor DER" in check("-crl:1").ok().out
    assert "grid-mapfile is missing or empty, so -gmapopt:usemap refuses all clients" in check("-gmapopt:usemap").ok().out
    os.chmod(site.host.key, 0o644)
    check().fails(Exit.FAILED, "allow others to read the key")
    os.chmod(site.host.key, 0o600)
    other = site.issue("other", "/O=Grid/CN=localhost")
    site.host.key.write_bytes(other.key.read_bytes())
    check().fails(Exit.FAILED, "the key is not that of the certificate")


def test_certificates_of_gsi_that_expire(serve, site, check):
    """The check and the log of a server have the same warning."""
    site.host = site.issue("soon", "/O=Grid/CN=localhost", "subjectAltName=DNS:localhost\n", days=20)
    peers.give(site.host.key)
    expected = f"the certificate {site.host.certificate} expires in 19 days and 23 hours; replace the file"
    assert expected in check().ok().out
    server = serve(settings=peers.SETTINGS + site.settings())
    wait_until(lambda: expected in server.output())
    site.host = site.issue("past", "/O=Grid/CN=localhost", days=-1)
    peers.give(site.host.key)
    check().fails(Exit.FAILED, f"the certificate {site.host.certificate} has expired, so clients refuse it")


def test_certificates_of_gsi_that_are_not_valid_yet(site, check):
    settings = site.directory / "issue.cnf"
    settings.write_text(f"[ca]\ndefault_ca=d\n[d]\ndatabase={site.directory}/index.txt\nnew_certs_dir={site.directory}\ndefault_md=sha256\n"
                        f"serial={site.directory}/issue.serial\npolicy=p\n[p]\norganizationName=optional\ncommonName=supplied\n")
    grid.openssl("ca", "-batch", "-config", settings, "-cert", site.authority.certificate, "-keyfile", site.authority.key, "-create_serial", "-notext",
                 "-startdate", "20600101000000Z", "-enddate", "20700101000000Z", "-in", site.directory / "host.csr", "-out", site.host.certificate,
                 "-extfile", site.directory / "host.ext")
    assert f"sec.protocol gsi: the certificate {site.host.certificate} is not valid yet" in check().ok().out


def test_intermediate_authorities_of_tls_that_expire(site, check):
    chain = site.directory / "chain.pem"
    lines = f"xrd.tls {chain} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n"
    for days, expected in ((60, "good"), (20, "expires in 19 days, so clients can refuse the server"), (-1, "has expired, so clients can refuse the server")):
        middle = site.issue(f"middle{days}", "/O=Grid/CN=Middle", days=days)
        chain.write_bytes(site.host.certificate.read_bytes() + middle.certificate.read_bytes())
        assert expected in check(lines=lines).ok().out


def test_authorities_that_expire(site, check):
    authority = site.authority
    grid.openssl("req", "-x509", "-key", authority.key, "-out", authority.certificate, "-days", "10", "-subj", "/O=Grid/CN=Authority",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for file in site.certificates.glob("*.0"):
        file.write_bytes(authority.certificate.read_bytes())
    warned = check().ok().out
    assert warned.count("the certificate of the authority /O=Grid/CN=Authority expires in 9 days; replace its file") == 1, warned


RULES = "u alice /own a\nu * /public lr\n"


def test_decisions_about_the_owner_of_a_proxy(serve, site):
    """The explanation is that of the server: name of the grid map, limits of the proxy, refused logins."""
    (site.directory / "grid-mapfile").write_text(f'"{site.user.subject}" alice\n')
    rules = site.directory / "authdb"
    rules.write_text(RULES)
    lines = site.settings("-gmapopt:usemap") + f"ofs.authorize\nacc.authdb {rules}\n"
    config = site.directory / "site.cfg"
    config.write_text(SERVES + lines)
    limited = site.proxy("limited", policy=grid.LIMITED)
    proxies = {"full": site.proxy("full"), "limited": limited, "old": site.proxy("old", days=-1),
               "other": site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))}
    server = serve(settings=peers.SETTINGS + lines)
    for directory in ("own", "public"):
        (server.tree / directory).mkdir()
        peers.give(server.tree / directory)
        peers.place(server.tree / directory / "file", b"x")
    cases = [
        ("full", "/own/file", "read", True, "logs in by gsi as alice"),
        ("full", "/own/new", "create", True, "u alice (line 1) grants"),
        ("full", "/public/new", "create", False, "u * (line 2) grants"),
        ("limited", "/own/file", "read", True, "logs in by gsi as alice"),
        ("limited", "/own/new", "create", False, "the proxy is a limited one"),
        ("old", "/public/file", "read", False, "the login (gsi) is refused"),
        ("other", "/public/file", "read", False, "is not in the grid map"),
    ]
    for name, path, operation, is_allowed, expected in cases:
        words = ("auth", "check", f"@{proxies[name]}", path, operation, "--config", config)
        explained = scalla(*words)
        assert explained.status == (0 if is_allowed else Exit.FAILED), explained
        assert expected in explained.out and "PRIVATE" not in explained.out, explained
        described = json.loads(scalla(*words, "--json").out)
        assert (described["allowed"], described["login"]["accepted"]) == (is_allowed, "refused" not in expected and name != "other")
        client = site.client(proxies[name])
        url = f"root://localhost:{server.port}/{path}"
        done = scalla("cat", url, **client) if operation == "read" else scalla("cp", "--force", config, url, **client)
        assert (done.status == 0) == is_allowed, f"{name} {operation} {path}: {done}"
    without = site.directory / "without.cfg"
    without.write_text(SERVES)
    scalla("auth", "check", f"@{limited}", "/own", "read", "--config", without).fails(Exit.FAILED, "no logins by proxies")
