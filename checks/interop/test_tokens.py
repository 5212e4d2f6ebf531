"""Authorization by tokens: the same issuer file, rules and tokens for the real server with
libXrdAccSciTokens.so and for ours, the same commands of the real clients on both."""

import json
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import peers
import raw
from codes import Exit
from issuers import AUDIENCE, Issuer, KeyServer, place_rules_and_files
from tools import scalla, wait_until, xrdcp, xrdfs

RULES = "u alice /mapped lr\ng /cms /group lr\nu * /public lr\n"

ISSUER_FILE = f"""\
[Global]
audience = {AUDIENCE}

[Issuer one]
issuer = {{url}}
base_path = /protected
"""

DIRECTORIES = ("protected/sub", "mapped", "group", "public")


def trees(kind, issuer, more="", fetches=False):
    server = kind(settings="ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config={work}/issuers\nacc.authdb {work}/authdb\nacc.audit deny grant\n")
    server.settings = server.settings.replace("{work}", str(server.work))
    text = ISSUER_FILE.format(url=issuer.url) + more
    if kind is not peers.Theirs and not fetches:
        peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
        text += f"jwks_file = {server.work}/keys\n"
    peers.place(server.work / "issuers", text.encode())
    place_rules_and_files(server, issuer, RULES, DIRECTORIES)
    return server


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module", params=["", "map_subject = true\n", "default_user = alice\n"])
def both(issuer, request):
    with trees(peers.Theirs, issuer, request.param) as theirs, trees(peers.Linked, issuer, request.param) as ours:
        yield theirs, ours


def outcome(done):
    codes = re.findall(r"\[(3\d\d\d)\]", done.all)
    return codes or ("ok" if done.status == 0 else f"status {done.status}: {done.all}")


# No name is the begin of another, so comparing by component and by prefix gives the same.
READS = ("protected/f", "protected/sub/f", "mapped/f", "group/f", "public/f")

READERS = {
    "all": dict(scope="storage.read:/"),
    "below": dict(scope="storage.read:/sub"),
    "slash": dict(scope="storage.read:/sub/"),
    "scitokens": dict(scope="read:/", wlcg_ver=None, ver="scitoken:2.0"),
    "scitokens any": dict(scope="read:/", wlcg_ver=None, ver="scitoken:2.0", aud="ANY"),
    "scitokens 1": dict(scope="read:/", wlcg_ver=None),
    "no scope": dict(),
    "other service": dict(scope="openid compute.read:/"),
    "any": dict(scope="storage.read:/", aud="https://wlcg.cern.ch/jwt/v1/any"),
    "audiences": dict(scope="storage.read:/", aud=["https://x.example.org", AUDIENCE]),
}


def arguments(token):
    return f"authz=Bearer%20{token}"


# Scopes for changes and groups of tokens are tested with the recorded vectors, which are of a later
# version.
@pytest.mark.parametrize("name", READERS)
def test_tokens_have_equal_outcomes(both, issuer, name, tmp_path):
    token = issuer.token(**READERS[name])
    found = []
    for server in both:
        answers = {}
        for path in READS:
            answers[f"stat {path}"] = outcome(xrdfs(server, "stat", f"/{path}?{arguments(token)}"))
            answers[f"read {path}"] = outcome(xrdcp("-f", f"{server.url(f'/{path}')}?{arguments(token)}", tmp_path / "copy"))
        for path in ("protected", "protected/sub", "public"):
            answers[f"ls {path}"] = outcome(xrdfs(server, "ls", f"/{path}?{arguments(token)}"))
        found.append(answers)
    assert found[0] == found[1]


MAPS = {
    "subject": [dict(sub="bob", result="alice")],
    "other subject": [dict(sub="carol", result="alice")],
    "path": [dict(path="/f", result="alice")],
    "other path": [dict(path="/x", result="alice")],
    "no condition": [dict(result="alice")],
}


@pytest.mark.parametrize("name", MAPS)
def test_map_files_have_equal_outcomes(issuer, name, tmp_path):
    # A token without a scope is not valid for the real server.
    token = issuer.token(sub="bob", scope="storage.read:/sub")
    found = []
    for kind in (peers.Theirs, peers.Linked):
        server = trees(kind, issuer)
        peers.place(server.work / "map", json.dumps(MAPS[name]).encode())
        with (server.work / "issuers").open("a") as file:
            file.write(f"name_mapfile = {server.work}/map\n")
        peers.place(server.work / "authdb", RULES.replace("/mapped lr", "/mapped lr /protected lr").encode())
        with server:
            read = {path: outcome(xrdcp("-f", f"{server.url(f'/{path}')}?{arguments(token)}", tmp_path / "copy")) for path in READS}
        found.append(read)
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def ours(issuer):
    with trees(peers.Ours, issuer) as server:
        yield server


def test_scopes_for_changes_with_real_clients(ours, issuer, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"new")
    create, modify = issuer.token(scope="storage.create:/sub"), issuer.token(scope="storage.modify:/sub")
    at = lambda path, token: f"/protected/{path}?{arguments(token)}"
    upload = lambda path, token, *options: outcome(xrdcp(*options, source, ours.url(at(path, token))))
    assert upload("sub/new", create) == "ok"
    assert upload("sub/new2", create, "-f") == "ok"
    assert upload("sub/deep/er/new", create, "-p") == "ok"
    assert upload("sub/f", create, "-f") == ["3010"], "a file that exists"
    assert (ours.tree / "protected/sub/f").read_bytes() == b"content"
    assert upload("outside", create) == ["3010"] and upload("subX", modify) == ["3010"]
    assert upload("sub/new", modify, "-f") == "ok"
    assert outcome(xrdfs(ours, "rm", at("sub/new", create))) == ["3010"]
    assert outcome(xrdfs(ours, "mv", at("sub/new", modify), at("sub/new3", modify))) == "ok"
    assert outcome(xrdfs(ours, "rm", at("sub/new3", modify))) == "ok"
    assert outcome(xrdfs(ours, "cat", at("sub/f", modify))) == ["3010"], "changes do not imply reading"
    groups = issuer.token(wlcg_groups=["/cms", "/cms/prod"])
    assert outcome(xrdfs(ours, "cat", f"/group/f?{arguments(groups)}")) == "ok"


def test_invalid_tokens_do_not_fall_back_to_the_rules(ours, issuer, tmp_path):
    other = Issuer(tmp_path, issuer.url)
    read = lambda token: outcome(xrdfs(ours, "cat", f"/public/f?{arguments(token)}"))
    assert outcome(xrdfs(ours, "cat", "/public/f")) == "ok"
    refused = (other.token(), issuer.token(seconds=-1), issuer.token(exp=None), issuer.token(aud="https://x"),
               issuer.token(header={"alg": "none"}), issuer.token(header={"kid": "k2"}))
    for token in refused:
        assert read(token) == ["3010"]
    # Credentials of other kinds and issuers count as none.
    stranger = issuer.token(iss="https://other.example.org")
    for token in ("abc", stranger):
        assert read(token) == "ok"
    log = ours.output()
    assert not any(part in log for token in (*refused, stranger) for part in token.split(".") if part) and "token: the token has expired" in log


def test_decisions_are_logged_without_the_token(ours, issuer):
    token = issuer.token(scope="storage.read:/sub")
    assert outcome(xrdfs(ours, "stat", f"/protected/sub/f?{arguments(token)}")) == "ok"
    line = rf"grant host \*@\S+ stat /protected/sub/f \(token of alice from {issuer.url}: storage.read:/sub\)"
    wait_until(lambda: re.search(line, ours.output()))
    assert not any(part in ours.output() for part in token.split("."))


def test_decisions_are_explained(ours, issuer):
    config = ours.work / "scalla.cfg"
    check = lambda token, *words, **how: scalla("auth", "check", token, *words, "--config", config, **how)
    token = issuer.token(scope="storage.read:/sub storage.create:/new")
    allowed = check(token, "/protected/sub/f", "read").ok()
    assert "the scope storage.read:/sub allows it on /protected/sub and below" in allowed.out
    assert f"{ours.work}/issuers:4: [Issuer one] accepts it: subject \"alice\"" in allowed.out
    assert "allowed: the bearer create /protected/new/x, unless the file exists" in check(token, "/protected/new/x", "create").ok().out
    public = check(token, "/public/f", "read").ok()
    assert "no scope of the token allows it, so the rules decide" in public.out and f"{ours.work}/authdb:3:5:" in public.out
    check(token, "/protected/f", "read").fails(Exit.FAILED, "denied", "no rule")
    check(issuer.token(seconds=-1), "/public/f", "read").fails(Exit.FAILED, "the token has expired")
    assert '"decided_by":"scope"' in check(token, "/protected/sub/f", "read", "--json").ok().out.replace(" ", "")
    assert not any(part in allowed.all + public.all for part in token.split("."))
    # From other places, as HTTP has it.
    place = ours.work / "token"
    for text in (token, f"  Bearer {token}\n", f"Authorization: Bearer {token}\n"):
        place.write_text(text)
        for named in (check(f"@{place}", "/protected/sub/f", "read"), check("-", "/protected/sub/f", "read", input=text.encode())):
            assert "the scope storage.read:/sub allows it" in named.ok().out
    assert "the scope storage.read:/sub allows it" in check(f"Bearer {token}", "/protected/sub/f", "read").ok().out
    check("-", "/protected/sub/f", "read", input=b"alice").fails(Exit.FAILED, "standard input contains no token")
    check(f"@{ours.work}/none", "/public/f", "read").fails(Exit.FAILED, "cannot open", "no such file")


def test_errors_of_the_issuer_file_have_lines(issuer, tmp_path):
    server = trees(peers.Ours, issuer)
    try:
        file = server.work / "issuers"
        peers.place(file, file.read_bytes() + b"authorization_strategy = any\n")
        with pytest.raises(RuntimeError, match=r"issuers:8: invalid authorization_strategy 'any'; allowed: any of: capability group mapping"):
            server.start()
        config = server.work / "scalla.cfg"
        scalla("config", "check", config).fails(Exit.FAILED, f"{file}:8:1: error: invalid authorization_strategy")
    finally:
        server.remove()


def test_map_rules_that_never_apply_are_found(issuer):
    server = trees(peers.Ours, issuer)
    try:
        rules = [{"result": "everybody"}, {"result": "alice", "sub": "alice"}]
        peers.place(server.work / "map", json.dumps(rules).encode())
        file = server.work / "issuers"
        peers.place(file, file.read_bytes() + f"name_mapfile = {server.work}/map\n".encode())
        with server:
            config = server.work / "scalla.cfg"
            found = scalla("config", "check", config)
            assert f"{file}:8:1: warning: {server.work}/map: rule 2 never applies, because rule 1 holds" in found.all
            peers.place(server.work / "map", json.dumps(rules[::-1]).encode())
            assert "never applies" not in scalla("config", "check", config).all
    finally:
        server.remove()


def test_issuers_are_renewed_by_a_reload(issuer):
    with trees(peers.Ours, issuer) as server:
        token = issuer.token(scope="storage.read:/")
        read = lambda: outcome(xrdfs(server, "cat", f"/mapped/f?{arguments(token)}"))
        file = server.work / "issuers"
        admin = ["admin", "--admin-path", server.work / "admin"]
        assert read() == ["3010"]
        text = file.read_bytes()
        peers.place(file, text.replace(b"/protected", b"/mapped"))
        scalla(*admin, "reload").ok()
        assert read() == "ok"
        peers.place(file, text + b"x = y\n")
        scalla(*admin, "reload").ok()
        assert read() == "ok", "the earlier issuers"
        assert "the present file is not in force" in scalla(*admin, "status").ok().out


@pytest.fixture
def key_server(tmp_path):
    server = KeyServer(tmp_path)
    yield server
    server.stop()


def fetching(key_server, issuer):
    """Returns a server that fetches the keys of the issuer."""
    server = trees(peers.Ours, issuer, fetches=True)
    trusted = server.work / "trusted.pem"
    peers.place(trusted, key_server.certificate.read_bytes())
    server.settings += f"setenv SSL_CERT_FILE = {trusted}\n"
    return server


@pytest.mark.parametrize("document", ["openid-configuration", "oauth-authorization-server"])
def test_keys_are_fetched_and_kept(key_server, tmp_path, document):
    issuer = Issuer(tmp_path, key_server.url)
    key_server.keys, key_server.document = issuer.keys, document
    with fetching(key_server, issuer) as server:
        token = issuer.token(scope="storage.read:/")
        read = lambda: outcome(xrdfs(server, "cat", f"/protected/f?{arguments(token)}"))
        wait_until(lambda: "1 keys of" in server.output())
        assert read() == "ok"
        check = lambda: scalla("auth", "check", token, "/protected/f", "read", "--config", server.work / "scalla.cfg",
                               SSL_CERT_FILE=str(key_server.certificate))
        assert "the scope storage.read:/ allows it" in check().ok().out
        # The issuer is gone; the keys are those of the run before.
        key_server.keys = None
        server.restart()
        assert read() == "ok"
        wait_until(lambda: "cannot be fetched" in server.output())
        assert read() == "ok"
        check().fails(Exit.FAILED, "cannot be fetched", "404")


def test_keys_are_fetched_from_servers_that_the_configuration_trusts(key_server, tmp_path):
    """The file of `xrd.tlsca` counts before that of the environment."""
    issuer = Issuer(tmp_path, key_server.url)
    key_server.keys = issuer.keys
    with trees(peers.Ours, issuer, "", fetches=True) as server:
        server.stop()
        trusted = server.work / "trusted.pem"
        peers.place(trusted, key_server.certificate.read_bytes())
        server.settings += f"xrd.tlsca certfile {trusted}\nsetenv SSL_CERT_FILE = /nonexistent\n"
        server.start()
        wait_until(lambda: "1 keys of" in server.output())
        token = issuer.token(scope="storage.read:/")
        assert outcome(xrdfs(server, "stat", f"/protected/f?{arguments(token)}")) == "ok"
        check = scalla("auth", "check", token, "/protected/f", "read", "--config", server.work / "scalla.cfg")
        assert "the scope storage.read:/ allows it" in check.ok().out


def test_an_issuer_that_does_not_answer_costs_only_its_tokens(key_server, tmp_path):
    issuer = Issuer(tmp_path, key_server.url)
    with fetching(key_server, issuer) as server:
        token = issuer.token(scope="storage.read:/")
        wait_until(lambda: "cannot be fetched" in server.output() and "404" in server.output())
        assert outcome(xrdfs(server, "cat", f"/protected/f?{arguments(token)}")) == ["3010"]
        wait_until(lambda: "token: the keys of the issuer are not known" in server.output())
        assert outcome(xrdfs(server, "cat", "/public/f")) == "ok"
        assert f"no keys of {key_server.url}" in scalla("admin", "--admin-path", server.work / "admin", "status").ok().out


def test_a_new_key_of_an_issuer_is_fetched_when_a_token_needs_it(key_server, tmp_path):
    issuer, later = (Issuer(tmp_path, key_server.url, kid) for kid in ("k1", "k2"))
    key_server.keys = issuer.keys
    with fetching(key_server, issuer) as server:
        wait_until(lambda: "1 keys of" in server.output())
        assert key_server.fetches() == 1
        read = lambda token: outcome(xrdfs(server, "cat", f"/protected/f?{arguments(token)}"))
        scope = dict(scope="storage.read:/")
        assert read(issuer.token(**scope)) == "ok" and key_server.fetches() == 1
        # Requests wait for the new key, and all of them for one fetch. Within its time limit, 4 s, no program is started.
        key_server.keys = {"keys": issuer.keys["keys"] + later.keys["keys"]}
        known, new = (f"/protected/f?{arguments(each.token(**scope))}" for each in (issuer, later))
        with ExitStack() as stack:
            clients = [stack.enter_context(raw.Connection(server)) for _ in range(9)]
            key_server.answers.clear()
            for client in clients[1:]:
                client.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), new.encode())
            wait_until(lambda: len(key_server.paths) == 3)
            assert clients[0].open(known), "tokens with known keys do not wait"
            key_server.answers.set()
            assert [client.answer().status for client in clients[1:]] == [raw.OK] * 8
        assert read(later.token(**scope)) == "ok"
        assert key_server.fetches() == 2
        # Invented keys cause no further fetch within a minute, also when they come in crowds.
        invented = issuer.token(header={"kid": "invented"}, **scope)
        with ThreadPoolExecutor(8) as clients:
            assert set(map(str, clients.map(read, [invented] * 40))) == {"['3010']"}
        wait_until(lambda: "token: the issuer has no such key" in server.output())
        assert key_server.fetches() == 2
        # The issuer is away, and the keys that were fetched stay in force.
        key_server.keys = None
        assert read(later.token(**scope)) == "ok" and read(issuer.token(**scope)) == "ok"


def test_tokens_with_unknown_keys_are_refused_at_once_while_the_issuer_is_away(key_server, tmp_path):
    issuer, later = (Issuer(tmp_path, key_server.url, kid) for kid in ("k1", "k2"))
    key_server.keys = issuer.keys
    with fetching(key_server, issuer) as server:
        wait_until(lambda: "1 keys of" in server.output())
        key_server.keys = None
        server.restart()
        wait_until(lambda: "cannot be fetched" in server.output())
        read = lambda token: outcome(xrdfs(server, "cat", f"/protected/f?{arguments(token)}"))
        # The issuer is asked once more for the token, but nothing waits for its answer.
        key_server.answers.clear()
        asked = len(key_server.paths)
        assert read(later.token(scope="storage.read:/")) == ["3010"]
        wait_until(lambda: len(key_server.paths) > asked)
        assert read(issuer.token(scope="storage.read:/")) == "ok"
        status = scalla("admin", "--admin-path", server.work / "admin", "status").ok().out
        assert re.search(rf"the keys of {key_server.url} are not renewed \(.*404", status)


def test_keys_are_not_fetched_from_an_untrusted_server(key_server, tmp_path, issuer):
    here = Issuer(tmp_path, key_server.url)
    key_server.keys = here.keys
    with trees(peers.Ours, here, fetches=True) as server:
        wait_until(lambda: "cannot be fetched" in server.output())
        assert outcome(xrdfs(server, "cat", f"/protected/f?{arguments(here.token(scope='storage.read:/'))}")) == ["3010"]
    assert key_server.paths == []
