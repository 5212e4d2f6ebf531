"""Authorities that come and go in the directory of a running server: logins by `gsi`, and third-party
copies from encrypted sources. Sessions that exist go on."""

import contextlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import grid
import peers
from test_third_party import Slow
from tools import XRDCP, XRDFS, data, run, scalla, wait_until

WEAK = {"SCALLA_GSI_WEAK_DH": "1"}


@pytest.fixture(scope="module")
def sites():
    """The site of the server, and another one."""
    with grid.new_site() as own, grid.new_site(name="Other") as other:
        yield own, other


@pytest.fixture(scope="module")
def both(sites):
    """A directory with both authorities, for clients."""
    own, other = sites
    directory = own.directory / "both"
    directory.mkdir()
    add(directory, own, other)
    return directory


def add(directory, *sites):
    for site in sites:
        for file in site.certificates.glob("*.0"):
            shutil.copy(file, directory)


class Directory:
    """The directory of a server. It changes file by file, or as a whole."""

    def __init__(self, path, whole, *sites):
        self.path, self.whole, self.number = path, whole, 0
        path.mkdir()
        add(path, *sites)

    def replace(self, *sites):
        """Leaves the authorities of these sites."""
        if self.whole:
            self.number += 1
            fresh, old = (self.path.with_name(f"{self.path.name}-{name}-{self.number}") for name in ("fresh", "old"))
            fresh.mkdir()
            add(fresh, *sites)
            self.path.rename(old)
            fresh.rename(self.path)
            return
        kept = {file.name for site in sites for file in site.certificates.glob("*.0")}
        add(self.path, *sites)
        for file in self.path.iterdir():
            if file.name not in kept:
                file.unlink()


@pytest.fixture(params=[False, True], ids=["files", "directory"])
def directory(request, sites, tmp_path_factory):
    own, _ = sites
    path = own.directory / f"of-server-{os.urandom(4).hex()}"
    return Directory(path, request.param, own)


@contextlib.contextmanager
def session(server, variables):
    """A session of the real client. The function that it yields sends a command, and returns the first line of the answer that has a
    text."""
    process = subprocess.Popen([XRDFS, f"localhost:{server.port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=peers.environment(**variables))

    def ask(command, text):
        process.stdin.write(f"{command}\n")
        process.stdin.flush()
        for line in process.stdout:
            if text in line or "ERROR" in line:
                return line.strip()
        return ""

    try:
        yield ask
    finally:
        process.stdin.close()
        process.kill()
        process.wait()


def test_logins_follow_the_directory(serve, sites, both, directory):
    own, other = sites
    lines = own.settings("-crlrefresh:1", "-crl:0").replace(str(own.certificates), str(directory.path))
    server = serve(settings=peers.SETTINGS + lines)
    peers.place(server.tree / "file", b"content")
    environments = [{**site.client(site.proxy("login")), "X509_CERT_DIR": str(both)} for site in (own, other)]
    logs_in = lambda environment: run([XRDFS, f"localhost:{server.port}", "stat", "/file"], **environment).status == 0
    mine, others = environments
    assert logs_in(mine) and not logs_in(others)
    directory.replace(own, other)
    wait_until(lambda: logs_in(others))
    with session(server, others) as ask:
        assert ask("stat /file", "Size:").endswith("7")
        directory.replace(own)
        wait_until(lambda: not logs_in(others))
        assert ask("stat /file", "Size:").endswith("7"), "the session goes on"
        assert logs_in(mine)
    directory.replace(own, other)
    wait_until(lambda: logs_in(others))


def test_copies_follow_the_directory(begin, sites, both, directory):
    own, other = sites
    tls = f"xrd.tls {other.host.certificate} {other.host.key}\nxrd.tlsca certdir {both}\n"
    source = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\n{tls}"))
    target = begin(peers.Ours(settings=f"{peers.SETTINGS}ofs.tpc\nxrd.tlsca certdir {directory.path}\n"))
    peers.place(source.tree / "file", b"content")

    def copies():
        result = run([XRDCP, "-N", "-f", "--tpc", "only", f"roots://localhost:{source.port}//file",
                      f"root://127.0.0.1:{target.port}//copy"], X509_CERT_DIR=str(both))
        assert result.status == 0 or "certificate" in result.all
        return result.status == 0

    assert not copies()
    directory.replace(own, other)
    wait_until(copies)
    directory.replace(own)
    wait_until(lambda: not copies())


def test_a_copy_outlives_the_revocation_of_its_client(begin):
    """The certificate is revoked when a part of the file has been copied with the proxy of the client. Both servers then refuse its
    logins."""
    with grid.new_site() as site:
        site.revoke()
        variables = {"X509_CERT_DIR": str(site.certificates), **WEAK}
        gsi = peers.SETTINGS + site.settings("-crl:3", "-crlrefresh:1")
        source = begin(peers.Ours(settings=f"{gsi}ofs.tpc\n", variables=variables))
        target = begin(peers.Ours(settings=f"{gsi}ofs.tpc fcreds gsi =X509_USER_PROXY\n", variables=variables))
        peers.place(source.tree / "file", data(3_000_000))
        client = site.client(site.proxy("copies"), **WEAK)
        # Our client: the copy waits only 30 s for its source, and a login of the real one takes two seconds of processor time.
        logs_in = lambda server: scalla("stat", server.url("/"), **client).status == 0
        assert logs_in(source) and logs_in(target)
        with Slow(source, stops_after=1_000_000) as path, ThreadPoolExecutor(1) as pool:
            words = f"root://localhost:{path.port}//file", f"root://localhost:{target.port}//copy"
            copying = pool.submit(scalla, "cp", "--force", "--tpc", "delegate", *words, **client)
            try:
                wait_until(lambda: path.left <= 0)
                site.revoke(site.user)
                wait_until(lambda: not logs_in(source) and not logs_in(target))
                assert not copying.done()
            finally:
                path.go_on.set()
            copying.result().ok()
        assert (target.tree / "copy").read_bytes() == data(3_000_000)
        wait_until(lambda: "revoked" in source.output() and "revoked" in target.output())
