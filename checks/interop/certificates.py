"""Certificates of TLS servers: an authority, and a certificate for this host."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import peers
from grid import openssl


class Authority:
    """A certificate authority, its directory of hashed names, and a certificate for this host."""

    def __init__(self, directory):
        self.directory = directory / "certificates"
        self.certificate, self.key = directory / "host.pem", directory / "host.key"
        self.file = authority = directory / "ca.pem"
        authority_key, request = directory / "ca.key", directory / "host.csr"
        extensions = directory / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,DNS:localhost.localdomain\nextendedKeyUsage=serverAuth\n")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", authority_key, "-out", authority, "-days", "90",
                "-subj", "/O=Test/CN=Authority")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", request, "-subj", "/O=Test/CN=localhost")
        openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "60",
                "-out", self.certificate, "-extfile", extensions)
        self.directory.mkdir()
        name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", authority], capture_output=True, check=True).stdout
        (self.directory / f"{name.decode().strip()}.0").write_bytes(authority.read_bytes())
        os.chmod(self.key, 0o600)
        # Clients trust only authorities of root or of their own user.
        peers.give(self.key)

    def settings(self, requirements=""):
        return f"xrd.tls {self.certificate} {self.key}\nxrd.tlsca certdir {self.directory}\n{requirements}\n"


@contextlib.contextmanager
def new_authority():
    """A new authority. The user of the servers cannot read the directories of pytest."""
    with tempfile.TemporaryDirectory(prefix="scalla-tls-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Authority(Path(directory))
