"""A certificate authority of grids for the tests: hosts, users, proxies, revocation lists."""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import peers

LIMITED = "1.3.6.1.4.1.3536.1.1.1.9"
PROXY_INFORMATION = "proxyCertInfo=critical,language:{policy},pathlen:{length}\nkeyUsage=critical,digitalSignature,keyEncipherment\n"


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Pair:
    """A certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    @property
    def subject(self):
        text = openssl("x509", "-in", self.certificate, "-noout", "-subject", "-nameopt", "compat")
        return text.strip().removeprefix("subject=").strip()


class GridSite:
    """An authority below a directory, with the directory of hashed names that servers and clients read."""

    def __init__(self, directory, name="Authority"):
        self.directory = directory
        self.certificates = directory / "certificates"
        self.certificates.mkdir()
        self.authority = Pair(directory / "ca.pem", directory / "ca.key")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.authority.key, "-out", self.authority.certificate, "-days", "90",
                "-subj", f"/O=Grid/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        (directory / "index.txt").write_text("")
        for option in ("-hash", "-subject_hash_old"):
            self.hash = openssl("x509", option, "-noout", "-in", self.authority.certificate).strip()
            (self.certificates / f"{self.hash}.0").write_bytes(self.authority.certificate.read_bytes())
        self.host = self.issue("host", "/O=Grid/CN=localhost", "subjectAltName=DNS:localhost,DNS:localhost.localdomain\n")
        peers.give(self.host.key)
        self.user = self.issue("user", "/O=Grid/CN=Alice Example")

    def issue(self, name, subject, extensions="", days=60):
        """Issues a certificate of an end entity."""
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request, file = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        file.write_text(f"basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n{extensions}")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", pair.key, "-out", request, "-subj", subject)
        openssl("x509", "-req", "-in", request, "-CA", self.authority.certificate, "-CAkey", self.authority.key, "-CAcreateserial",
                "-days", days, "-out", pair.certificate, "-extfile", file)
        os.chmod(pair.key, 0o600)
        return pair

    def proxy(self, name, of=None, length=5, bits=2048, days=1, policy="id-ppl-inheritAll", extension=""):
        """Issues a proxy of a pair or of a proxy file, with one more extension, and returns its file."""
        if of is None:
            of = self.user
        if not isinstance(of, Pair):
            of = Pair(of, of)
        key, request, file, issued = (self.directory / f"{name}.{part}" for part in ("pkey", "pcsr", "pext", "pcrt"))
        serial = 1000 + len(os.listdir(self.directory))
        file.write_text(PROXY_INFORMATION.format(length=length, policy=policy) + f"\n{extension}\n")
        subject = f"{of.subject}/CN={serial}"
        openssl("req", "-newkey", f"rsa:{bits}", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
        openssl("x509", "-req", "-in", request, "-CA", of.certificate, "-CAkey", of.key, "-set_serial", serial, "-days", days, "-out", issued,
                "-extfile", file)
        path = self.directory / f"{name}.proxy"
        path.write_text(issued.read_text() + key.read_text() + certificates_of(of.certificate))
        path.chmod(0o600)
        return path

    def proxy_between(self, name, begin, end):
        """Issues a proxy of the user that is valid between two times in seconds, and returns its file."""
        key, request, file, issued, settings = (self.directory / f"{name}.{part}" for part in ("pkey", "pcsr", "pext", "pcrt", "cnf"))
        serial = 1000 + len(os.listdir(self.directory))
        file.write_text(PROXY_INFORMATION.format(length=5, policy="id-ppl-inheritAll"))
        for record in ("index", "serial"):
            (self.directory / f"{name}.{record}").write_text("" if record == "index" else f"{serial:04X}")
        settings.write_text(f"[ca]\ndefault_ca=d\n[d]\ndatabase={self.directory}/{name}.index\nserial={self.directory}/{name}.serial\n"
                            f"new_certs_dir={self.directory}\ndefault_md=sha256\npolicy=p\nunique_subject=no\n[p]\norganizationName=supplied\n"
                            "commonName=supplied\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"{self.user.subject}/CN={serial}")
        stamps = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(moment)) for moment in (begin, end)]
        openssl("ca", "-batch", "-notext", "-preserveDN", "-config", settings, "-cert", self.user.certificate, "-keyfile", self.user.key, "-in", request,
                "-out", issued, "-startdate", stamps[0], "-enddate", stamps[1], "-extfile", file)
        path = self.directory / f"{name}.proxy"
        path.write_text(issued.read_text() + key.read_text() + certificates_of(self.user.certificate))
        path.chmod(0o600)
        return path

    def revocation_list(self, *pairs, issued=None):
        """Returns the revocation list of the authority with these certificates and those of earlier calls. `issued` is a time in
        seconds, otherwise now."""
        settings = self.directory / "ca.cnf"
        settings.write_text(f"[ca]\ndefault_ca=d\n[d]\ndatabase={self.directory}/index.txt\ndefault_md=sha256\ndefault_crl_days=30\n")
        authority = ("-config", settings, "-cert", self.authority.certificate, "-keyfile", self.authority.key)
        for pair in pairs:
            openssl("ca", *authority, "-revoke", pair.certificate)
        made = self.directory / "crl.pem"
        stamp = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(issued))
        openssl("ca", *authority, "-gencrl", "-crl_lastupdate", stamp, "-out", made)
        return made.read_bytes()

    def revoke(self, *pairs):
        """Writes the revocation list of the authority with these certificates."""
        content = self.revocation_list(*pairs)
        for place in self.certificates.glob("*.0"):
            place.with_suffix(".r0").write_bytes(content)

    def settings(self, *options):
        """The lines of a server."""
        words = (f"-certdir:{self.certificates} -cert:{self.host.certificate} -key:{self.host.key} -gridmap:{self.directory}/grid-mapfile "
                 f"{' '.join(options)}")
        return f"xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol gsi {words}\nsec.protbind * only gsi\n"

    def client(self, proxy=None, **more):
        """The environment of a client with a proxy."""
        return {"X509_CERT_DIR": str(self.certificates), "X509_USER_PROXY": str(proxy or "/nonexistent"), "XrdSecPROTOCOL": "gsi", **more}


def certificates_of(path):
    """Returns the certificates of a PEM file."""
    parts = Path(path).read_text().split("-----BEGIN CERTIFICATE-----")[1:]
    end = "-----END CERTIFICATE-----\n"
    return "".join("-----BEGIN CERTIFICATE-----" + part.split(end)[0] + end for part in parts)


@contextlib.contextmanager
def new_site(kind=GridSite, **how):
    """A new site. The user of the servers cannot read the directories of pytest."""
    with tempfile.TemporaryDirectory(prefix="scalla-grid-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield kind(Path(directory), **how)
