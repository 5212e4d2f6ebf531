"""Logs of successful and failed logins, with all traces on: they contain no secret of any protocol."""

import base64
import contextlib
import json
import os
import re
import tempfile
from pathlib import Path

import pytest

import grid
import keytabs
import peers
from certificates import Authority
from issuers import AUDIENCE, Issuer
from terminals import Terminal
from test_gsi import SHELLS, Shell
from test_pwd import PwdSite
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


def escaped(secret):
    """Returns bytes as Rust shows a string of them (`{:?}`)."""
    named = {0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r", 34: "\\\"", 92: "\\\\"}
    return "".join(named.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in secret).encode()


def forms(secret):
    """Returns the forms in which a program could write bytes, as names and texts."""
    numbers = {"decimal list": "d", "hexadecimal list": "02x"}
    found = {name: ", ".join(format(byte, form) for byte in secret).encode() for name, form in numbers.items()}
    found |= {"bytes": secret, "hexadecimal": secret.hex().encode(), "upper case": secret.hex().upper().encode(), "escapes": escaped(secret)}
    for offset in range(3):
        # The text depends on the place within a larger value. Its first and last characters also have bits of the neighbours.
        text = base64.b64encode(bytes(offset) + secret).rstrip(b"=")[2 if offset else 0:-1]
        text = text[1:] if offset == 2 else text
        found |= {f"base64 at {offset}": text, f"base64url at {offset}": text.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def check_absent(log, *secrets):
    """Checks a log for secrets in all forms."""
    assert b" login as " in log
    for secret in secrets:
        assert len(secret) >= 8
        for name, form in forms(secret).items():
            assert form not in log, name


def test_each_form_of_a_secret_is_found():
    """The search is no claim if it finds nothing at all."""
    secret = bytes([48, 130, 0, 10, 34, 92]) + b"k>?~\xff\xfe\xfb\xef" + bytes(range(200, 216))
    line = b"alice login as alice\n"
    check_absent(line, secret)
    for prefix in (b"", b"a", b"ab"):
        texts = [prefix + secret, (prefix + secret).hex().encode(), (prefix + secret).hex().upper().encode(), str([*prefix, *secret]).encode(),
                 ("[" + ", ".join(f"{byte:02x}" for byte in prefix + secret) + "]").encode(), b'b"' + escaped(prefix + secret) + b'"',
                 base64.b64encode(prefix + secret + b"end"), base64.urlsafe_b64encode(prefix + secret + b"end")]
        for text in texts:
            with pytest.raises(AssertionError):
                check_absent(line + b"DEBUG value " + text + b"\n", secret)


def integers(data):
    """Returns the integers of DER, also those in nested values."""
    found = []
    while len(data) > 2:
        tag, length, start = data[0], data[1], 2
        if length & 0x80:
            start += length & 0x7f
            length = int.from_bytes(data[2:start])
        content, data = data[start:start + length], data[start + length:]
        found += [content.lstrip(b"\0")] if tag == 2 else integers(content) if tag in (0x30, 4) else []
    return found


def key_parts(path):
    """Returns the parts of a private key of RSA in PEM that only its owner knows, and lines of its text."""
    text = Path(path).read_text()
    body = re.search(r"-----BEGIN (?:RSA )?PRIVATE KEY-----\n(.*?)-----END", text, re.DOTALL).group(1)
    lines = [line.encode() for line in body.split() if len(line) == 64]
    # Modulus and public exponent come first, and are in the certificate.
    numbers = [number for number in integers(base64.b64decode(body)) if len(number) > 32]
    assert len(numbers) == 7 and lines
    return numbers[1:] + lines


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
        check_absent(log, *key_parts(site.host.key), *key_parts(good), *key_parts(foreign))
        assert b"PRIVATE KEY" not in log


@pytest.mark.parametrize("client", SHELLS)
def test_keys_that_the_server_makes_for_delegated_proxies(serve, client):
    """The file of the proxy has the key, as long as the session lasts."""
    with grid.new_site() as site:
        exports = site.directory / "exports"
        exports.mkdir()
        peers.give(exports)
        settings = f"sec.protocol gsi -certdir:{site.certificates} -cert:{site.host.certificate} -key:{site.host.key} -exppxy:{exports}/<user>\n"
        server = serve(settings=peers.SETTINGS + TRACES + settings, arguments=["-v", "-v"])
        proxy = site.proxy("long", length=3)
        shell = Shell(SHELLS[client], server, site.client(proxy, XrdSecGSIDELEGPROXY="1"))
        # The server writes it in a hidden directory and renames it.
        (delegated,) = wait_until(lambda: [path for path in exports.iterdir() if path.is_file()])
        parts = key_parts(delegated)
        assert parts != key_parts(proxy)
        shell.end()
        # The end of the session is logged, too. The log is written by a thread of its own.
        wait_until(lambda: not list(exports.iterdir()) and " login as " in server.output())
        check_absent(server.log.read_bytes(), *parts)


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


def test_passwords_that_are_typed(serve):
    """The real client takes them from a terminal only."""
    with directory() as place:
        site = PwdSite(place)
        server = serve(settings=peers.SETTINGS + TRACES + f"sec.protocol pwd -dir:{site.admin}\n", arguments=["-v", "-v"])
        for password, status in (("wrong-as-it-is", False), (site.password, True)):
            with Terminal([XRDFS, f"root://localhost:{server.port}/", "ls", "/"], **site.client()) as terminal:
                terminal.until("Password for alice@localhost:lab:")
                terminal.type(f"{password}\n")
                if not status:
                    # It asks again, as often as it may.
                    terminal.until("Password for alice@localhost:lab:")
                    continue
                assert terminal.end()[0] == 0
        wait_until(lambda: server.output().count("login as alice by pwd") == 1)
        check_absent(server.log.read_bytes(), site.password.encode(), b"wrong-as-it-is")


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
        check_absent(log, *(part.encode() for token in (old, good) for part in token.split(".")[1:]), *key_parts(authority.key))
