"""Logins with grid certificates (`gsi`): the real clients at our server, and our client at the real
server, with an authority that the tests make."""

import json
import os
import re
import subprocess

import pytest

import grid
import peers
import raw
from tools import XRDCP, XRDFS, pattern, run, scalla, wait_until

CONTENT = pattern(300_000)


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy("plain")


@pytest.fixture
def at_theirs(begin):
    """Starts a real server with security."""
    return lambda lines: begin(peers.Theirs(settings=lines))


def at_ours(serve, site, *options, more=""):
    return serve(settings=peers.SETTINGS + site.settings(*options) + more)


def url(server, path="/"):
    return f"root://localhost:{server.port}/{path}"


def use_by_real_client(server, directory, environment):
    source, target = directory / "up", directory / "down"
    source.write_bytes(CONTENT)
    run([XRDCP, "-f", source, url(server, "/f"), ], **environment).ok()
    run([XRDCP, "-f", url(server, "/f"), target], **environment).ok()
    assert target.read_bytes() == CONTENT
    run([XRDFS, f"localhost:{server.port}", "stat", "/f"], **environment).ok()


def use_by_our_client(server, directory, environment):
    source = directory / "up"
    source.write_bytes(CONTENT)
    scalla("cp", "--force", source, url(server, "/g"), **environment).ok()
    assert scalla("cat", url(server, "/g"), **environment).ok().raw == CONTENT


def names(server):
    """Returns the names with which clients have logged in."""
    return wait_until(lambda: re.findall(r"login as (.+?) by gsi", server.output()))


# The real client at our server

@pytest.mark.parametrize("options", [
    [],
    ["-cipher:aes-256-cbc"],
    ["-cipher:aes-128-cbc"],
    ["-md:sha512:sha256", "-defaulthash"],
    ["-ca:2", "-crl:0"],
])
def test_real_client_with_a_proxy(serve, site, proxy, tmp_path, options):
    server = at_ours(serve, site, *options)
    use_by_real_client(server, tmp_path, site.client(proxy))
    hashed = grid.openssl("x509", "-noout", "-subject_hash", "-in", site.user.certificate).strip()
    assert set(names(server)) == {f"{hashed}.0"}


def test_real_client_with_a_proxy_of_a_proxy(serve, site, proxy, tmp_path):
    third = site.proxy("third", of=site.proxy("second", of=proxy, length=3), length=0)
    server = at_ours(serve, site)
    use_by_real_client(server, tmp_path, site.client(third))


def test_real_client_signs_requests(serve, site, proxy, tmp_path):
    server = at_ours(serve, site, more="sec.level all pedantic\n")
    use_by_real_client(server, tmp_path, site.client(proxy))


def test_grid_map(serve, own_site, tmp_path):
    site = own_site
    (site.directory / "grid-mapfile").write_text(f'"{site.user.subject}" alice,bob\n')
    proxy = site.proxy("mapped")
    server = at_ours(serve, site, "-gmapopt:usemap")
    use_by_real_client(server, tmp_path, site.client(proxy))
    assert set(names(server)) == {"alice"}
    other = site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))
    assert run([XRDFS, f"localhost:{server.port}", "ls", "/"], **site.client(other)).status != 0
    wait_until(lambda: "is not in the grid map" in server.output())
    by_subject = at_ours(serve, site, "-gmapopt:11")
    run([XRDFS, f"localhost:{by_subject.port}", "ls", "/"], **site.client(other)).ok()
    assert names(by_subject) == ["/O=Grid/CN=Other"]


def test_the_environment_names_the_grid_map(serve, own_site):
    site = own_site
    named = site.directory / "named"
    named.write_text(f'"{site.user.subject}" alice\n')
    lines = site.settings("-gmapopt:usemap").replace(f"-gridmap:{site.directory}/grid-mapfile", "")
    server = serve(settings=peers.SETTINGS + lines, variables={"GRIDMAP": str(named)})
    run([XRDFS, f"localhost:{server.port}", "ls", "/"], **site.client(site.proxy("mapped"))).ok()
    other = site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))
    assert run([XRDFS, f"localhost:{server.port}", "ls", "/"], **site.client(other)).status != 0


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_a_file_of_names_counts_before_the_grid_map(begin, own_site, tmp_path, kind):
    site = own_site
    ann, ben = (site.issue(name, f"/O=Grid/CN={name}") for name in ("ann", "ben"))
    (site.directory / "grid-mapfile").write_text(f'"{ann.subject}" ann-map\n"{ben.subject}" ben-map\n')
    (site.directory / "names").write_text("/CN=ann$ ann-file\n")
    (site.directory / "rules").write_text("u ann-file /ann a\nu ben-map /ben a\n")
    settings = site.settings("-crl:0", "-gmapopt:usemap", "-gmapfun:libXrdSecgsiGMAPDN.so",
                             f"-gmapfunparms:{site.directory}/names")
    settings += f"ofs.authorize\nacc.authdb {site.directory}/rules\n"
    server = begin(kind(settings=(peers.SETTINGS if kind is peers.Ours else "") + settings))
    for name in ("ann", "ben"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
    for pair, own in ((ann, "ann"), (ben, "ben")):
        proxy = site.proxy(f"proxy-{own}", of=pair)
        for name in ("ann", "ben"):
            made = run([XRDFS, f"localhost:{server.port}", "mkdir", f"/{name}/{own}"], **site.client(proxy))
            assert (made.status == 0) is (name == own), (own, name, server.output())


def refused(server, environment, *reasons):
    """Both clients are refused, and the log has the reason."""
    assert run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).status != 0
    text = scalla("ls", url(server), **environment)
    assert text.status != 0
    wait_until(lambda: any(reason in server.output() or reason in text.all for reason in reasons))


def test_revoked_certificates(serve, own_site):
    site = own_site
    revoked = site.issue("revoked", "/O=Grid/CN=Revoked")
    proxy, other = site.proxy("revoked", of=revoked), site.proxy("plain")
    site.revoke(revoked)
    for level in ("try", "use", "require"):
        server = at_ours(serve, site, f"-crl:{level}")
        run([XRDFS, f"localhost:{server.port}", "ls", "/"], **site.client(other)).ok()
        refused(server, site.client(proxy), "revoked")


def test_proxies_with_fewer_rights(serve, site, proxy):
    limited = site.proxy("limited", policy=grid.LIMITED)
    below = site.proxy("below-limited", of=limited, length=0)
    server = at_ours(serve, site)
    refused(server, site.client(site.proxy("past", days=-1)), "expired")
    # Limited proxies, and all below them, may only read.
    for environment in (site.client(limited), site.client(below)):
        peers.place(server.tree / "limited", CONTENT)
        assert scalla("cat", url(server, "/limited"), **environment).ok().raw == CONTENT
        run([XRDFS, f"localhost:{server.port}", "ls", "/"], **environment).ok()
        for words in (["rm", "/limited"], ["mkdir", "/d"], ["mv", "/limited", "/other"], ["truncate", "/limited", "1"]):
            failed = run([XRDFS, f"localhost:{server.port}", *words], **environment)
            assert failed.status != 0 and "may only read" in failed.all, (words, failed)
        source = site.directory / "new-file"
        source.write_bytes(b"x")
        assert run([XRDCP, "-f", source, url(server, "/limited")], **environment).status != 0
        assert (server.tree / "limited").read_bytes() == CONTENT and not (server.tree / "d").exists()
    strict = at_ours(serve, site, more="gsi.limited refuse\n")
    refused(strict, site.client(limited), "gsi.limited")
    refused(strict, site.client(below), "gsi.limited")
    full = at_ours(serve, site, more="gsi.limited full\n")
    run([XRDFS, f"localhost:{full.port}", "mkdir", "/d"], **site.client(limited)).ok()
    strong = at_ours(serve, site, more="gsi.minrsa 3072\n")
    refused(strong, site.client(proxy), "3072")


def test_nothing_secret_is_logged(serve, site, proxy, tmp_path):
    server = at_ours(serve, site, "-showdn:1", more="sec.trace all\nxrootd.trace all\nsec.level all pedantic\n")
    use_by_real_client(server, tmp_path, site.client(proxy))
    shown = scalla("ls", url(server), **site.client(proxy, XRD_LOGLEVEL="Dump", XrdSecDEBUG="3")).ok().all
    wait_until(lambda: site.user.subject in server.output())
    for file in (proxy, site.host.key):
        key = file.read_text().split("PRIVATE KEY-----\n")[1].split("-----END")[0].split("\n")
        for line in filter(None, key):
            assert line not in server.output() and line not in shown


def test_certificates_of_strangers(serve, site):
    with grid.new_site(name="Stranger") as stranger:
        proxy = stranger.proxy("plain")
        server = at_ours(serve, site)
        # The authorities of the client name both, so it sends its certificate.
        for name in site.certificates.glob("*.0"):
            (stranger.certificates / name.name).write_bytes(name.read_bytes())
        refused(server, stranger.client(proxy), "unknown CA")


# Our client. The group of the key agreement of a real server is smaller than our client accepts
# unless it is told.

WEAK = {"SCALLA_GSI_WEAK_DH": "1"}


@pytest.mark.skipif(peers.real_release() >= 6, reason="servers of XRootD 6 have a large group")
def test_our_client_leaves_servers_with_a_small_group(at_theirs, site, proxy):
    server = at_theirs(site.settings("-crl:0", "-gmapopt:0"))
    scalla("ls", url(server), **site.client(proxy)).fails(1, "too weak: 512 bits", "SCALLA_GSI_WEAK_DH=1")


@pytest.mark.parametrize("level", ["none", "pedantic"])
def test_our_client_at_the_real_server(at_theirs, site, proxy, tmp_path, level):
    server = at_theirs(site.settings("-crl:0", "-gmapopt:0") + f"sec.level all {level}\n")
    use_by_our_client(server, tmp_path, site.client(proxy, **WEAK))


def test_our_client_at_the_real_server_with_other_ciphers(at_theirs, site, proxy, tmp_path):
    server = at_theirs(site.settings("-crl:0", "-gmapopt:0", "-cipher:aes-256-cbc:aes-128-cbc", "-md:sha512:sha256"))
    use_by_our_client(server, tmp_path, site.client(proxy, **WEAK))


def test_our_client_makes_a_proxy(at_theirs, serve, site, tmp_path):
    pair = dict(X509_USER_CERT=str(site.user.certificate), X509_USER_KEY=str(site.user.key))
    theirs = at_theirs(site.settings("-crl:0", "-gmapopt:0"))
    use_by_our_client(theirs, tmp_path, site.client(**pair, **WEAK))
    ours = at_ours(serve, site)
    use_by_our_client(ours, tmp_path, site.client(**pair))
    use_by_our_client(ours, tmp_path, site.client(XrdSecGSICREATEPROXY="0", **pair))


@pytest.mark.parametrize("more", ["", "sec.signdata on\n"])
def test_our_client_at_our_server(serve, site, proxy, tmp_path, more):
    server = at_ours(serve, site, more=f"sec.level all pedantic\n{more}")
    use_by_our_client(server, tmp_path, site.client(proxy))
    # The URL of the user names the proxy.
    scalla("ls", f"{url(server)}?xrd.gsiusrpxy={proxy}", **site.client()).ok()


def test_our_client_says_what_is_wrong(serve, site, proxy):
    server = at_ours(serve, site)
    old = site.proxy("old", days=-1)

    def listing(where, **environment):
        return scalla("ls", where, **environment)

    listing(url(server), **site.client(old, HOME="/nonexistent")).fails(1, "the proxy expired 1 days ago", "scalla auth proxy init")
    missing = listing(url(server), **site.client(HOME="/nonexistent"))
    missing.fails(1, "there is no valid proxy", "scalla auth proxy init")
    # The name in the URL counts.
    address = listing(f"root://127.0.0.1:{server.port}/", **site.client(proxy))
    address.fails(1, "the certificate of the server is for localhost", "not for 127.0.0.1")
    accepted = site.client(proxy, XrdSecGSISRVNAMES="localhost")
    listing(f"root://127.0.0.1:{server.port}/", **accepted).ok()
    unknown = {**site.client(proxy), "X509_CERT_DIR": "/usr/share"}
    listing(url(server), **unknown).fails(1, "X509_CERT_DIR")


def test_settings_that_are_not_in_force_prevent_the_start(site):
    for option in ("-vomsfun:libOther.so", "-gmapfun:libX.so", "-crl:try,updt", "-exppxy:/x/proxy", "-trustdns:1"):
        assert f"'{option}'" in peers.refused_start(peers.Ours(settings=peers.SETTINGS + site.settings(option))), option


# Proxies

def xrdgsiproxy(program, *words, **environment):
    return run([program, *words], X509_USER_PROXY="", **environment)


def fields(result):
    """The lines of a description, without the time and the random serial number."""
    lines = [line.split(":", 1) for line in result.ok().err.splitlines() if ":" in line]
    found = {label.strip(): value.strip() for label, value in lines}
    assert re.fullmatch(r"\d+h:\d+m:\d+s", found.pop("time left"))
    found["subject"] = re.sub(r"/CN=\d+$", "/CN=N", found["subject"])
    return found


def test_proxies_of_both_programs(serve, site, tmp_path):
    ours, theirs = peers.link("xrdgsiproxy"), peers.real("xrdgsiproxy")
    pair = ("-cert", site.user.certificate, "-key", site.user.key, "-certdir", site.certificates)
    made = {}
    for program in (ours, theirs):
        made[program] = tmp_path / f"proxy-{len(made)}"
        options = ("-f", made[program], "-bits", 3072, "-valid", "2:00", "-path-length", 2)
        first = fields(xrdgsiproxy(program, "init", *pair, *options))
        assert (made[program].stat().st_mode & 0o777) == 0o600
        for reader in (ours, theirs):
            assert fields(xrdgsiproxy(reader, "info", "-f", made[program])) == first, (program, reader)
            assert xrdgsiproxy(reader, "info", "-e", "-valid", "1:30", "-f", made[program]).status == 0
            assert xrdgsiproxy(reader, "info", "-e", "-valid", "3:00", "-f", made[program]).status == 1
            assert xrdgsiproxy(reader, "info", "-f", tmp_path / "none").fails(1, "not found")
    server = at_ours(serve, site)
    use_by_real_client(server, tmp_path, site.client(made[ours]))
    use_by_our_client(server, tmp_path, site.client(made[ours]))
    for program in (ours, theirs):
        assert xrdgsiproxy(program, "destroy", "-f", made[program]).status == 0
        assert not made[program].exists()
        xrdgsiproxy(program, "destroy", "-f", made[program]).fails(1, "not found")


def test_our_proxy_command(serve, site, tmp_path):
    file = tmp_path / "proxy"
    environment = dict(X509_USER_PROXY=str(file), X509_USER_CERT=str(site.user.certificate), X509_USER_KEY=str(site.user.key))
    made = scalla("auth", "proxy", "init", "--valid", "1:00", **environment).ok()
    assert f"issuer      : {site.user.subject}" in made.out
    shown = json.loads(scalla("auth", "proxy", "info", "--json", **environment).ok().out)
    assert shown["bits"] == 2048 and 3500 < shown["seconds_left"] <= 3600 and shown["path_length"] == 0
    use_by_our_client(at_ours(serve, site), tmp_path, site.client(file))
    scalla("auth", "proxy", "init", "--bits", "1024", **environment).fails(1, "at least 2048 bits")
    os.chmod(file, 0o644)
    scalla("auth", "proxy", "info", **environment).fails(1, "allow others to read the key")
    scalla("auth", "proxy", "destroy", **environment).ok()
    scalla("auth", "proxy", "info", **environment).fails(1, "scalla auth proxy init")


# Delegation

def test_our_client_delegates_by_a_signature(at_theirs, serve, own_site, tmp_path):
    site = own_site
    proxy = site.proxy("long", length=5)
    exported = site.directory / "exported"
    exported.mkdir()
    peers.give(exported)
    server = at_theirs(site.settings("-crl:0", "-gmapopt:0", "-dlgpxy:request", f"-exppxy:{exported}/proxy"))
    use_by_our_client(server, tmp_path, site.client(proxy, **WEAK))
    assert not list(exported.iterdir()), "nothing is delegated without the wish of the user"
    use_by_our_client(server, tmp_path, site.client(proxy, XrdSecGSIDELEGPROXY="1", **WEAK))
    found = wait_until(lambda: list(exported.iterdir()))
    (delegated,) = found
    text = grid.openssl("x509", "-in", delegated, "-noout", "-subject", "-issuer", "-nameopt", "compat")
    subject = grid.Pair(proxy, proxy).subject
    assert re.search(rf"subject=\s*{re.escape(subject)}/CN=\d+\n", text) and text.rstrip().endswith(subject), text
    # The chain is valid, and its key is that of the server.
    copy = site.directory / "copied.proxy"
    copy.write_bytes(delegated.read_bytes())
    copy.chmod(0o600)
    use_by_our_client(at_ours(serve, site), tmp_path, site.client(copy))
    # A proxy that allows no proxies below it is not delegated.
    last = site.proxy("last", length=0)
    use_by_our_client(server, tmp_path, site.client(last, XrdSecGSIDELEGPROXY="1", **WEAK))


class Shell:
    """A client that stays logged in."""

    def __init__(self, program, server, environment):
        self.process = subprocess.Popen([program, f"localhost:{server.port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=peers.environment(**environment))
        self.process.stdin.write(b"stat /\n")
        self.process.stdin.flush()
        # The first line of the answer, after the login.
        self.answer = self.process.stdout.readline()

    def end(self):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.wait(60)
        return self.answer + rest


SHELLS = {"theirs": XRDFS, "ours": peers.link("xrdfs")}


@pytest.fixture
def exports(own_site):
    """A directory in which a server writes proxies."""
    directory = own_site.directory / "exports"
    directory.mkdir()
    return peers.give(directory)


@pytest.mark.parametrize("client", SHELLS)
def test_our_server_gets_a_proxy(at_theirs, serve, own_site, exports, tmp_path, client):
    """The client signs a proxy. A file has it as long as the session, and other servers accept it."""
    site = own_site
    proxy = site.proxy("long", length=3)
    hashed = grid.openssl("x509", "-noout", "-subject_hash", "-in", site.user.certificate).strip()
    server = at_ours(serve, site, "-dlgpxy:request", f"-exppxy:{exports}/<host>-<user>", more="sec.level all pedantic\n")
    shell = Shell(SHELLS[client], server, site.client(proxy, XrdSecGSIDELEGPROXY="1"))
    (delegated,) = wait_until(lambda: [path for path in exports.iterdir() if path.name.endswith(hashed)])
    assert (delegated.stat().st_mode & 0o7777) == 0o600
    text = grid.openssl("x509", "-in", delegated, "-noout", "-subject", "-issuer", "-nameopt", "compat")
    subject = grid.Pair(proxy, proxy).subject
    assert re.search(rf"subject=\s*{re.escape(subject)}/CN=\d+\n", text) and text.rstrip().endswith(subject), text
    own_key = proxy.read_text().split("PRIVATE KEY-----\n")[1].split("-----END")[0]
    assert own_key not in delegated.read_text()
    copy = site.directory / "copied.proxy"
    copy.write_bytes(delegated.read_bytes())
    copy.chmod(0o600)
    shell.end()
    wait_until(lambda: not list(exports.iterdir()))
    theirs = at_theirs(site.settings("-crl:0", "-gmapopt:0"))
    use_by_real_client(theirs, tmp_path, site.client(copy))
    if "sha1" in grid.openssl("x509", "-in", copy, "-noout", "-text"):
        # The client has signed it in its own session. Elsewhere it is a certificate as any other.
        refused(server, site.client(copy), "its signature is not of SHA-2")
    else:
        use_by_our_client(server, tmp_path, site.client(copy))


@pytest.mark.parametrize("client", SHELLS)
def test_proxies_of_a_killed_server_are_removed_by_the_next_one(serve, own_site, exports, client):
    """Only those that it has written: not a file of another server, and not what somebody has put in their place."""
    site = own_site
    servers = [at_ours(serve, site, "-dlgpxy:request", f"-exppxy:{exports}/<user>-{number}") for number in range(2)]
    shells, own = [], {}
    for name in ("ann", "ben", "cat", "dan"):
        pair = site.issue(name, f"/O=Grid/CN={name}")
        hashed = grid.openssl("x509", "-noout", "-subject_hash", "-in", pair.certificate).strip()
        own[name] = exports / f"{hashed}-0"
        proxy = site.proxy(f"proxy-{name}", of=pair, length=3)
        for server in servers if name == "ann" else servers[:1]:
            shells.append(Shell(SHELLS[client], server, site.client(proxy, XrdSecGSIDELEGPROXY="1")))
    other = exports / own["ann"].name.replace("-0", "-1")
    wait_until(lambda: sorted(exports.iterdir()) == sorted([*own.values(), other]))
    servers[0].kill()
    for shell in shells:
        shell.process.kill()
    # A copy, and a link to a file.
    content = own["ben"].read_bytes()
    own["ben"].unlink()
    peers.place(own["ben"], content)
    precious = peers.place(exports / "precious", b"precious")
    own["cat"].unlink()
    own["cat"].symlink_to(precious)
    servers[0].start()
    wait_until(lambda: not own["ann"].exists() and not own["dan"].exists())
    assert own["ben"].read_bytes() == content and own["cat"].is_symlink() and precious.read_bytes() == b"precious"
    wait_until(lambda: servers[0].output().count("an earlier process has left these credentials") == 2)
    # The other server has lost its client, not its process, and removes the file itself.
    wait_until(lambda: not other.exists())


def test_an_orderly_end_removes_proxies_of_sessions_that_last(serve, own_site, exports):
    site = own_site
    server = at_ours(serve, site, "-dlgpxy:request", f"-exppxy:{exports}/<user>", more="scalla.drain 1s\n")
    shell = Shell(XRDFS, server, site.client(site.proxy("long", length=3), XrdSecGSIDELEGPROXY="1"))
    wait_until(lambda: list(exports.iterdir()))
    server.stop()
    assert not list(exports.iterdir()), "it is gone when the process is"
    shell.process.kill()


@pytest.mark.parametrize("client", SHELLS)
def test_nothing_is_delegated_without_the_wish_of_the_user(serve, own_site, exports, client):
    site = own_site
    proxy, last = site.proxy("long", length=3), site.proxy("last", length=0)
    server = at_ours(serve, site, "-dlgpxy:request", f"-exppxy:{exports}/<user>", more="sec.trace all\n")
    for environment in (site.client(proxy, XrdSecGSIDELEGPROXY="0"), site.client(proxy, XrdSecGSIDELEGPROXY="2"),
                        site.client(last, XrdSecGSIDELEGPROXY="1")):
        shell = Shell(SHELLS[client], server, environment)
        assert shell.answer.strip(), server.output()
        assert not list(exports.iterdir())
        shell.end()
    wait_until(lambda: "allows no more proxies below it (path length)" in server.output())


# So few that a busy machine computes all key agreements before the time limit of the first login.
HALF_OPEN = 200
# Upper bound for a connection in the middle of a login: an idle one, and the state of the key agreement.
HALF_OPEN_BYTES = 48 * 1024


def first_credentials(site):
    """The recorded first message of a client, with an authority of this site."""
    recorded = json.loads((peers.REPOSITORY / "vectors/security/gsi.json").read_text())["connections"][0]["frames"]
    frame = next(bytes.fromhex(frame["hex"]) for frame in recorded if frame.get("request") == "kXR_auth")
    authorities = b"5cdab576.0|606cb0fc.0"
    assert authorities in frame
    return frame[24:].replace(authorities, f"{site.hash}.0|{site.hash}.0".encode())


def test_half_open_logins_cost_little_and_end(serve, site, proxy):
    """Clients that never answer the second message of the server."""
    lines = site.settings().replace("* only gsi", "* only gsi unix")
    server = serve(settings=peers.SETTINGS + lines + "sec.protocol unix\n")
    (server.tree / "f").write_bytes(CONTENT)
    established = raw.Connection(server, timeout=90)
    memory, descriptors = server.memory(), server.descriptors()
    credentials = first_credentials(site)
    half_open = []
    try:
        for _ in range(HALF_OPEN):
            client = raw.Connection(server, timeout=90, authenticates=False)
            client.start(raw.AUTH, bytes(12) + b"gsi\0", credentials)
            half_open.append(client)
        assert all(client.frame().status == raw.AUTHMORE for client in half_open)
        assert server.descriptors() >= descriptors + HALF_OPEN
        assert server.memory() - memory < HALF_OPEN * HALF_OPEN_BYTES
        established.stat("/f")
        assert scalla("cat", url(server, "/f"), **site.client(proxy)).ok().raw == CONTENT
        # The time limit of a login ends them.
        for client in half_open:
            while client.socket.recv(4096):
                pass
    finally:
        for client in half_open:
            client.socket.close()
    established.stat("/f")
    wait_until(lambda: server.descriptors() <= descriptors + 5)
    assert scalla("cat", url(server, "/f"), **site.client(proxy)).ok().raw == CONTENT
