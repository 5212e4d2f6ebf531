"""Third-party copies whose ends have identities: rules of `ofs.tpc` about them, encrypted sources, and
tokens. The destinations with credentials of their own are real servers, whose copy program has those of
its environment."""

import itertools
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

import grid
import keytabs
import peers
from issuers import AUDIENCE, Issuer, place_rules_and_files
from tools import XRDCP, data, run

PROGRAM = f" pgm {peers.real('xrdcp')} --server"
KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}
PAIRS = list(itertools.product(KINDS, repeat=2))
CLIENTS = ("theirs", "ours")
SECLIB = "xrootd.seclib libXrdSec.so\n"
WEAK = {"SCALLA_GSI_WEAK_DH": "1"}
SIZE = 2_500_000


@pytest.fixture(scope="module")
def user(site):
    return site.proxy("user")


@pytest.fixture(scope="module")
def robot(site):
    """The proxy of a destination."""
    path = site.proxy("robot", site.issue("robot", "/O=Grid/CN=robot"))
    peers.give(path)
    return path


def copy(program, source, target, **variables):
    path = XRDCP if program == "theirs" else peers.link("xrdcp")
    return run([path, "-N", "-f", "--tpc", "only", source, target], **variables)


@pytest.fixture
def destination(begin, site, robot):
    """Starts a real server whose copy program has credentials."""
    def start(**variables):
        credentials = site.client(robot, XrdSecPROTOCOL="gsi,sss,unix", **WEAK)
        return begin(peers.Theirs(settings=f"ofs.tpc logok{PROGRAM}\n", variables={**credentials, **variables}))

    return start


def from_source(source, target, site, user, protocols="gsi", scheme="root"):
    peers.place(source.tree / "file", data(SIZE))
    result = copy("theirs", f"{scheme}://localhost:{source.port}//file", f"root://127.0.0.1:{target.port}//copy",
                  **site.client(user, XrdSecPROTOCOL=protocols))
    copied = target.tree / "copy"
    if result.status == 0:
        assert copied.read_bytes() == data(SIZE)
        copied.unlink()
    else:
        assert not copied.exists() or copied.stat().st_size == 0
    return result


def source_settings(site, rules, more=""):
    protocols = site.settings().replace("sec.protbind * only gsi\n", "sec.protocol unix\n")
    return f"{peers.SETTINGS}{protocols}{more}ofs.tpc ttl 60 120 {rules}\n"


@pytest.mark.parametrize("rules,admitted", [
    ("allow dn /O=Grid/CN=robot", True),
    ("allow dn /O=Grid/CN=robot host 127.*", True),
    ("allow dn /O=Grid/CN=robot host 10.*", False),
    ("allow dn /O=Grid/CN=robo", False),
    ("allow dn /O=Grid/CN=Alice%20Example", False),
    ("allow group x allow dn /O=Grid/CN=robot", True),
    ("allow vo cms", False),
])
def test_destinations_are_admitted_by_their_certificates(begin, destination, site, user, rules, admitted):
    source, target = begin(peers.Ours(settings=source_settings(site, rules))), destination()
    result = from_source(source, target, site, user)
    if admitted:
        result.ok()
    else:
        assert result.status != 0 and "dest not authorized for tpc" in result.all


@pytest.mark.parametrize("group,admitted", [("trusted", True), ("others", False)])
def test_destinations_are_admitted_by_their_groups(begin, destination, site, user, group, admitted):
    source, target = peers.Ours(settings=""), destination()
    table = keytabs.make(source.work / "keys", user="copier", group=group)
    peers.give(table)
    source.settings = f"{peers.SETTINGS}{SECLIB}sec.protocol sss -s {table}\nsec.protocol unix\nofs.tpc allow group trusted\n"
    begin(source)
    target.stop()
    target.variables.update(XrdSecSSSKT=str(table), XrdSecPROTOCOL="sss")
    target.start()
    result = from_source(source, target, site, user, protocols="unix")
    assert result.status == 0 if admitted else "dest not authorized for tpc" in result.all


@pytest.mark.parametrize("rules,protocols,refusal", [
    ("require client gsi", "gsi", None),
    ("require client gsi", "unix", "improper tpc authentication"),
    ("require client gsi require client unix", "unix", None),
    ("require all gsi", "gsi", None),
    ("require dest sss", "gsi", "improper tpc authentication"),
    ("require client gsi+", "gsi", "unencrypted tpc disallowed"),
    ("require dest gsi+", "gsi", "unencrypted tpc disallowed"),
])
def test_authentication_can_be_required(begin, destination, site, user, rules, protocols, refusal):
    source, target = begin(peers.Ours(settings=source_settings(site, rules))), destination()
    result = from_source(source, target, site, user, protocols=protocols)
    if refusal:
        assert result.status != 0 and refusal in result.all
    else:
        result.ok()


@pytest.mark.parametrize("more,scheme", [("sec.level all standard\n", "root"), ("tls", "roots")])
def test_requests_that_are_signed_or_encrypted_fulfil_the_plus(begin, destination, site, user, more, scheme):
    if more == "tls":
        more = tls(site) + "xrootd.tls all\n"
    source = begin(peers.Ours(settings=source_settings(site, "require all gsi+", more)))
    from_source(source, destination(), site, user, scheme=scheme).ok()


def tls(site):
    return f"xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("source,target", PAIRS)
def test_copies_from_encrypted_sources(begin, site, client, source, target):
    """The source refuses to serve copies in clear text."""
    lines = lambda kind: f"{peers.SETTINGS}ofs.tpc logok{PROGRAM if kind == 'theirs' else ''}\n"
    variables = {"X509_CERT_DIR": str(site.certificates)}
    source = begin(KINDS[source](settings=f"{lines(source)}{tls(site)}xrootd.tls all\n"))
    target = begin(KINDS[target](settings=lines(target), variables=variables))
    peers.place(source.tree / "file", data(SIZE))
    copy(client, f"roots://localhost:{source.port}//file", f"root://127.0.0.1:{target.port}//copy", **variables).ok()
    assert (target.tree / "copy").read_bytes() == data(SIZE)


def test_the_certificate_of_an_encrypted_source_is_checked(begin, site):
    with grid.new_site() as other:
        source = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\n{tls(site)}"))
        target = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\nxrd.tlsca certdir {other.certificates}\n"))
        peers.place(source.tree / "file", b"content")
        result = copy("theirs", f"roots://localhost:{source.port}//file", f"root://127.0.0.1:{target.port}//copy",
                      X509_CERT_DIR=str(site.certificates))
        assert result.status != 0 and f"Unable to copy roots://localhost:{source.port}//file" in result.all
        assert re.search("certificate|authority", result.all) and not (target.tree / "copy").exists()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


def with_tokens(kind, issuer, more):
    """Returns a server whose files need tokens. The client logs in without any."""
    server = KINDS[kind](settings="")
    server.settings = (f"{more}ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config={server.work}/issuers\n"
                       f"acc.authdb {server.work}/authdb\nofs.tpc logok{PROGRAM if kind == 'theirs' else ''}\n")
    text = f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /protected\n"
    if kind == "ours":
        peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
        text += f"jwks_file = {server.work}/keys\n"
    peers.place(server.work / "issuers", text.encode())
    place_rules_and_files(server, issuer, "u nobody /none lr\n", ("protected",))
    return server


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("source,target", PAIRS)
def test_tokens_authorize_both_ends(begin, site, issuer, client, source, target):
    variables = {"X509_CERT_DIR": str(site.certificates)}
    source = begin(with_tokens(source, issuer, tls(site)))
    target = with_tokens(target, issuer, tls(site))
    target.variables.update(variables)
    begin(target)
    read, other = issuer.token(scope="storage.read:/"), issuer.token(scope="storage.read:/other")
    write = issuer.token(scope="storage.read:/ storage.modify:/ storage.create:/")

    def attempt(of_source, of_target):
        return copy(client, f"roots://localhost:{source.port}//protected/f?authz=Bearer%20{of_source}",
                    f"root://127.0.0.1:{target.port}//protected/copy?authz=Bearer%20{of_target}", **variables)

    for tokens in ((other, write), (read, read), (read, other)):
        assert attempt(*tokens).status != 0
        assert not (target.tree / "protected/copy").exists()
    attempt(read, write).ok()
    assert (target.tree / "protected/copy").read_bytes() == b"content"
    for server in (source, target):
        if server.kind == "ours":
            assert not any(token.split(".")[2] in server.output() for token in (read, write, other))


class Forbidden(peers.Ours):
    """As with `NoNewPrivileges=yes` of a service manager."""

    def command(self):
        return ["setpriv", "--no-new-privs", *super().command()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("login,credentials,expected", [
    ("", "", ["no variable"]),
    ("xrootd.seclib libXrdSec.so\nsec.protocol unix\nsec.protocol sss -s {table}\n", "", ["XRDSECPROTOCOLS=:unix:sss"]),
    ("xrootd.seclib libXrdSec.so\nsec.protocol unix\n", "fcreds ?gsi =X509_USER_PROXY", ["XRDSECPROTOCOLS=:unix", "XRDTPCDLG=gsi"]),
])
def test_a_program_knows_the_logins_of_the_server(begin, kind, login, credentials, expected):
    with tempfile.TemporaryDirectory(prefix="scalla-variables-", dir="/var/tmp") as places:
        peers.give(places)
        os.chmod(places, 0o755)
        table = peers.give(keytabs.add(Path(places) / "table"))
        program = Path(places) / "program"
        program.write_text(f"#!/bin/sh\n(env | grep -E '^XRD(SECPROTOCOLS|TPCDLG)=' || echo no variable) | sort > {places}/report\nexit 1\n")
        program.chmod(0o755)
        source = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\n"))
        peers.place(source.tree / "file", data(100))
        login = login.format(table=table)
        # The caller of the server may be a program of another one.
        inherited = {"XRDSECPROTOCOLS": None, "XRDTPCDLG": None}
        target = begin(KINDS[kind](settings=f"{peers.SETTINGS}{login}ofs.tpc {credentials} logok pgm {program}\n", variables=inherited))
        client = {"XrdSecPROTOCOL": "unix", "XrdSecGSIUSERPROXY": "/nonexistent"}
        assert copy("theirs", source.url("/file"), target.url("/copy"), **client).status != 0
        assert (Path(places) / "report").read_text().splitlines() == expected


PRIVILEGES = """#!/bin/sh
grep -E '^(Uid|Groups|CapPrm|CapEff|CapAmb|NoNewPrivs):' /proc/self/status > {places}/report
echo "setuid: $({places}/id -u)" >> {places}/report
exec {xrdcp} --server "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server for another user")
@pytest.mark.parametrize("kind,gains", [(peers.Ours, True), (Forbidden, False)])
def test_a_program_has_the_rights_of_the_server_and_may_gain_others(begin, kind, gains):
    """A program for which the server has switched to its user. Sites call `sudo` in programs."""
    with tempfile.TemporaryDirectory(prefix="scalla-privileges-", dir="/var/tmp") as places:
        peers.give(places)
        os.chmod(places, 0o755)
        shutil.copy("/usr/bin/id", f"{places}/id")
        os.chown(f"{places}/id", 1, 1)
        os.chmod(f"{places}/id", 0o4755)
        program = Path(places) / "program"
        program.write_text(PRIVILEGES.format(places=places, xrdcp=peers.real("xrdcp")))
        program.chmod(0o755)
        source = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\n"))
        target = begin(kind(settings=f"{peers.SETTINGS}ofs.tpc logok pgm {program}\n", as_user=False, arguments=["--user", "nobody"]))
        peers.place(source.tree / "file", data(SIZE))
        copy("ours", f"root://localhost:{source.port}//file", f"root://127.0.0.1:{target.port}//copy").ok()
        assert (target.tree / "copy").read_bytes() == data(SIZE)
        found = dict(line.split(":") for line in (Path(places) / "report").read_text().splitlines())
    nobody, _ = peers.unprivileged()
    assert set(found["Uid"].split()) == {str(nobody)} and "0" not in found["Groups"].split()
    assert [int(found[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")] == [0, 0, 0]
    assert found["NoNewPrivs"].split() == ["0" if gains else "1"]
    assert found["setuid"].split() == ["1" if gains else str(nobody)]
