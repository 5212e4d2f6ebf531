"""Logs of successful and failed logins, with all traces on: they contain no secret of any protocol."""

import base64
import contextlib
import json
import os
import re
import tempfile
from pathlib import Path

import grid
import keytabs
import peers
from issuers import AUDIENCE, Issuer
from test_pwd import PwdSite
from test_tls import Authority
from tools import XRDFS, run, scalla, wait_until

TRACES = ("sec.trace all\nxrootd.trace all\nxrd.trace all\nofs.trace all\ncms.trace all\nxrootd.log login\n"
          "xrootd.seclib libXrdSec.so\n")


@contextlib.contextmanager
def directory():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-secrets-", dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def listing(program, url, client):
    """Lists `/` with our client or with the real one."""
    return scalla("ls", url + "/", **client) if program == "ours" else run([XRDFS, url, "ls", "/"], **client)


def log_of(serve, settings, *clients, scheme="root", programs=("ours", "real")):
    """Returns the log of a server after a login with each environment. The first one is refused, the
    others log in."""
    server = serve(settings=peers.SETTINGS + TRACES + settings, arguments=["-v", "-v"])
    url = f"{scheme}://localhost:{server.port}/"
    bad, *good = clients
    for program in programs:
        assert listing(program, url, bad).status != 0
        for client in good:
            listing(program, url, client).ok()
    wait_until(lambda: server.output().count(" login as ") >= len(good) * len(programs))
    return server.log.read_bytes()


def check_absent(log, *secrets):
    """Checks a log for secrets: as bytes, in hexadecimal, and in base64."""
    assert b" login as " in log
    for secret in secrets:
        assert len(secret) >= 8
        for form in (secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")[:-2]):
            assert form not in log, form


def key_text(path):
    """Returns lines of the base64 of a private key in PEM."""
    text = Path(path).read_text()
    body = re.search(r"-----BEGIN (?:RSA )?PRIVATE KEY-----\n(.*?)-----END", text, re.DOTALL).group(1)
    return [line.encode() for line in body.split() if len(line) == 64]


def test_keys_of_sss(serve):
    with directory() as place:
        server = peers.give(keytabs.add(place / "server.keytab", name="k"))
        own, foreign = place / "own.keytab", keytabs.add(place / "foreign.keytab", name="k")
        own.write_text(server.read_text())
        own.chmod(0o600)
        keys = [re.search(r"k:(\w+)", path.read_text()).group(1) for path in (own, foreign)]
        clients = [{"XrdSecSSSKT": str(path), "XrdSecPROTOCOL": "sss"} for path in (foreign, own)]
        log = log_of(serve, f"sec.protocol sss -s {server}\n", *clients)
        check_absent(log, *(bytes.fromhex(key) for key in keys))


def test_keys_of_gsi(serve):
    with grid.new_site() as site, grid.new_site(name="Stranger") as other:
        foreign, good = other.proxy("foreign"), site.proxy("good")
        # The server makes a further key for the proxy that the client delegates.
        settings = f"sec.protocol gsi -certdir:{site.certificates} -cert:{site.host.certificate} -key:{site.host.key} -dlgpxy:request\n"
        clients = [site.client(proxy, XrdSecGSIDELEGPROXY="1") for proxy in (foreign, good)]
        log = log_of(serve, settings, *clients)
        check_absent(log, *key_text(site.host.key), *key_text(good), *key_text(foreign))
        assert b"PRIVATE KEY" not in log


def test_passwords(serve):
    with directory() as place:
        site = PwdSite(place)
        bad = place / "bad-netrc"
        bad.write_text("machine localhost login alice password wrong-as-it-is\n")
        bad.chmod(0o600)
        log = log_of(serve, f"sec.protocol pwd -dir:{site.admin}\n", site.client(XrdSecNETRC=str(bad)), site.client(), programs=["ours"])
        check_absent(log, site.password.encode(), b"wrong-as-it-is")
        # Neither is the file with the hashes and the key of the server.
        stored = site.file.read_bytes()
        assert not any(stored[at:at + 24] in log for at in range(64, len(stored) - 24, 8) if len(set(stored[at:at + 24])) > 12)


def test_tokens(serve, tmp_path):
    with directory() as place:
        authority, issuer = Authority(place), Issuer(tmp_path)
        (place / "keys").write_text(json.dumps(issuer.keys))
        peers.give(place / "keys")
        (place / "issuers").write_text(f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /\n"
                                       f"map_subject = True\njwks_file = {place}/keys\n")
        peers.give(place / "issuers")
        peers.give(place)
        old, good = issuer.token(scope="storage.read:/", seconds=-10), issuer.token(scope="storage.read:/")
        settings = f"sec.protocol ztn\n{authority.settings()}ofs.authorize\nacc.audit deny grant\nofs.authlib libXrdAccSciTokens.so config={place}/issuers\n"
        clients = [{"BEARER_TOKEN": token, "X509_CERT_DIR": str(authority.directory), "XrdSecPROTOCOL": "ztn", "XDG_RUNTIME_DIR": "/nonexistent"}
                   for token in (old, good)]
        log = log_of(serve, settings, *clients, scheme="roots")
        check_absent(log, *(part.encode() for token in (old, good) for part in token.split(".")[1:]), *key_text(authority.key))
