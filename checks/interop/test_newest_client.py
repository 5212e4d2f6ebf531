"""The Python client 6.2.1 at our server by each protocol of authentication, in clear text and with TLS, and its
third-party copies between our servers."""

import hashlib
import re
import sys

import pytest

import grid
import keytabs
import peers
from kerberos import REALM, Realm
from test_ztn import authority, issuer, prepared
from tools import pattern, run, wait_until

__all__ = ["authority", "issuer"]

STEPS = peers.REPOSITORY / "checks/interop" / "newest_steps.py"
CONTENT = pattern(300_000)
LOCAL = "scalla.tpcsource allow loopback\nofs.tpc ttl 60 60\n"


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy("newest")


def steps(*words, **environment):
    return run([sys.executable, STEPS, *words], **environment)


def use(server, scheme="root", directory="/d", **environment):
    """Makes a directory, writes and reads a file in it, and lists it."""
    done = steps("use", f"{scheme}://localhost:{server.port}/", directory, **environment).ok()
    assert done.out.split() == [hashlib.sha256(CONTENT).hexdigest(), str(len(CONTENT)), "new"]


def protocols(server):
    return set(wait_until(lambda: re.findall(r"login as (\S+ by \S+)", server.output())))


def with_tls(site, requirements=""):
    return f"xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n{requirements}\n"


@pytest.mark.parametrize("level", ["none", "standard", "pedantic"])
@pytest.mark.parametrize("scheme, requirements", [("root", None), ("roots", ""), ("root", "xrootd.tls session data"), ("root", "xrootd.tls capable all")],
                         ids=["clear", "roots", "session", "capable all"])
def test_grid_certificates(serve, site, proxy, scheme, requirements, level):
    (site.directory / "grid-mapfile").write_text(f'"{site.user.subject}" alice\n')
    tls = with_tls(site, requirements) if requirements is not None else ""
    server = serve(settings=peers.SETTINGS + site.settings() + tls + f"sec.level all {level}\n")
    use(server, scheme, **site.client(proxy, XrdSecDEBUG="0"))
    assert protocols(server) == {"alice by gsi"}


@pytest.mark.parametrize("scheme", ["root", "roots"])
def test_shared_keys(serve, site, tmp_path, scheme):
    keytab = keytabs.make(tmp_path / "k", user="alice", group="staff")
    own = site.directory / f"{scheme}.keytab"
    own.write_bytes(keytab.read_bytes())
    own.chmod(0o600)
    peers.give(own)
    lines = f"xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol sss -s {own}\nsec.protbind * only sss\n"
    server = serve(settings=peers.SETTINGS + lines + with_tls(site))
    use(server, scheme, XrdSecSSSKT=str(keytab), XrdSecPROTOCOL="sss", X509_CERT_DIR=str(site.certificates))
    assert protocols(server) == {"alice by sss"}


def test_tickets(site, tmp_path, begin):
    with grid.new_site(kind=Realm) as realm, realm:
        server = peers.Ours(settings=peers.SETTINGS + realm.settings())
        server.variables = realm.variables(server.work)
        begin(server)
        use(server, **realm.login(tmp_path / "cache"))
        assert protocols(server) == {"alice by krb5"}, REALM


def test_tokens(issuer, authority):
    with prepared(peers.Ours, issuer, authority) as server:
        client = {"X509_CERT_DIR": str(authority.directory), "XDG_RUNTIME_DIR": "/nonexistent", "XrdSecPROTOCOL": "ztn"}
        token = issuer.token(scope="storage.read:/ storage.create:/ storage.modify:/")
        use(server, "roots", "/protected/made", BEARER_TOKEN=token, **client)
        wait_until(lambda: "login by ztn" in server.output())
        expired = issuer.token(seconds=-5, scope="storage.read:/")
        assert steps("use", f"roots://localhost:{server.port}/", "/protected/other", BEARER_TOKEN=expired, **client).status != 0
        assert not (server.tree / "protected/other").exists()


@pytest.mark.parametrize("requirements", ["", "xrootd.tls all"])
def test_third_party_copies(serve, site, requirements):
    """Without logins, in clear text and encrypted between all three."""
    settings = peers.SETTINGS + LOCAL + with_tls(site, requirements)
    source, target = serve(settings=settings), serve(settings=settings)
    peers.place(source.tree / "f", CONTENT)
    url = lambda server: f"root://localhost:{server.port}//f"
    steps("copy", url(source), url(target), X509_CERT_DIR=str(site.certificates)).ok()
    assert (target.tree / "f").read_bytes() == CONTENT


def test_third_party_copies_between_servers_with_logins(serve, site, proxy):
    """Both servers demand a grid certificate. The target has the proxy that the client delegates."""
    lines = lambda more: peers.SETTINGS + LOCAL + site.settings() + more
    source = serve(settings=lines(""))
    target = serve(settings=lines("ofs.tpc fcreds gsi =X509_USER_PROXY\n"), variables={"X509_CERT_DIR": str(site.certificates)})
    peers.place(source.tree / "f", CONTENT)
    url = lambda server: f"root://localhost:{server.port}//f"
    steps("copy", url(source), url(target), **site.client(proxy, XrdSecGSIDELEGPROXY="1")).ok()
    assert (target.tree / "f").read_bytes() == CONTENT
