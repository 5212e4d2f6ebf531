"""Third-party copies with proxies that clients delegate by `gsi` (`ofs.tpc fcreds`): ours and the real
server as source and as destination, driven by the real and by our client.

The sources admit nobody without a certificate, so each copy proves that the destination has used the
proxy of the client."""

import itertools
import os
import re
import tempfile
from pathlib import Path

import pytest

import clusters
import peers
import tools
from codes import Exit
from tools import XRDCP, data, run, scalla, wait_until

SIZE = 3_000_000
WEAK = {"SCALLA_GSI_WEAK_DH": "1"}
PROGRAM = f" pgm {peers.real('xrdcp')} --server"
KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}
PAIRS = list(itertools.product(KINDS, repeat=2))


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy("long", length=5)


def settings(kind, site, copies):
    """The lines of a server. A real one asks for proxies by an option of its own."""
    if kind == "ours":
        return peers.SETTINGS + site.settings() + f"ofs.tpc logok {copies}\n"
    options = "-crl:0", "-gmapopt:0", "-dlgpxy:request", "-exppxy:=creds"
    return peers.SETTINGS + site.settings(*options) + f"ofs.tpc logok {copies}{PROGRAM}\n"


@pytest.fixture
def started(site, begin):
    """Starts servers: `started(kind, copies)`."""
    def start(kind, copies="", lines=None, **variables):
        variables = {"X509_CERT_DIR": str(site.certificates), **WEAK, **variables}
        return begin(KINDS[kind](settings=lines or settings(kind, site, copies), variables=variables))

    return start


@pytest.fixture(scope="module")
def servers(site):
    made = {}
    variables = {"X509_CERT_DIR": str(site.certificates), **WEAK}
    try:
        for kind, (role, copies) in itertools.product(KINDS, {"source": "", "target": "fcreds gsi =X509_USER_PROXY"}.items()):
            made[kind, role] = KINDS[kind](settings=settings(kind, site, copies), variables=variables).start()
        yield made
    finally:
        for server in made.values():
            server.remove()


def copy(program, source, target, *mode, **environment):
    words = f"{source.url('/file')}", f"{target.url('/copy')}"
    if program == "scalla":
        return scalla("cp", "--force", "--tpc", *mode, *words, **environment)
    path = XRDCP if program == "theirs" else peers.link("xrdcp")
    return run([path, "-N", "-f", "--tpc", *mode, *words], **environment)


COMMANDS = [("theirs", "delegate", "only"), ("theirs", "delegate", "first"), ("ours", "delegate", "only"), ("scalla", "delegate")]


@pytest.mark.parametrize("source,target", PAIRS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_destination_reads_as_the_client(servers, site, proxy, source, target, command):
    source, target = servers[source, "source"], servers[target, "target"]
    peers.place(source.tree / "file", data(SIZE))
    result = copy(command[0], source, target, *command[1:], **site.client(proxy, **WEAK))
    if command[0] == "theirs" and source.kind == "ours" and peers.real_release() < 6:
        # This client signs with SHA-1, which our sources do not accept.
        assert result.status != 0
        wait_until(lambda: "its signature is not of SHA-2" in source.output())
        if target.kind == "ours":
            assert not (target.tree / "copy").exists()
        return
    result.ok()
    assert (target.tree / "copy").read_bytes() == data(SIZE)
    (target.tree / "copy").unlink()


def test_servers_declare_it(servers, started, site, proxy):
    environment = site.client(proxy)
    for kind in KINDS:
        answer = run([tools.XRDFS, servers[kind, "target"].host, "query", "config", "tpcdlg"], **environment).ok()
        assert answer.out.split() == ["gsi"]
    other = started("ours")
    assert run([tools.XRDFS, other.host, "query", "config", "tpcdlg"], **environment).ok().out.split() == ["tpcdlg"]
    peers.place(servers["ours", "source"].tree / "file", data(10))
    refused = copy("scalla", servers["ours", "source"], other, "delegate", **environment)
    refused.fails(Exit.FAILED, "does not copy with delegated credentials")
    assert not (other.tree / "copy").exists()


def test_a_copy_without_credentials_fails(servers, site, proxy):
    """The client does not delegate, or its proxy allows no proxies below it."""
    source, target = servers["ours", "source"], servers["ours", "target"]
    peers.place(source.tree / "file", data(10))
    last = site.proxy("last", length=0)
    for command, environment in (
        (("theirs", "only"), site.client(proxy)),
        (("ours", "only"), site.client(proxy)),
        (("scalla", "delegate"), site.client(last)),
    ):
        failed = copy(*command[:1], source, target, *command[1:], **environment)
        assert failed.status != 0 and "no delegated credentials for tpc" in failed.all, failed.all
        assert not (target.tree / "copy").exists()


def test_credentials_can_be_optional(started, site, proxy):
    """With `?`, a client that delegates nothing arranges the copy with a grant of the source."""
    open_lines = peers.SETTINGS + site.settings().replace("* only gsi", "* none") + "ofs.tpc ttl 90 120\n"
    source, target = started("ours", lines=open_lines), started("ours", "fcreds ?gsi =X509_USER_PROXY")
    peers.place(source.tree / "file", data(SIZE))
    for command in (("ours", "only"), ("scalla", "only")):
        copy(command[0], source, target, *command[1:], **site.client(proxy)).ok()
        assert (target.tree / "copy").read_bytes() == data(SIZE)
        (target.tree / "copy").unlink()
    # This source would admit the destination instead of the client.
    refused = copy("scalla", source, target, "delegate", **site.client(proxy))
    assert refused.status != 0 and "the source asks for no credentials; arrange a grant" in refused.all
    assert not (target.tree / "copy").exists()


def test_a_server_that_does_not_use_the_proxy_gets_none(started, site, proxy):
    """The server tries to store each proxy that it gets, where it cannot."""
    source = started("ours")
    options = "-exppxy:/nonexistent/x509up_u<uid>"
    target = started("ours", lines=peers.SETTINGS + site.settings(options) + "ofs.tpc ttl 90 120\n")
    peers.place(source.tree / "file", data(10))
    environment = site.client(proxy)
    copy("ours", source, target, "delegate", "first", **environment)
    refused = copy("scalla", source, target, "delegate", **environment)
    refused.fails(Exit.FAILED, "does not copy with delegated credentials")
    assert "cannot be stored" not in target.output()
    run([tools.XRDFS, target.host, "stat", "/"], XrdSecGSIDELEGPROXY="1", **environment)
    wait_until(lambda: "cannot be stored" in target.output())


def test_the_server_behind_a_manager_gets_the_proxy_and_the_manager_does_not(started, site, proxy):
    source = started("ours")
    peers.place(source.tree / "file", data(SIZE))
    # The manager asks for proxies, and tries to store each one where it cannot. Nodes log in by unix.
    security = site.settings("{}").replace("sec.protbind * only gsi", "sec.protocol unix")
    settings = (f"if named man\n{security.format('-dlgpxy:request -exppxy:/nonexistent/x509up_u<uid>')}fi\n"
                f"if named s1 s2\n{security.format('')}ofs.tpc logok fcreds gsi =X509_USER_PROXY\nfi\n")
    environment = site.client(proxy, XrdSecGSISRVNAMES="*")
    with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
        # The servers log in to the manager meanwhile.
        wait_until(lambda: run([tools.XRDFS, cluster.top.host, "mkdir", "-p", "/d"], **environment).status == 0, seconds=120)
        copy("scalla", source, cluster.top, "delegate", **environment).ok()
        copied = [server for server in cluster.servers if (server.tree / "copy").exists()]
        assert len(copied) == 1 and (copied[0].tree / "copy").read_bytes() == data(SIZE)
        assert " by gsi" in cluster.top.output() and "cannot be stored" not in cluster.top.output()
        # The manager would take one.
        run([tools.XRDFS, cluster.top.host, "stat", "/d"], **{**environment, "XrdSecGSIDELEGPROXY": "1"})
        wait_until(lambda: "cannot be stored" in cluster.top.output())


PROGRAM_TEXT = """#!/bin/sh
{{ stat -c '%a %U' "$X509_USER_PROXY"; env | grep -c '^XrdSecGSIUSERPROXY='; echo "$X509_USER_PROXY"; }} > {report}
exec {xrdcp} --server "$@"
"""


@pytest.mark.parametrize("source", KINDS)
def test_a_program_finds_a_private_file(servers, started, site, proxy, source):
    """The file has the proxy as long as the copy, and the program finds no other one."""
    source = servers[source, "source"]
    peers.place(source.tree / "file", data(SIZE))
    places = peers.give(Path(tempfile.mkdtemp(prefix="scalla-program-", dir="/var/tmp")))
    os.chmod(places, 0o755)
    report, program = places / "report", places / "program"
    program.write_text(PROGRAM_TEXT.format(report=report, xrdcp=peers.real("xrdcp")))
    program.chmod(0o755)
    credentials = places / "credentials"
    target = started("ours", f"fcreds gsi =X509_USER_PROXY fcpath {credentials} pgm {program}", XrdSecGSIUSERPROXY="/nonexistent")
    copy("ours", source, target, "delegate", "only", **site.client(proxy, **WEAK)).ok()
    assert (target.tree / "copy").read_bytes() == data(SIZE)
    mode, others, path = report.read_text().splitlines()
    assert (mode.split()[0], others) == ("600", "0") and Path(path).parent == credentials
    assert (credentials.stat().st_mode & 0o777) == 0o700
    wait_until(lambda: not list(credentials.iterdir()))
    for path in places.rglob("*"):
        assert path.is_dir() or "PRIVATE KEY" not in path.read_text()


def test_nothing_secret_is_logged(servers, site, proxy):
    for server in servers.values():
        for line in re.findall(r"-----BEGIN.*|PRIVATE KEY", server.output()):
            pytest.fail(line)
