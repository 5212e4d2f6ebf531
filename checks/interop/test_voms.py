"""Memberships in virtual organizations: proxies of `voms-proxy-fake` at our server and at the real one."""

import json
import os
import re
import signal
import subprocess

import pytest

import grid
import peers
from tools import XRDCP, XRDFS, run, scalla, wait_until

HOST = "voms.example.org"
ROLES = ("/dteam/Role=NULL/Capability=NULL", "/dteam/prod/Role=production/Capability=NULL")
# The extension of a proxy with attributes.
ATTRIBUTES = "1.3.6.1.4.1.8005.100.100.5"
# A request that every client may make.
ANY_CLIENT = ("query", "config", "version")
RULES = """
g /dteam/prod /prod a
g /dteam /dteam rl
= production o: dteam r: production
s production /role a
"""


class VomsSite(grid.GridSite):
    """A site with a server of the organization `dteam`."""

    def __init__(self, directory):
        super().__init__(directory)
        self.signer = self.issue("voms", f"/O=Grid/CN={HOST}")
        self.signers = directory / "vomsdir"
        self.list(f"/O=Grid/CN={HOST}\n/O=Grid/CN=Authority\n")

    def list(self, text, organization="dteam"):
        place = self.signers / organization
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{HOST}.lsc").write_text(text)

    def proxy_with(self, name, *groups, of=None, organization="dteam", signer=None, **more):
        """Issues a proxy with attributes."""
        user, signer, path = of or self.user, signer or self.signer, self.directory / f"{name}.proxy"
        command = ["voms-proxy-fake", "-rfc", "-bits", "2048", "-hours", "10", "-certdir", self.certificates, "-cert", user.certificate,
                   "-key", user.key, "-hostcert", signer.certificate, "-hostkey", signer.key, "-voms", organization,
                   "-uri", f"{HOST}:15000", "-out", path]
        for group in groups:
            command += ["-fqan", group]
        for option, value in more.items():
            command += [f"-{option}", value]
        done = subprocess.run([str(word) for word in command], capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout + done.stderr
        return path


@pytest.fixture
def site():
    with grid.new_site(VomsSite) as site:
        yield site


@pytest.fixture
def start(site, begin):
    """Starts a server of a kind with options of gsi and rules."""
    def start(kind, *options, more="", rules=RULES):
        path = site.directory / "rules"
        path.write_text(rules)
        settings = peers.SETTINGS if kind is peers.Ours else ""
        settings += site.settings(*options) + f"ofs.authorize\nacc.authdb {path}\n" + more
        server = kind(settings=settings)
        server.variables.update(X509_VOMS_DIR=str(site.signers), X509_CERT_DIR=str(site.certificates))
        begin(server)
        for name in ("prod", "dteam", "role"):
            path = server.tree / name
            path.mkdir()
            peers.give(path)
        return server

    return start


def may(server, environment, *words):
    return run([XRDFS, f"localhost:{server.port}", *words], **environment).status == 0


def attributes_in(proxy):
    """Returns the extension with the attributes of a proxy, as a line of a configuration of OpenSSL."""
    lines = subprocess.run(["openssl", "asn1parse", "-in", proxy], capture_output=True, text=True, check=True).stdout.splitlines()
    [at] = [number for number, line in enumerate(lines) if line.endswith(f":{ATTRIBUTES}")]
    value = next(line for line in lines[at:] if "[HEX DUMP]:" in line)
    return f"{ATTRIBUTES}=DER:{value.split(':')[-1]}"


def is_member(server, environment):
    return may(server, environment, "ls", "/dteam")


def rights(server, environment):
    """What a client may do: list a directory of its organization, and create directories in those of a group and of a role."""
    made = [may(server, environment, "mkdir", f"/{name}/{os.urandom(4).hex()}") for name in ("prod", "role", "dteam")]
    return is_member(server, environment), *made


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_groups_and_roles_have_rights(site, start, kind):
    server = start(kind, "-vomsat:extract", "-vomsfun:libXrdVoms.so")
    member = site.client(site.proxy_with("member", *ROLES))
    assert rights(server, member) == (True, True, True, False)
    guest = site.client(site.proxy_with("guest", ROLES[0]))
    assert rights(server, guest) == (True, False, False, False)
    stranger = site.client(site.proxy("plain"))
    assert rights(server, stranger) == (False, False, False, False)


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_selected_groups(site, start, kind):
    server = start(kind, "-vomsat:extract", "-vomsfun:libXrdVoms.so", "-vomsfunparms:grpopt=usefirst")
    member = site.client(site.proxy_with("member", *ROLES))
    assert rights(server, member) == (True, False, False, False)


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_members_only(site, start, kind):
    server = start(kind, "-vomsat:require", "-vomsfun:libXrdVoms.so", "-vomsfunparms:vos=dteam")
    assert rights(server, site.client(site.proxy_with("member", ROLES[0])))[0]
    for environment in (site.client(site.proxy("plain")),
                        site.client(site.proxy_with("other", "/other/Role=NULL", organization="other"))):
        assert run([XRDFS, f"localhost:{server.port}", "query", "config", "version"], **environment).status != 0


# Users and groups by the organization, and the names that rules give rights to.
ORGANIZATION_NAMES = {
    "vo2usr=*&vo2grp=g-%s": "g-dteam",
    "valido=other,dteam&vo2usr=u-%s": "u-dteam",
}


@pytest.mark.parametrize("parameters", ORGANIZATION_NAMES)
@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_names_by_the_organization(site, start, kind, parameters):
    server = start(kind, "-vomsat:extract", "-vomsfun:libXrdVoms.so", "-authzfun:libXrdSecgsiAUTHZVO.so",
                   f"-authzfunparms:{parameters}", rules="g g-dteam /prod a\nu u-dteam /dteam a\n")
    # The real server takes the list of one organization per group as a name, so it has one group here.
    groups = ROLES if kind is peers.Ours else ROLES[:1]
    member = site.client(site.proxy_with("member", *groups))
    named = {"g-dteam": "prod", "u-dteam": "dteam"}
    for name, directory in named.items():
        made = may(server, member, "mkdir", f"/{directory}/{os.urandom(4).hex()}")
        assert made is (name == ORGANIZATION_NAMES[parameters]), (name, server.output())


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_other_organizations_are_refused_by_name(site, start, kind):
    server = start(kind, "-vomsat:extract", "-vomsfun:libXrdVoms.so", "-authzfun:libXrdSecgsiAUTHZVO.so",
                   "-authzfunparms:valido=other&vo2usr=*")
    for environment in (site.client(site.proxy("plain")), site.client(site.proxy_with("member", ROLES[0]))):
        assert not may(server, environment, *ANY_CLIENT), server.output()


def test_attributes_that_do_not_count(site, start):
    server = start(peers.Ours, "-vomsat:extract")
    forger = site.issue("forger", "/O=Grid/CN=Forger")
    other = site.issue("other", "/O=Grid/CN=Other")
    site.list(f"/O=Grid/CN={HOST}\n/O=Grid/CN=Authority\n", organization="mixed")
    for name, proxy in {
        "of another signer": site.proxy_with("forged", ROLES[0], signer=forger),
        "past": site.proxy_with("past", ROLES[0], pastac="3:00", vomslife="1"),
        "of an unknown organization": site.proxy_with("unknown", "/unknown", organization="unknown"),
        "of a group of another organization": site.proxy_with("mixed", ROLES[0], organization="mixed"),
    }.items():
        assert may(server, site.client(proxy), *ANY_CLIENT) and not is_member(server, site.client(proxy)), name
    # The attributes of a member, in another proxy of the same user and in one of another user.
    attributes = attributes_in(site.proxy_with("member", ROLES[0]))
    assert is_member(server, site.client(site.proxy("again", extension=attributes)))
    stolen = site.client(site.proxy("stolen", of=other, extension=attributes))
    assert may(server, stolen, *ANY_CLIENT) and not is_member(server, stolen)
    # What the operator changes counts after a reload.
    member = site.client(site.directory / "member.proxy")
    assert is_member(server, member)
    site.list(f"/O=Grid/CN={HOST}\n/O=Grid/CN=Another\n")
    assert is_member(server, member)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: not is_member(server, member))


def test_users_of_groups(site, start):
    users = site.directory / "voms-map"
    users.write_text('"/dteam/prod/Role=production/Capability=NULL" prod\n"/dteam/*" member\n')
    server = start(peers.Ours, "-vomsat:extract", more=f"voms.mapfile {users}\n")
    for name, groups in {"member": ROLES[:1], "prod": ROLES[1:]}.items():
        run([XRDFS, f"localhost:{server.port}", "query", "config", "version"], **site.client(site.proxy_with(name, *groups))).ok()
        wait_until(lambda: f"login as {name} by gsi" in server.output())
    who = scalla("auth", "whoami", f"root://localhost:{server.port}/", **site.client(site.directory / "prod.proxy")).ok()
    assert re.search(r"prod", who.out)


def test_faults_stop_the_start(site):
    def fails(*options, more="", place=site.signers):
        settings = peers.SETTINGS + site.settings(*options) + more
        return peers.refused_start(peers.Ours(settings=settings, variables={"X509_VOMS_DIR": str(place)}))

    assert "X509_VOMS_DIR" in fails("-vomsat:1", place="/nonexistent/vomsdir")
    users = site.directory / "voms-map"
    users.write_text("/dteam member\n")
    assert "line 1: the expression is not in quotes" in fails("-vomsat:1", more=f"voms.mapfile {users}\n")


def test_proxies_are_described_as_by_the_real_program(site):
    proxy = site.proxy_with("member", *ROLES)
    pattern = r"^VOMS attributes: .*$"
    theirs, ours = (re.findall(pattern, run([program, "info", "-file", proxy], **site.client()).all, re.M)
                    for program in ("xrdgsiproxy", peers.link("xrdgsiproxy")))
    assert ours == theirs and len(ours) == 2
    assert json.loads(scalla("auth", "proxy", "info", "--json", "--file", proxy).ok().out)["groups"] == list(ROLES)
    plain = site.proxy("plain")
    assert "VOMS" not in run([peers.link("xrdgsiproxy"), "info", "-file", plain]).all


# What the members of the groups in `ROLES` and others may do as destinations of third-party copies.
COPY_RULES = {
    "allow vo dteam": (True, False),
    "allow vo dteam group /dteam/prod": (True, False),
    "allow vo dteam group /dteam/test": (False, False),
    "allow vo other": (False, False),
    "allow vo other allow dn /O=Grid/CN=robot": (True, True),
}


@pytest.mark.parametrize("rules", COPY_RULES)
def test_destinations_are_admitted_by_their_organization(site, begin, rules):
    """The destinations are real servers, whose copy program has a proxy. The name of the user does not count."""
    robot = site.issue("robot", "/O=Grid/CN=robot")
    proxies = [site.proxy_with("robot-member", *ROLES, of=robot), site.proxy("robot-plain", of=robot)]
    protocols = site.settings("-crl:0", "-vomsat:extract", "-vomsfun:libXrdVoms.so")
    source = peers.Ours(settings=f"{peers.SETTINGS}{protocols}ofs.tpc ttl 60 120 {rules}\n")
    source.variables.update(X509_VOMS_DIR=str(site.signers), X509_CERT_DIR=str(site.certificates))
    begin(source)
    peers.place(source.tree / "file", b"content")
    client = site.client(site.proxy("arranges"))
    for proxy, is_admitted in zip(proxies, COPY_RULES[rules]):
        credentials = site.client(peers.give(proxy), SCALLA_GSI_WEAK_DH="1")
        target = begin(peers.Theirs(settings=f"ofs.tpc logok pgm {peers.real('xrdcp')} --server\n", variables=credentials))
        result = run([XRDCP, "-N", "-f", "--tpc", "only", f"root://localhost:{source.port}//file", f"root://127.0.0.1:{target.port}//copy"],
                     **client)
        assert (result.status == 0) is is_admitted, f"{proxy.name}: {result.all}"
        if is_admitted:
            assert (target.tree / "copy").read_bytes() == b"content"
        else:
            assert "dest not authorized for tpc" in result.all
