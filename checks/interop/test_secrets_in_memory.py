"""Secrets in the memory of the server: after their end, no copy is left that a core dump or a bug could reveal.

Each test first finds the secret while it is in force, because a search that finds nothing at all shows nothing."""

import base64
import hashlib
import hmac
import os
import re
import resource
import secrets
import subprocess
from pathlib import Path

import pytest

import grid
import keytabs
import peers
from macaroons import macaroon, secret_text
from test_macaroons import place_secret, prepared
from test_pwd import PwdSite
from test_secrets import directory, integers
from tools import XRDFS, run, scalla, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, because the server hides its memory from its own user")

# Longer than any secret.
OVERLAP = 4096


def places(server, *texts):
    """Returns for each text where the writable memory of the server has it."""
    found = {text: [] for text in texts}
    process = server.process.pid
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            limits, rights, *_ = line.split()
            if "w" not in rights or line.endswith(("[vvar]", "[vsyscall]")):
                continue
            start, end = (int(limit, 16) for limit in limits.split("-"))
            for at in range(start, end, 1 << 20):
                try:
                    memory.seek(at)
                    part = memory.read(min((1 << 20) + OVERLAP, end - at))
                except OSError:
                    continue
                for text in texts:
                    found[text] += [f"{at + one.start():x} in {line}" for one in re.finditer(re.escape(text), part)]
    return found


def holds(server, *texts):
    return all(places(server, *texts).values())


def check_wiped(server, *texts):
    """Checks that no copy is left. Threads may still be about to end what they do."""
    try:
        wait_until(lambda: not any(places(server, *texts).values()), seconds=20)
    except AssertionError:
        left = {text[:12]: where[:4] for text, where in places(server, *texts).items() if where}
        raise AssertionError(f"in memory: {left}") from None


def reload(server):
    scalla("admin", "--admin-path", server.work / "admin", "reload").ok()


def test_keys_of_sss(serve, tmp_path):
    with directory() as place:
        table = keytabs.add(place / "server.keytab", name="old", user="alice", group="nogroup")
        keytabs.add(table, name="new", user="bob", group="nogroup")
        peers.give(place)
        peers.give(table)
        lines = table.read_text().splitlines()
        (old,) = [line for line in lines if " n:old" in line]
        own = tmp_path / "own.keytab"
        own.write_text(f"{old}\n")
        own.chmod(0o600)
        text = re.search(r"k:(\w+)", old).group(1)
        server = serve(settings=peers.SETTINGS + f"xrootd.seclib libXrdSec.so\nsec.protocol sss -s {table}\nxrootd.log login\n")
        scalla("ls", server.url("/"), XrdSecPROTOCOL="sss", XrdSecSSSKT=str(own)).ok()
        wait_until(lambda: "login as alice by sss" in server.output())
        assert holds(server, bytes.fromhex(text))
        table.write_text("".join(f"{line}\n" for line in lines if line != old))
        reload(server)
        check_wiped(server, bytes.fromhex(text), text.encode())


def test_passwords(serve):
    with directory() as place:
        site = PwdSite(place)
        wrong = place / "wrong-netrc"
        wrong.write_text("machine localhost login alice password wrong-as-it-is\n")
        wrong.chmod(0o600)
        server = serve(settings=site.settings())
        assert holds(server, b"alice")
        for number in range(3):
            scalla("ls", server.url("/"), **site.client(XrdSecNETRC=str(wrong))).fails(1)
            scalla("ls", server.url("/"), **site.client()).ok()
            wait_until(lambda: server.output().count("login as alice by pwd") == number + 1)
        check_wiped(server, site.password.encode(), b"wrong-as-it-is")


def test_the_secret_of_macaroons():
    old, new = secrets.token_bytes(64), secrets.token_bytes(64)
    with prepared(peers.Ours) as server:
        place_secret(server, secret_text(old))
        reload(server)
        token = macaroon("DOWNLOAD", "/data/sub", secret=old)
        run([XRDFS, server.host, "cat", f"/data/sub/f?authz={token}"]).ok()
        # The server keeps the first key of all chains only.
        keys = [hmac.new(b"macaroons-key-generator".ljust(32, b"\0"), secret, hashlib.sha256).digest() for secret in (old, new)]
        assert holds(server, keys[0])
        place_secret(server, secret_text(new))
        reload(server)
        assert holds(server, keys[1])
        check_wiped(server, keys[0], *(form for secret in (old, new) for form in (secret, base64.b64encode(secret)[:80])))


def test_the_key_of_the_host(serve):
    """The key of TLS and of gsi."""
    with grid.new_site() as site:
        settings = (f"{site.settings()}xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n"
                    "xrootd.log login\n")
        server = serve(settings=peers.SETTINGS + settings)
        client = site.client(site.proxy("plain"))
        for scheme in ("root", "roots"):
            scalla("ls", f"{scheme}://localhost:{server.port}//", **client).ok()
        old = prime_factors(site.host.key)
        assert any(places(server, *old).values())
        new = site.issue("new-host", "/O=Grid/CN=localhost", "subjectAltName=DNS:localhost\n")
        for kept, replacement in ((site.host.key, new.key), (site.host.certificate, new.certificate)):
            content = Path(replacement).read_bytes()
            # Its owner and mode remain.
            Path(kept).write_bytes(content)
        reload(server)
        for scheme in ("root", "roots"):
            scalla("ls", f"{scheme}://localhost:{server.port}//", **client).ok()
        assert any(places(server, *prime_factors(site.host.key)).values())
        check_wiped(server, *old)


def prime_factors(path):
    """Returns the prime factors of a key of RSA, as its file and as numbers of this processor have them."""
    body = re.search(r"-----BEGIN (?:RSA )?PRIVATE KEY-----\n(.*?)-----END", Path(path).read_text(), re.DOTALL).group(1)
    numbers = [number for number in integers(base64.b64decode(body)) if len(number) > 32]
    # Modulus, private exponent, the two primes, ...
    primes = numbers[2:4]
    return [*primes, *(prime[::-1] for prime in primes)]


def core_limit(process):
    """Returns the soft and the hard limit of core dumps of a process."""
    line = next(line for line in Path(f"/proc/{process}/limits").read_text().splitlines() if line.startswith("Max core file size"))
    return line.split()[4:6]


def test_clients_with_credentials_leave_no_core_dump(serve, tmp_path):
    """A client of a server without authentication keeps the limit of its user."""
    with directory() as place:
        table = peers.give(keytabs.add(place / "server.keytab", name="k", user="alice", group="nogroup"))
        own = tmp_path / "own.keytab"
        own.write_text(table.read_text())
        own.chmod(0o600)
        secured = serve(settings=peers.SETTINGS + f"xrootd.seclib libXrdSec.so\nsec.protocol sss -s {table}\n")
        for server, expected in ((secured, ["0", "0"]), (serve(), ["1024", "unlimited"])):
            variables = peers.environment(XrdSecPROTOCOL="sss", XrdSecSSSKT=str(own))
            limit = lambda: resource.setrlimit(resource.RLIMIT_CORE, (1024, resource.RLIM_INFINITY))
            shell = subprocess.Popen([peers.link("xrdfs"), server.host], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, env=variables, preexec_fn=limit)
            with shell:
                shell.stdin.write("stat /\n")
                shell.stdin.flush()
                assert any("Size:" in line for line in shell.stdout)
                assert core_limit(shell.pid) == expected
                shell.kill()
