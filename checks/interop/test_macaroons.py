"""Authorization by macaroons: the same macaroons and commands at the real server with
libXrdMacaroons.so and at ours, and what only ours decides."""

import base64
import json
import re
import ssl
import urllib.request

import pytest

import peers
from certificates import new_authority
from codes import Exit
from issuers import AUDIENCE, Issuer
from macaroons import SECRET, SITE, before, macaroon, mint, secret_text
from tools import XRDFS, run, scalla, wait_until, xrdcp, xrdfs

RULES = "u alice /rules lr\nu * /public lr\n"
DIRECTORIES = ("data/sub/deep", "data/other", "rules", "public")
FILES = ("data/f", "data/sub/f", "data/sub/deep/f", "data/other/f", "rules/f", "public/f")
SETTINGS = (f"ofs.authorize\nofs.authlib ++ libXrdMacaroons.so\nall.sitename {SITE}\n"
            "macaroons.secretkey {work}/secret\nacc.authdb {work}/authdb\nacc.audit deny grant\n")


def place_secret(server, content=None):
    peers.place(server.work / "secret", secret_text() if content is None else content).chmod(0o600)


def prepared(kind, settings=SETTINGS):
    """Returns a server with macaroons that is not started yet."""
    server = kind(settings="")
    server.settings = settings.replace("{work}", str(server.work))
    place_secret(server)
    peers.place(server.work / "authdb", RULES.encode())
    for name in DIRECTORIES:
        place = server.tree / name
        place.mkdir(parents=True)
        while place != server.tree:
            place = peers.give(place).parent
    for name in FILES:
        peers.place(server.tree / name, b"content")
    return server


@pytest.fixture(scope="module")
def both():
    with prepared(peers.Theirs) as theirs, prepared(peers.Linked) as ours:
        yield theirs, ours


@pytest.fixture(scope="module")
def ours():
    with prepared(peers.Ours, f"{SETTINGS}macaroons.trace all\n") as server:
        yield server


def outcome(done):
    codes = re.findall(r"\[(3\d\d\d)\]", done.all)
    return codes or ("ok" if done.status == 0 else f"status {done.status}: {done.all}")


def answers(server, token, tmp_path):
    """Returns the outcomes of commands with a token. They end with what changes files, and what they
    make is removed."""
    source = tmp_path / "source"
    source.write_bytes(b"new")
    at = lambda path: f"/{path}?authz=Bearer%20{token}"
    found = {}
    for path in ("data", "data/sub", "data/sub/f", "data/sub/deep/f", "data/other/f", "data/f", "rules/f"):
        found[f"stat {path}"] = outcome(xrdfs(server, "stat", at(path)))
    for path in ("data/sub/f", "data/sub/deep/f", "data/other/f", "data/f", "rules/f"):
        found[f"read {path}"] = outcome(xrdcp("-f", server.url(at(path)), tmp_path / "copy"))
    for path in ("data", "data/sub", "data/sub/deep"):
        found[f"ls {path}"] = outcome(xrdfs(server, "ls", at(path)))
    for path in ("data/sub/new", "data/new"):
        found[f"create {path}"] = outcome(xrdcp(source, server.url(at(path))))
        found[f"truncate {path}"] = outcome(xrdfs(server, "truncate", at(path), "1"))
        found[f"rm {path}"] = outcome(xrdfs(server, "rm", at(path)))
        (server.tree / path).unlink(missing_ok=True)
    for path in ("data/sub/d", "data/d"):
        found[f"mkdir {path}"] = outcome(xrdfs(server, "mkdir", at(path)))
        if (server.tree / path).is_dir():
            (server.tree / path).rmdir()
    found["chmod"] = outcome(xrdfs(server, "chmod", at("data/sub/f"), "rw-r--r--"))
    return found


# Without rules for these directories the caveats alone decide. No name of a directory is the begin of another one.
EQUAL = {
    "metadata": lambda: macaroon("READ_METADATA", "/data/sub"),
    "list": lambda: macaroon("LIST", "/data/sub"),
    "download": lambda: macaroon("DOWNLOAD", "/data/sub"),
    "upload": lambda: macaroon("UPLOAD", "/data/sub"),
    "manage": lambda: macaroon("MANAGE", "/data/sub"),
    "delete": lambda: macaroon("DELETE", "/data/sub"),
    "everything": lambda: macaroon("READ_METADATA,UPLOAD,DOWNLOAD,DELETE,MANAGE,UPDATE_METADATA,LIST", "/data"),
    "unknown activity": lambda: macaroon("LIST,FUTURE", "/data/sub"),
    "root": lambda: macaroon("DOWNLOAD,LIST", "/"),
    "unnamed": lambda: macaroon("DOWNLOAD", "/data/sub", name=None),
    "narrowed path": lambda: macaroon("DOWNLOAD,LIST", "/data", "path:/data/sub"),
    "wider path": lambda: macaroon("DOWNLOAD", "/data/sub", "path:/data"),
    "narrowed activity": lambda: macaroon("DOWNLOAD,LIST", "/data/sub", "activity:LIST"),
    "other activity": lambda: macaroon("DOWNLOAD", "/data/sub", "activity:LIST"),
    "earlier end": lambda: macaroon("DOWNLOAD", "/data/sub", before(60)),
    "ended": lambda: macaroon("DOWNLOAD", "/data/sub", seconds=-1),
    "ended by the holder": lambda: macaroon("DOWNLOAD", "/data/sub", before(-1)),
    "too long": lambda: macaroon("DOWNLOAD", "/data/sub", seconds=100_000),
    "unknown caveat": lambda: macaroon("DOWNLOAD", "/data/sub", "ip:192.0.2.1"),
    "other secret": lambda: macaroon("DOWNLOAD", "/data/sub", secret=b"x" * 64),
    "other signature": lambda: macaroon("DOWNLOAD", "/data/sub", signature=b"x" * 32),
    "other site": lambda: macaroon("DOWNLOAD", "/data/sub", location="Other-Site"),
    "no macaroon": lambda: "abc",
}


@pytest.mark.parametrize("name", EQUAL)
def test_macaroons_have_equal_outcomes(both, name, tmp_path):
    token = EQUAL[name]()
    theirs, ours = (answers(server, token, tmp_path) for server in both)
    assert theirs == ours


@pytest.mark.parametrize("value", ["passthrough", "allow", "deny"])
def test_requests_without_a_macaroon_have_equal_outcomes(value):
    own = macaroon("DOWNLOAD", "/data/sub")
    found = []
    for kind in (peers.Theirs, peers.Linked):
        with prepared(kind, f"{SETTINGS}macaroons.onmissing {value}\n") as server:
            paths = ("/public/f", "/data/f", "/data/f?authz=abc", "/public/f?authz=abc", f"/data/sub/f?authz={own}")
            found.append([outcome(xrdfs(server, "stat", path)) for path in paths])
    assert found[0] == found[1]


@pytest.mark.parametrize("lines", [
    f"ofs.authlib libXrdMacaroons.so\nall.sitename {SITE}",
    f"ofs.authlib ++ libXrdMacaroons.so\nmacaroons.sitename {SITE}",
    "ofs.authlib libXrdMacaroons.so libXrdAccSciTokens.so config={work}/issuers\nall.sitename " + SITE,
    "ofs.authlib ++ libXrdMacaroons.so\nofs.authlib ++ libXrdAccSciTokens.so config={work}/issuers\nall.sitename " + SITE,
    f"ofs.authlib ++ libXrdMacaroons.so\nall.sitename {SITE}\nmacaroons.maxduration 0",
    f"ofs.authlib ++ libXrdMacaroons.so\nall.sitename {SITE}\nmacaroons.maxduration -1",
    f"ofs.authlib ++ libXrdMacaroons.so\nall.sitename {SITE}\nmacaroons.maxduration 300",
])
def test_configurations_have_equal_outcomes(lines):
    tokens = [macaroon("DOWNLOAD", "/data/sub", seconds=seconds) for seconds in (120, 3600, 1_000_000)]
    issuers = f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = https://i.example.org\nbase_path = /protected\n"
    found = []
    for kind in (peers.Theirs, peers.Linked):
        # The rules of some of these configurations do not count, and ours does not start with both.
        authdb = "" if "so libXrdAcc" in lines else "acc.authdb {work}/authdb\n"
        server = prepared(kind, f"ofs.authorize\n{lines}\nmacaroons.secretkey {{work}}/secret\n{authdb}")
        server.settings += f"setenv XDG_CACHE_HOME = {server.work}/cache\n"
        peers.place(server.work / "issuers", issuers.encode())
        with server:
            paths = ["/public/f", "/data/sub/f", *(f"/data/sub/f?authz={token}" for token in tokens)]
            found.append([outcome(xrdfs(server, "stat", path)) for path in paths])
    assert found[0] == found[1]


def test_the_rules_do_not_allow_what_a_caveat_denies(ours):
    read = lambda path, token="": outcome(xrdfs(ours, "cat", f"{path}?authz={token}"))
    own = macaroon("DOWNLOAD", "/data/sub")
    assert read("/public/f") == "ok" and read("/public/f", "abc") == "ok"
    assert read("/data/sub/f", own) == "ok" and read("/public/f", own) == ["3010"]
    refused = (macaroon("DOWNLOAD", "/public", seconds=-1), macaroon("DOWNLOAD", "/public", secret=b"x" * 64),
               macaroon("DOWNLOAD", "/public", "name:root"), macaroon("DOWNLOAD", "/public", "path:/data"),
               mint("activity:DOWNLOAD", "path:/public"))
    assert all(read("/public/f", token) == ["3010"] for token in refused)
    other = macaroon("DOWNLOAD", "/data", location="Other-Site")
    assert read("/public/f", other) == "ok" and read("/data/f", other) == ["3010"]
    log = ours.output()
    assert "(macaroon: the macaroon has expired)" in log and "(macaroon: the signature of the macaroon is invalid)" in log
    assert re.search(r"grant host alice@\S+ read /data/sub/f \(macaroon 3a1f5f0c-\S+\)", log)
    assert re.search(r"deny host \*@\S+ read /public/f \(macaroon 3a1f5f0c-\S+: path:/data/sub\)", log)
    assert "nothing is allowed with a macaroon: the macaroon has more than one name caveat" in log
    secret = base64.b64encode(SECRET).decode()
    assert not any(text in log for text in (own, other, *refused, secret[:40], SECRET.hex()))


def test_the_three_layers_over_each_other(tmp_path):
    issuer = Issuer(tmp_path)
    settings = SETTINGS.replace("ofs.authlib", "ofs.authlib ++ libXrdAccSciTokens.so config={work}/issuers\nofs.authlib")
    server = prepared(peers.Ours, settings)
    peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
    peers.place(server.work / "issuers", (f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\n"
                                          f"base_path = /data/other\njwks_file = {server.work}/keys\n").encode())
    with server:
        read = lambda path, token="": outcome(xrdfs(server, "cat", f"{path}?authz={token}"))
        own, token = macaroon("DOWNLOAD", "/data/sub"), issuer.token(scope="storage.read:/")
        assert read("/data/sub/f", own) == "ok" and read("/data/other/f", own) == ["3010"] and read("/public/f", own) == ["3010"]
        assert read("/data/other/f", token) == "ok" and read("/data/sub/f", token) == ["3010"] and read("/public/f", token) == "ok"
        assert read("/public/f") == "ok" and read("/data/sub/f") == ["3010"]
        state = scalla("admin", "--admin-path", server.work / "admin", "status").ok().out
        assert f"macaroons of {SITE} with the secret in {server.work}/secret; 1 token issuers of" in state


def test_a_changed_secret_counts_after_a_reload():
    with prepared(peers.Ours) as server:
        read = lambda token: outcome(xrdfs(server, "cat", f"/data/sub/f?authz={token}"))
        admin = ["admin", "--admin-path", server.work / "admin"]
        old, new = macaroon("DOWNLOAD", "/data/sub"), macaroon("DOWNLOAD", "/data/sub", secret=b"y" * 40)
        assert read(old) == "ok" and read(new) == ["3010"]
        place_secret(server, secret_text(b"y" * 40))
        assert "the secret of macaroons" in scalla(*admin, "reload").ok().out
        assert read(old) == ["3010"] and read(new) == "ok"
        place_secret(server, b"broken!\n")
        assert "macaroons: the earlier secret stays in force" in scalla(*admin, "reload").ok().all
        assert read(new) == "ok"
        assert "the present file is not in force" in scalla(*admin, "status").ok().out


@pytest.mark.parametrize("content, mode, expected", [
    (secret_text(b"x" * 31), 0o600, "its secret has fewer than 32 bytes; make a secret with"),
    (b"not base64!\n", 0o600, "it is not base64"),
    (secret_text(), 0o644, "allow others to make macaroons; run chmod 600"),
    (secret_text(), 0o640, "allow others to make macaroons; run chmod 600"),
    (None, 0, "no such file or directory; make a secret with"),
])
def test_a_secret_that_is_not_usable_stops_the_start(content, mode, expected):
    server = prepared(peers.Ours)
    try:
        file = server.work / "secret"
        file.unlink()
        if content is not None:
            peers.place(file, content).chmod(mode)
        with pytest.raises(RuntimeError, match=re.escape(expected)) as failed:
            server.start()
        assert secret_text()[:40].decode() not in str(failed.value)
        scalla("config", "check", server.work / "scalla.cfg").fails(Exit.FAILED, "error: macaroons.secretkey:", expected)
    finally:
        server.remove()


def test_decisions_are_explained(ours):
    config = ours.work / "scalla.cfg"
    check = lambda token, *words, **how: scalla("auth", "check", token, *words, "--config", config, **how)
    own = macaroon("DOWNLOAD", "/data/sub")
    allowed = check(own, "/data/sub/f", "read").ok()
    assert "allowed: the bearer read /data/sub/f" in allowed.out and "its caveats allow it" in allowed.out
    assert f"{ours.work}/secret: the signature of the macaroon \"3a1f5f0c" in allowed.out and '"name:alice"' in allowed.out
    denied = check(own, "/public/f", "read").fails(Exit.FAILED, "denied", 'the caveat "path:/data/sub" does not allow it')
    check(own, "/data/sub/f", "delete").fails(Exit.FAILED, 'the caveat "activity:DOWNLOAD" does not allow it')
    upload = macaroon("UPLOAD", "/data/sub")
    assert "allowed: the bearer create /data/sub/new, unless the file exists" in check(upload, "/data/sub/new", "create").ok().out
    check(macaroon("DOWNLOAD", "/", seconds=-1), "/public/f", "read").fails(Exit.FAILED, "the macaroon has expired")
    check(macaroon("DOWNLOAD", "/", "ip:1"), "/public/f", "read").fails(Exit.FAILED, 'the caveat "ip:1" is not accepted: it is unknown')
    other = check(macaroon("DOWNLOAD", "/", location="Other"), "/public/f", "read").ok()
    assert "of another site" in other.out and f"{ours.work}/authdb:2:5:" in other.out
    assert '"decided_by":"macaroon"' in check(own, "/data/sub/f", "read", "--json").ok().out.replace(" ", "")
    assert "its caveats allow it" in check("-", "/data/sub/f", "read", input=f"Bearer {own}\n".encode()).ok().out
    cut = check(own[:-1], "/data/f", "read").fails(Exit.FAILED, "it counts as no credential: it is not a macaroon")
    assert not any(own[:-1] in text.all for text in (allowed, denied, cut, other))


def test_issued_macaroons_are_accepted_by_both(both, tmp_path):
    # The secret of another user must not be readable for this one, but root reads it.
    theirs, ours = both
    issue = lambda *words: scalla("auth", "macaroon", *words)
    by_file = ("--secretkey", ours.work / "secret", "--sitename", SITE)
    token = issue(*by_file, "--activity", "DOWNLOAD,LIST", "--path", "/data/sub", "--validity", "PT10M", "--name", "bob").ok().out.strip()
    for server in both:
        read = lambda path: outcome(xrdfs(server, "cat", f"{path}?authz={token}"))
        assert read("/data/sub/f") == "ok" and read("/data/f") == ["3010"]
        assert outcome(xrdfs(server, "rm", f"/data/sub/f?authz={token}")) == ["3010"]
    config = theirs.work / "xrootd.cfg"
    token = issue("--config", config, "--activity", "DOWNLOAD", "--path", "/data").ok().out.strip()
    assert [outcome(xrdfs(server, "cat", f"/data/f?authz={token}")) for server in both] == ["ok", "ok"]
    made = issue(*by_file, "--activity", "LIST", "--path", "/", "--json").ok()
    assert '"expires_in":3600' in made.out.replace(" ", "") and SECRET.hex() not in made.all
    for words, expected in (
        ((*by_file, "--activity", "READ", "--path", "/"), "allowed: READ_METADATA"),
        ((*by_file, "--activity", "LIST", "--path", "/a/../b"), "is not an absolute path"),
        ((*by_file, "--activity", "LIST", "--path", "/", "--validity", "P1D"), "not a validity"),
        ((*by_file, "--activity", "LIST", "--path", "/", "--validity", "0"), "not a validity"),
        (("--config", config, "--activity", "LIST", "--path", "/", "--validity", "2d"), "macaroons.maxduration allows at most 86400 s"),
        (("--activity", "LIST", "--path", "/"), "--config"),
    ):
        issue(*words).fails(Exit.USAGE, expected)
    issue("--secretkey", tmp_path / "none", "--sitename", SITE, "--activity", "LIST", "--path", "/").fails(Exit.FAILED, "make a secret with")


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


@pytest.mark.parametrize("kind", [peers.Theirs, peers.Ours])
def test_clients_log_in_with_macaroons(kind, authority):
    server = prepared(kind, f"xrootd.seclib libXrdSec.so\nsec.protocol ztn -tokenlib libXrdMacaroons.so\n{authority.settings()}{SETTINGS}")
    with server:
        def stat(path, token):
            variables = {"X509_CERT_DIR": str(authority.directory), "XDG_RUNTIME_DIR": "/nonexistent", "BEARER_TOKEN": token}
            return run([XRDFS, f"roots://localhost:{server.port}", "stat", path], **variables)
        own = macaroon("DOWNLOAD", "/data/sub")
        assert outcome(stat("/data/sub/f", own)) == "ok" and outcome(stat("/data/other/f", own)) == ["3010"]
        for token in (macaroon("DOWNLOAD", "/data", seconds=-1), macaroon("DOWNLOAD", "/data", secret=b"x" * 64)):
            assert stat("/data/f", token).status != 0
        if kind is peers.Ours:
            wait_until(lambda: "data/other" in server.output())
            assert own not in server.output()


def test_macaroons_that_the_real_server_issues_are_accepted(ours, authority):
    port = peers.free_port()
    http = f"xrd.protocol http:{port} libXrdHttp.so\nhttp.exthandler xrdmacaroons libXrdMacaroons.so\n"
    trusted = ssl.create_default_context(capath=authority.directory)

    def issue(path, **request):
        sent = urllib.request.Request(f"https://localhost:{port}{path}", json.dumps(request).encode(),
                                      {"Content-Type": "application/macaroon-request"})
        with urllib.request.urlopen(sent, timeout=60, context=trusted) as reply:
            return json.load(reply)["macaroon"]

    with prepared(peers.Theirs, SETTINGS + authority.settings() + http) as theirs:
        read, listing = issue("/public", caveats=["activity:DOWNLOAD"], validity="PT10M"), issue("/public", validity="PT10M")
        servers = (theirs, ours)
        found = [[outcome(xrdfs(server, *words, f"{path}?authz={token}")) for token in (read, listing)
                  for words, path in ((("cat",), "/public/f"), (("ls",), "/public"), (("cat",), "/data/f"), (("rm",), "/data/f"))]
                 for server in servers]
    assert found[1][0] == "ok" and found[1][4:] == ["ok", "ok", ["3010"], ["3010"]]
    # At ours the rules do not count for a listing that the first macaroon does not allow.
    assert found[1][1] == ["3010"] and found[0][:1] + found[0][2:] == found[1][:1] + found[1][2:]
