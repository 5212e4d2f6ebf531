"""Macaroons that our server issues over HTTP, by curl and plain sockets: used at ours over HTTP and the xroot
protocol and at the real server, narrowed by their holder, and never more than the client has."""

import contextlib
import http.client
import json
import ssl
import subprocess

import pytest

import peers
from certificates import new_authority
from issuers import AUDIENCE, Issuer
from macaroons import SECRET, SITE, before, caveats_of, macaroon, secret_text, with_caveat
from tools import wait_until, xrdcp, xrdfs

SECONDS = 30 * peers.SLOWNESS
RULES = "u * /public lr\ng /cms /public lr /rules/kept/ lr /rules a\n"
LAYERS = ("ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config={work}/issuers\nofs.authlib ++ libXrdMacaroons.so\n"
          f"all.sitename {SITE}\nmacaroons.secretkey {{work}}/secret\nacc.authdb {{work}}/authdb\nacc.audit deny grant\n"
          "macaroons.trace all\n")
HTTP = "xrd.protocol http *\nhttp.header2cgi Authorization authz\n"
HANDLER = "http.exthandler xrdmacaroons libXrdMacaroons.so\n"
JSON = ("Content-Type: application/macaroon-request",)
FORM = ("Content-Type: application/x-www-form-urlencoded",)
WANTED = {"caveats": ["activity:DOWNLOAD,LIST"], "validity": "PT10M"}


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


@contextlib.contextmanager
def running(kind, issuer, settings):
    server = kind(settings="")
    server.settings = (LAYERS + settings).replace("{work}", str(server.work))
    peers.place(server.work / "secret", secret_text()).chmod(0o600)
    peers.place(server.work / "authdb", RULES.encode())
    peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
    peers.place(server.work / "issuers", f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /data\n"
                                         f"jwks_file = {server.work}/keys\nmap_subject = True\n".encode())
    for name in ("data", "data/sub", "public", "rules", "rules/kept"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", b"content")
    with server:
        yield server


@pytest.fixture(scope="module")
def ours(authority, issuer):
    with running(peers.Ours, issuer, HTTP + HANDLER + authority.settings()) as server:
        server.authority = authority
        yield server


class Reply:
    """A reply as curl prints it."""

    def __init__(self, printed):
        head, _, body = printed.partition(b"\r\n\r\n")
        while head.split()[1] == b"100":
            head, _, body = body.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.body = body

    @property
    def json(self):
        assert self.headers["content-type"] == "application/json", self.body
        return json.loads(self.body)


def curl(server, path, *arguments, token=None, scheme="https"):
    """Returns the reply to a request of curl. A plain connection needs no certificate."""
    bearer = ["-H", f"Authorization: Bearer {token}"] if token else []
    trusted = ["--cacert", server.authority.file] if scheme == "https" else []
    done = subprocess.run(["curl", "-sSi", "--path-as-is", "--max-time", str(int(SECONDS)), *trusted, *bearer, *arguments,
                           f"{scheme}://localhost:{server.port}{path}"], capture_output=True, check=True)
    return Reply(done.stdout)


def ask(server, path, request, *, kind=JSON, **how):
    text = request if isinstance(request, str) else json.dumps(request)
    headers = [word for header in kind for word in ("-H", header)]
    return curl(server, path, "-X", "POST", *headers, "--data-binary", text, **how)


def granted(server, path, request, **how):
    reply = ask(server, path, request, **how)
    assert reply.status == 200, reply.body
    return reply.json


def refused(reply, status):
    """Checks the status and the form of an error."""
    assert reply.status == status, reply.body
    found = reply.json
    assert set(found) == {"error", "error_description"} and found["error_description"], found
    assert reply.headers["cache-control"] == "no-store"
    return found


def activities_of(text):
    """Returns the activities of a macaroon."""
    [found] = [caveat for caveat in caveats_of(text)[2] if caveat.startswith("activity:")]
    return found.removeprefix("activity:")


def codes(done):
    return "ok" if done.status == 0 else "denied" if "[3010]" in done.all else done.all


def test_a_macaroon_is_used_over_both_protocols_and_at_the_real_server(ours, issuer, tmp_path):
    token = issuer.token(scope="storage.read:/", seconds=10_000)
    made = granted(ours, "/data/sub", WANTED, token=token)
    text = made["macaroon"]
    assert made["expires_in"] == 600 and set(made) == {"macaroon", "expires_in"}
    site, identifier, caveats = caveats_of(text)
    assert site == SITE and len(identifier) == 36
    assert caveats[:3] == ["name:alice", "activity:DOWNLOAD,LIST", "path:/data/sub"] and len(caveats) == 4
    assert before(540) < caveats[3] <= before(600)
    # Over HTTP in the header and in the URL, and over the xroot protocol.
    assert curl(ours, "/data/sub/f", token=text).body == b"content"
    assert curl(ours, f"/data/sub/f?authz={text}").status == 200
    assert curl(ours, "/data/f", token=text).status == 403 and curl(ours, "/public/f", token=text).status == 403
    assert curl(ours, "/data/sub/f", "-X", "DELETE", token=text).status == 403
    at = lambda path, text: f"{path}?authz={text}"
    read = lambda server, path, text: codes(xrdfs(server, "cat", at(path, text)))
    with running(peers.Theirs, issuer, f"setenv XDG_CACHE_HOME = {tmp_path}\n") as theirs:
        for server in (ours, theirs):
            assert read(server, "/data/sub/f", text) == "ok" and read(server, "/data/f", text) == "denied"
            assert codes(xrdfs(server, "ls", at("/data/sub", text))) == "ok"
            assert codes(xrdfs(server, "rm", at("/data/sub/f", text))) == "denied"
            # Narrowed by its holder.
            assert read(server, "/data/sub/f", with_caveat(text, "activity:LIST")) == "denied"
            assert read(server, "/data/sub/f", with_caveat(text, "path:/data/sub/deeper")) == "denied"
            assert read(server, "/data/sub/f", with_caveat(text, before(-1))) == "denied"
            assert read(server, "/data/sub/f", with_caveat(text, before(60))) == "ok"
            assert read(server, "/data/sub/f", with_caveat(text, "path:/data")) == "ok"
            assert read(server, "/data/f", with_caveat(text, "path:/data")) == "denied"
            assert read(server, "/data/sub/f", text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]) == "denied"
    narrowed = with_caveat(text, "activity:LIST")
    assert curl(ours, "/data/sub/f", token=narrowed).status == 403
    assert curl(ours, "/data/sub/", token=narrowed).status == 200


def test_uploads_by_a_macaroon(ours, issuer, tmp_path):
    made = granted(ours, "/data/sub", {"validity": "PT10M"}, token=issuer.token(scope="storage.create:/sub"))["macaroon"]
    assert activities_of(made) == "READ_METADATA,UPLOAD"
    (tmp_path / "new").write_bytes(b"new")
    assert curl(ours, "/data/sub/put", "-T", tmp_path / "new", token=made).status == 201
    assert (ours.tree / "data/sub/put").read_bytes() == b"new"
    xrdcp(tmp_path / "new", ours.url(f"/data/sub/copied?authz={made}")).ok()
    assert curl(ours, "/data/put", "-T", tmp_path / "new", token=made).status == 403
    assert curl(ours, "/data/sub/f", "-T", tmp_path / "new", token=made).status >= 400
    assert (ours.tree / "data/sub/f").read_bytes() == b"content"


def test_nobody_passes_on_more_than_it_has(ours, issuer):
    read, none = issuer.token(scope="storage.read:/sub"), issuer.token(scope="openid", wlcg_groups=["/cms"])
    activities = lambda path, token, **more: activities_of(granted(ours, path, {"validity": "PT1H", **more}, token=token)["macaroon"])
    assert activities("/data/sub", read) == "READ_METADATA,DOWNLOAD,LIST"
    assert activities("/data/sub", read, caveats=["activity:DOWNLOAD,DELETE,MANAGE"]) == "DOWNLOAD"
    assert activities("/public", none) == "READ_METADATA,DOWNLOAD,LIST"
    # A rule gives less below, so the rest cannot be passed on for all.
    assert activities("/rules", none) == "READ_METADATA,DOWNLOAD,LIST"
    whole = "READ_METADATA,UPLOAD,DOWNLOAD,DELETE,MANAGE,UPDATE_METADATA,LIST"
    assert activities("/rules/other", none) == whole
    for path, wanted, token in (("/data", WANTED, read), ("/", WANTED, read), ("/other", WANTED, read), ("/data/sub", WANTED, none),
                                # What everybody may do at this server is not passed on.
                                ("/public", WANTED, issuer.token(scope="openid")),
                                ("/data/sub", {"caveats": ["activity:DELETE"], "validity": "PT1H"}, read)):
        assert refused(ask(ours, path, wanted, token=token), 403)["error"] == "access_denied"


def test_only_valid_tokens_get_macaroons(ours, issuer):
    reply = ask(ours, "/public", WANTED)
    assert refused(reply, 401)["error"] == "invalid_client" and reply.headers["www-authenticate"] == "Bearer"
    assert refused(ask(ours, "/public", WANTED, token="nonsense"), 401)
    own = granted(ours, "/data/sub", WANTED, token=issuer.token(scope="storage.read:/"))["macaroon"]
    for token in (own, with_caveat(own, before(-1)), macaroon("DOWNLOAD", "/", secret=b"x" * 64),
                  issuer.token(scope="storage.read:/", seconds=-60), issuer.token(scope="storage.read:/")[:-4] + "AAAA"):
        refused(ask(ours, "/public", WANTED, token=token), 403)
    # A macaroon of another site counts as no credential.
    refused(ask(ours, "/public", WANTED, token=macaroon("DOWNLOAD", "/", location="Other-Site")), 401)


def test_no_macaroon_ends_after_its_token_or_the_configuration(ours, issuer):
    long, short = issuer.token(scope="storage.read:/", seconds=1_000_000), issuer.token(scope="storage.read:/", seconds=300)
    seconds = lambda validity, token: granted(ours, "/data", {"validity": validity}, token=token)["expires_in"]
    assert seconds("PT2H", long) == 7200 and seconds("PT5000H", long) == 86_400
    assert seconds("PT5000000000H", long) == 86_400
    assert 240 < seconds("PT2H", short) <= 300
    end = caveats_of(granted(ours, "/data", {"validity": "PT2H"}, token=short)["macaroon"])[2][3]
    assert end <= before(300)


def test_tokens_of_oauth(ours, issuer):
    token = issuer.token(scope="storage.read:/ storage.create:/", seconds=1_000_000)
    reply = curl(ours, "/.well-known/oauth-authorization-server")
    assert reply.status == 200 and reply.json == {"token_endpoint": f"https://localhost:{ours.port}/.oauth2/token"}
    assert refused(curl(ours, "/.well-known/oauth-authorization-server", "-H", "Host: evil.example.org"), 400)
    assert curl(ours, "/.well-known/oauth-authorization-server", "-X", "DELETE").headers["allow"] == "GET,HEAD"
    for options in (("-X", "OPTIONS"), ("-I",)):
        assert curl(ours, "/.well-known/oauth-authorization-server", *options).status == 200
    form = "grant_type=client_credentials&expire_in=600&scope=DOWNLOAD%3A%2Fdata%2Fsub%20LIST%3A%2Fdata%2Fsub"
    found = granted(ours, "/.oauth2/token", form, kind=FORM, token=token)
    assert found["expires_in"] == 600 and found["token_type"] == "bearer" and found["scope"] == "DOWNLOAD:/data/sub LIST:/data/sub"
    assert curl(ours, "/data/sub/f", token=found["access_token"]).body == b"content"
    assert caveats_of(found["access_token"])[2][1:3] == ["activity:DOWNLOAD,LIST", "path:/data/sub"]
    without = form.replace("expire_in=600&", "")
    assert granted(ours, "/.oauth2/token", without, kind=FORM, token=token)["expires_in"] == 86_400
    for wrong in (form.replace("client_credentials", "password"), form.replace("600", "-600"), form.replace("600", "9" * 30),
                  form.replace("LIST%3A%2Fdata", "LIST%3A%2Fother"), form.replace("LIST", "list"), form.replace("%2Fdata", "data"),
                  form.split("&scope")[0], "", "{}", form + "&expire_in=1"):
        refused(ask(ours, "/.oauth2/token", wrong, kind=FORM, token=token), 400)
    refused(ask(ours, "/.oauth2/token", form.replace("DOWNLOAD", "DELETE").replace("LIST", "DELETE"), kind=FORM, token=token), 403)
    refused(ask(ours, "/.oauth2/token", form, kind=FORM), 401)
    get = curl(ours, "/.oauth2/token", token=token)
    assert refused(get, 405) and get.headers["allow"] == "POST"
    other = ask(ours, "/.oauth2/token", WANTED, kind=JSON, token=token)
    assert refused(other, 415) and other.headers["accept"] == FORM[0].split()[1]


@pytest.mark.parametrize("body", ["", "{", "[]", "null", "{}", '{"validity": 60}', '{"validity": "PT1H"} more', '{"validity": "PT1H", "validity": "PT1H"}',
                                  '{"validity": ""}', '{"validity": "P1D"}', '{"validity": "PT"}', '{"validity": "PT0S"}', '{"validity": "PT-5M"}',
                                  '{"validity": "PT99999999999999999999H"}', '{"validity": "PT1H", "caveats": "activity:LIST"}',
                                  '{"validity": "PT1H", "caveats": ["path:/data"]}', '{"validity": "PT1H", "caveats": ["name:root"]}',
                                  '{"validity": "PT1H", "caveats": ["before:2099-01-01T00:00:00Z"]}', '{"validity": "PT1H", "caveats": ["ip:192.0.2.1"]}',
                                  '{"validity": "PT1H", "caveats": [7]}', "[" * 4096])
def test_wrong_bodies_are_refused(ours, issuer, body):
    refused(ask(ours, "/data", body, token=issuer.token(scope="storage.read:/")), 400)


def test_wrong_heads_are_refused(ours, issuer):
    token = issuer.token(scope="storage.read:/")
    reply = ask(ours, "/data", WANTED, kind=("Content-Type: text/plain",), token=token)
    assert refused(reply, 415) and reply.headers["accept"] == "application/macaroon-request"
    refused(ask(ours, "/data", WANTED, kind=("Content-Type:",), token=token), 415)
    refused(ask(ours, "/data", json.dumps(WANTED) + " " * 4096, token=token), 413)
    refused(ask(ours, "/data", WANTED, kind=(*JSON, "Transfer-Encoding: chunked"), token=token), 411)
    most = json.dumps(WANTED).ljust(4096)
    assert granted(ours, "/data", most, token=token, kind=("Content-Type: application/macaroon-request; charset=utf-8",))
    for path in ("/data/../etc", "/data/%2e%2e/etc", "/data/%0a", "/data/%ff", "/data/%00", "/data/%"):
        refused(ask(ours, path, WANTED, token=token), 400)
    # Clients tend to write two slashes behind the host.
    assert caveats_of(granted(ours, "//data//sub/", WANTED, token=token)["macaroon"])[2][2] == "path:/data/sub"
    # Other methods of this path are what they were.
    assert curl(ours, "/data/sub/f", token=token).body == b"content"


def request_text(server, token, body, length=None):
    return (f"POST /data/sub HTTP/1.1\r\nHost: localhost:{server.port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/macaroon-request\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n{body}").encode()


@contextlib.contextmanager
def connected(server):
    context = ssl.create_default_context(cafile=server.authority.file)
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=SECONDS, context=context)
    connection.connect()
    try:
        yield connection.sock
    finally:
        connection.close()


def replies(sock, number):
    """Returns the bodies of replies of one connection."""
    bodies, received = [], b""
    while len(bodies) < number:
        head, separator, rest = received.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if separator and len(rest) >= lengths[0]:
            bodies.append(json.loads(rest[:lengths[0]]))
            received = rest[lengths[0]:]
            continue
        more = sock.recv(65536)
        assert more, "the connection has ended"
        received += more
    return bodies


def test_requests_in_a_row_are_answered_in_order(ours, issuer):
    token, body = issuer.token(scope="storage.read:/"), json.dumps(WANTED)
    with connected(ours) as sock:
        sock.sendall(b"".join(request_text(ours, token, text) for text in (body, "[]", body, "{}", body)))
        found = replies(sock, 5)
    assert ["macaroon" in reply for reply in found] == [True, False, True, False, True]
    assert len({found[at]["macaroon"] for at in (0, 2, 4)}) == 3


def test_bodies_that_do_not_arrive_hold_little(ours, issuer):
    token, body = issuer.token(scope="storage.read:/"), json.dumps(WANTED)
    with contextlib.ExitStack() as held:
        for _ in range(20):
            held.enter_context(connected(ours)).sendall(request_text(ours, token, body)[:-5])
        # One whose length is too large is refused before its body.
        late = held.enter_context(connected(ours))
        late.sendall(request_text(ours, token, "", length=10**18))
        assert replies(late, 1)[0]["error"] == "invalid_request"
        # The others are served meanwhile, and so is a client that sends byte by byte.
        assert granted(ours, "/data/sub", WANTED, token=token)
        slow = held.enter_context(connected(ours))
        for byte in request_text(ours, token, body):
            slow.sendall(bytes([byte]))
        assert "macaroon" in replies(slow, 1)[0]
    assert granted(ours, "/data/sub", WANTED, token=token)


def test_macaroons_are_issued_over_https_only(ours, issuer, authority):
    token = issuer.token(scope="storage.read:/")
    assert "https" in refused(ask(ours, "/data", WANTED, token=token, scheme="http"), 403)["error_description"]
    assert curl(ours, "/data/f", token=token, scheme="http").status == 200
    # Without a certificate nothing is issued, unless the handler says so.
    with running(peers.Ours, issuer, HTTP + HANDLER) as server:
        assert ask(server, "/data", WANTED, token=token, scheme="http").status == 501
        assert "without a certificate no macaroons are issued" in server.output()
    with running(peers.Ours, issuer, HTTP + HANDLER.replace("libXrd", "+notls libXrd")) as server:
        assert "macaroon" in granted(server, "/data", WANTED, token=token, scheme="http")


def test_without_the_handler_post_is_not_supported(authority, issuer):
    with running(peers.Ours, issuer, HTTP + authority.settings()) as server:
        server.authority = authority
        token = issuer.token(scope="storage.read:/")
        for path in ("/data", "/.oauth2/token"):
            assert ask(server, path, WANTED, token=token).status == 501
        assert curl(server, "/.well-known/oauth-authorization-server", token=token).status in (403, 404)


def test_nothing_secret_is_logged(authority, issuer):
    with running(peers.Ours, issuer, HTTP + HANDLER + authority.settings("xrootd.trace all\nhttp.trace all")) as server:
        server.authority = authority
        token = issuer.token(scope="storage.read:/", seconds=10_000)
        made = granted(server, "/data/sub", WANTED, token=token)["macaroon"]
        form = "grant_type=client_credentials&scope=LIST:/data"
        other = granted(server, "/.oauth2/token", form, kind=FORM, token=token)["access_token"]
        refused(ask(server, "/data", WANTED, token=made), 403)
        refused(ask(server, "/data", {"validity": made}, token=token), 400)
        line = f"macaroon {caveats_of(made)[1]} is issued to alice: DOWNLOAD,LIST below /data/sub for 600 s"
        wait_until(lambda: line in server.output())
        assert "no macaroon is issued for /data: a macaroon does not serve to get another one" in server.output()
        log = server.output()
        assert not any(secret in log for secret in (token, made, other, made[-40:], secret_text()[:40].decode(), SECRET.hex()))


def test_a_client_that_logs_in_by_its_token_needs_no_further_line(authority, issuer):
    settings = HTTP.split("\n")[0] + f"\nxrootd.seclib libXrdSec.so\nsec.protocol ztn\n{HANDLER}{authority.settings()}"
    with running(peers.Ours, issuer, settings) as server:
        server.authority = authority
        refused(ask(server, "/data", WANTED), 401)
        refused(ask(server, "/data", WANTED, token="nonsense"), 401)
        made = granted(server, "/data", WANTED, token=issuer.token(scope="storage.read:/"))
        assert caveats_of(made["macaroon"])[2][0] == "name:alice"
        assert curl(server, "/.well-known/oauth-authorization-server").status == 200
