"""Logins by tokens (`ztn`): the real clients at our server, our client at ours and at the real one."""

import json
import re
import ssl
import struct
import time

import pytest

import peers
import raw
from certificates import new_authority
from codes import Exit
from issuers import AUDIENCE, Issuer, place_rules_and_files
from tools import XRDCP, XRDFS, run, scalla, wait_until

RULES = "u alice /mapped lr\nu * /public lr\n"

DIRECTORIES = ("protected/sub", "mapped", "public")


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


def issuers(server, issuer, more=""):
    """Writes the issuer file of a server."""
    text = f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /protected\n{more}"
    if server.kind != peers.Theirs.kind:
        peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
        text += f"jwks_file = {server.work}/keys\n"
    peers.place(server.work / "issuers", text.encode())


def prepared(kind, issuer, authority, more="", protocols="sec.protocol ztn"):
    """Returns a server with logins by tokens that is not started yet."""
    server = kind(settings="")
    server.settings = (f"xrootd.seclib libXrdSec.so\n{protocols}\n{authority.settings()}ofs.authorize\n"
                       f"ofs.authlib ++ libXrdAccSciTokens.so config={server.work}/issuers\nacc.authdb {server.work}/authdb\n"
                       "acc.audit deny grant\nxrootd.log login\n")
    issuers(server, issuer, more)
    place_rules_and_files(server, issuer, RULES, DIRECTORIES)
    return server


@pytest.fixture(scope="module")
def ours(issuer, authority):
    with prepared(peers.Ours, issuer, authority) as server:
        yield server


def client(program, server, authority, token, *arguments, scheme="roots", **variables):
    """Runs a client with a token. `{url}` in its arguments is the address of the server."""
    url = f"{scheme}://localhost:{server.port}"
    variables = {"X509_CERT_DIR": str(authority.directory), "XDG_RUNTIME_DIR": "/nonexistent", **variables}
    if token:
        variables["BEARER_TOKEN"] = token
    return run([program, *(str(argument).replace("{url}", url) for argument in arguments)], **variables)


def xrdfs(server, authority, token, *arguments, **how):
    return client(XRDFS, server, authority, token, "{url}", *arguments, **how)


class Session(raw.Connection):
    """An encrypted session of a client that logs in with a token."""

    def __init__(self, server, token, credentials=None):
        super().__init__(server, login=False)
        # Flags: the client supports TLS and wants it.
        self.send(raw.HANDSHAKE + raw.request(0, raw.PROTOCOL, struct.pack(">iBB", 0x520, 0x0f, 3)))
        self.receive(16)
        self.frame()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)
        self.offers = self.login()[16:]
        text = token.encode()
        sent = credentials or b"ztn\0\0T\0\0" + struct.pack(">H", len(text) + 1) + text + b"\0\0\0"
        self.ask(raw.AUTH, bytes(12) + b"ztn\0", sent)

    def outcome(self, path):
        try:
            self.stat(path)
            return "ok"
        except raw.Failed as failed:
            return failed.code


def login_error(server, token, credentials=None):
    with pytest.raises(raw.Failed) as failed:
        Session(server, token, credentials).close_socket()
    assert not token or token not in failed.value.text
    return failed.value.code


def outcome(done):
    codes = re.findall(r"\[(3\d\d\d)\]", done.all)
    return codes or ("ok" if done.status == 0 else f"status {done.status}: {done.all}")


def is_refused(done):
    return done.status != 0 and ("Auth failed" in done.all or "authentication" in done.all)


def test_logins_have_the_rights_of_their_scopes(ours, authority, issuer, tmp_path):
    token = issuer.token(scope="storage.read:/sub storage.create:/sub")
    stat = lambda path, *more: outcome(xrdfs(ours, authority, token, "stat", f"{path}{''.join(more)}"))
    assert stat("/protected/sub/f") == "ok"
    assert stat("/protected/f") == ["3010"]
    assert stat("/public/f") == "ok" and stat("/mapped/f") == ["3010"]
    copy = lambda *arguments: outcome(client(XRDCP, ours, authority, token, "-f", *arguments))
    assert copy("{url}//protected/sub/f", tmp_path / "down") == "ok"
    assert (tmp_path / "down").read_bytes() == b"content"
    (tmp_path / "up").write_bytes(b"new")
    assert copy(tmp_path / "up", "{url}//protected/sub/new") == "ok"
    assert (ours.tree / "protected/sub/new").read_bytes() == b"new"
    assert copy(tmp_path / "up", "{url}//protected/new") == ["3010"]
    # The token of a request counts instead of that of the login.
    own = issuer.token(scope="storage.read:/f")
    assert stat("/protected/f", f"?authz=Bearer%20{own}") == "ok"
    assert stat("/protected/sub/f", f"?authz=Bearer%20{own}") == ["3010"]
    wait_until(lambda: " login by ztn" in ours.output())
    wait_until(lambda: re.search(r"grant ztn \*@\S+ stat /protected/sub/f \(token of alice", ours.output()))
    assert not any(part in ours.output() for secret in (token, own) for part in secret.split("."))


def test_check_explains_where_a_login_differs_from_a_request(authority, issuer):
    more = "map_subject = true\nauthorization_strategy = capability group mapping\n"
    with prepared(peers.Ours, issuer, authority, more, "sec.protocol ztn -maxsz 2k") as server:
        config = server.work / "scalla.cfg"
        check = lambda token, path, *words: scalla("auth", "check", token, path, "read", "--config", config, *words)
        token = issuer.token(scope="storage.read:/sub")
        # The rules see the name of a client that logged in.
        denied = check(token, "/mapped/f").fails(Exit.FAILED, "denied: the bearer read /mapped/f")
        assert "after a login with it (ztn), as alice, it is allowed" in denied.all
        assert outcome(xrdfs(server, authority, token, "stat", "/mapped/f")) == "ok"
        assert "ztn" not in check(token, "/protected/sub/f").ok().all
        login = json.loads(check(token, "/protected/sub/f", "--json").ok().out)["login"]
        assert login == {"accepted": True, "name": "alice", "allowed": True}
        # A token that is too long for a login can be sent with requests.
        long = issuer.token(scope="storage.read:/sub", wlcg_groups=["/" + "g" * 20] * 100)
        assert len(long) > 2048
        allowed = check(long, "/protected/sub/f").ok()
        assert "a login with it (ztn) is refused: the token is longer than -maxsz allows" in allowed.out
        assert login_error(server, long) == 3030
        assert not json.loads(check(long, "/protected/sub/f", "--json").ok().out)["login"]["accepted"]


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_our_client_at_both_servers(kind, authority, issuer, tmp_path):
    token = issuer.token(scope="storage.read:/sub")
    with prepared(kind, issuer, authority) as server:
        command = lambda *arguments, token=token, **how: client(peers.program(), server, authority, token, *arguments, **how)
        assert command("cat", "{url}//protected/sub/f").ok().out == "content"
        assert command("cat", "{url}//protected/f").status != 0
        # The server asks for TLS before the login.
        assert command("cat", "{url}//protected/sub/f", scheme="root").ok().out == "content"
        assert command("cat", "{url}//protected/sub/f", token=issuer.token(seconds=-1)).status != 0
        place = tmp_path / "token"
        place.write_text(f"{token}\n")
        place.chmod(0o600)
        assert command("cat", f"{{url}}//protected/sub/f?xrd.ztn={place}", token=None).ok().out == "content"


def test_tokens_that_must_be_refused(ours, authority, issuer, tmp_path):
    other = Issuer(tmp_path, issuer.url)
    past, later = int(time.time()) - 1, int(time.time()) + 500
    refused = (other.token(), issuer.token(seconds=-1), issuer.token(exp=None), issuer.token(nbf=later), issuer.token(aud=None),
               issuer.token(aud="https://x"), issuer.token(iss="https://other.example.org"), issuer.token(iss=f"{issuer.url}/"),
               issuer.token(exp=past), issuer.token(header={"alg": "none"}), issuer.token(header={"alg": "HS256"}),
               issuer.token(header={"kid": "k2"}), "abc", "a.b.c")
    for token in refused:
        assert is_refused(xrdfs(ours, authority, token, "stat", "/public/f")), token
    assert is_refused(xrdfs(ours, authority, None, "stat", "/public/f"))
    log = ours.output()
    assert "token verification failed" in log
    assert not any(part in log for token in refused for part in token.split(".") if len(part) > 8)


def test_a_token_that_is_too_long_is_refused(authority, issuer):
    with prepared(peers.Ours, issuer, authority, protocols="sec.protocol ztn -maxsz 900") as server:
        short, long = issuer.token(), issuer.token(x="y" * 600)
        assert len(short) < 900 < len(long)
        with Session(server, short) as session:
            assert session.offers == b"&P=ztn,0:900:" and session.outcome("/public/f") == "ok"
        assert login_error(server, long) == 3030
        assert login_error(server, "a" * 60_000) == 3030
        # The real client does not send it.
        assert xrdfs(server, authority, long, "stat", "/public/f").status != 0
        assert outcome(xrdfs(server, authority, short, "stat", "/public/f")) == "ok"


def test_malformed_credentials_are_refused(ours, issuer):
    token = issuer.token().encode()
    head = lambda version, kind, length: b"ztn\0" + bytes([version]) + kind + b"\0\0" + struct.pack(">H", length)
    for sent in (head(1, b"T", len(token) + 1) + token + b"\0", head(0, b"S", len(token) + 1) + token + b"\0", head(0, b"T", 0xffff) + token + b"\0",
                 head(0, b"T", len(token)) + token, head(0, b"T", 1) + b"\0", head(0, b"T", 0) + b"\0\0", b"ztn\0" + token, b"ztn\0"):
        assert login_error(ours, "", sent) == 3030


def test_no_login_without_encryption(ours, authority, issuer):
    token = issuer.token(scope="storage.read:/")
    # A client that supports TLS encrypts its login, whatever its URL says.
    assert outcome(xrdfs(ours, authority, token, "stat", "/protected/f", scheme="root")) == "ok"
    # One that does not is refused, because the list of protocols would be empty.
    with raw.Connection(ours, login=False) as connection, pytest.raises(raw.Failed) as failed:
        connection.hello()
        connection.login()
    assert failed.value.code == 3028


def test_other_clients_keep_the_other_protocols(authority, issuer):
    with prepared(peers.Ours, issuer, authority, protocols="sec.protocol ztn\nsec.protocol unix") as server:
        stat = lambda token, path, **how: outcome(xrdfs(server, authority, token, "stat", path, **how))
        assert stat(issuer.token(scope="storage.read:/"), "/protected/f") == "ok"
        assert stat(None, "/public/f") == "ok"
        assert stat(None, "/protected/f") == ["3010"]
        # A refused token is followed by the next protocol.
        assert stat(issuer.token(seconds=-1), "/public/f") == "ok"
        wait_until(lambda: "by unix" in server.output() and "by ztn" in server.output())


def test_the_rights_of_a_login_end_with_its_token(ours, issuer):
    """One session, which asks before and after the expiry."""
    # On a busy machine a token can expire before the session has begun; then a longer one is used.
    for seconds in (4, 16, 64):
        expires = int(time.time()) + seconds
        try:
            session = Session(ours, issuer.token(exp=expires, scope="storage.read:/"))
        except raw.Failed:
            assert time.time() >= expires
            continue
        with session:
            before = session.outcome("/protected/f")
            handle = session.open("/protected/f") if before == "ok" else None
            if time.time() >= expires:
                continue
            assert before == "ok"
            wait_until(lambda: time.time() > expires, seconds=seconds + 30)
            assert session.outcome("/protected/f") == 3010
            assert session.outcome("/public/f") == "ok", "the session stays"
            assert session.read(handle, 0, 7) == b"content", "files that are open stay open"
            return
    raise AssertionError("each token expired before its session had begun")


def test_names_end_with_their_issuer(authority, issuer):
    with prepared(peers.Ours, issuer, authority, more="map_subject = true\n") as server, \
            Session(server, issuer.token(scope="storage.read:/")) as session:
        reload = lambda: scalla("admin", "--admin-path", server.work / "admin", "reload").ok()
        outcomes = lambda: [session.outcome(path) for path in ("/mapped/f", "/protected/f", "/public/f")]
        wait_until(lambda: "login as alice by ztn" in server.output())
        assert outcomes() == ["ok", "ok", "ok"]
        issuers(server, issuer)
        reload()
        assert outcomes() == [3010, "ok", "ok"], "the issuer names nobody"
        issuers(server, issuer, "map_subject = true\n")
        text = (server.work / "issuers").read_bytes()
        peers.place(server.work / "issuers", text.replace(issuer.url.encode(), b"https://other.example.org"))
        reload()
        assert outcomes() == [3010, 3010, "ok"], "the issuer is removed"


@pytest.mark.parametrize("missing, message", [
    ("xrd.tls ", "sec.protocol ztn: tokens are sent over encrypted connections only, and xrd.tls is missing; add xrd.tls"),
    ("ofs.authlib", "sec.protocol ztn: no issuer of tokens is trusted; add ofs.authorize and ofs.authlib"),
])
def test_a_server_without_encryption_or_issuers_does_not_start(authority, issuer, missing, message):
    server = prepared(peers.Ours, issuer, authority)
    try:
        lines = server.settings.splitlines(keepends=True)
        server.settings = "".join(line for line in lines if not line.startswith(missing))
        with pytest.raises(RuntimeError, match=re.escape(message)):
            server.start()
    finally:
        server.remove()
