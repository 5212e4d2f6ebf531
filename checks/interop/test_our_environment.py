"""Environment variables of our client programs: settings, threads, open files, log level.

Each known name takes effect, or is reported as unsupported."""

import resource
import subprocess
from pathlib import Path

import pytest

import grid
import peers
import tools
from test_secrets import forms, key_parts
from tools import data, scalla


@pytest.fixture
def slow_copy(area, tmp_path):
    """Starts a slow copy. Returns its process."""
    begun = []

    def begin(limit=None, **environment):
        area.put("file", data(4 << 20))
        command = [peers.program(), "cp", "--rate", "500k", area.url("file"), str(tmp_path / "out")]
        limits = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)) if limit else None
        process = subprocess.Popen(command, env=peers.environment(**environment), preexec_fn=limits)
        begun.append(process)
        # It writes, so all its threads have started.
        tools.wait_until(lambda: [path for path in tmp_path.iterdir() if path.stat().st_size > 0])
        return process.pid

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def threads(pid):
    """Returns the number of threads by name, without their numbers."""
    names = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip().rstrip("0123456789")
        names[name] = names.get(name, 0) + 1
    return names


def test_threads(slow_copy):
    """One thread drives all connections, and few write, unless configured."""
    assert threads(slow_copy())["scalla"] == 1


def test_threads_that_are_set(slow_copy):
    found = threads(slow_copy(XRD_PARALLELEVTLOOP="3", XRD_WORKERTHREADS="5"))
    # One more resolves names.
    assert found["disk-"] == 5 and found["tokio-rt-worker"] in (3, 4), found


def test_open_files(slow_copy):
    """As many as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pid = slow_copy(limit=(256, hard))
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_unloaded_plug_ins_are_reported(area, tmp_path):
    """Once, and the command does its work; under XRootD's names too."""
    area.put("file", b"content")
    environment = dict(XRD_CLIENTMONITOR="libMonitor.so", XRD_PLUGIN="libOther.so")
    for done in (scalla("cat", area.url("file"), **environment), tools.xrdfs(area.server, "cat", area / "file", program=peers.link("xrdfs"), **environment)):
        assert done.ok().raw == b"content"
        assert done.err.count("XRD_CLIENTMONITOR: plug-ins are C++") == done.err.count("XRD_PLUGIN: plug-ins are C++") == 1
    script = f"cp {area.url('file')} file:{tmp_path}/a\ncp {area.url('file')} file:{tmp_path}/b\n".encode()
    shell = scalla("shell", area.server.url(""), input=script, **environment).ok()
    assert shell.err.count("plug-ins") == 2


def test_invalid_numbers_are_reported(area):
    scalla("ls", area.url(""), XRD_CPCHUNKSIZE="8M").ok()
    assert "XRD_CPCHUNKSIZE" in scalla("ls", area.url(""), XRD_CPCHUNKSIZE="8M").err


def test_log_levels(area, tmp_path):
    """The levels have their usual names; nothing is logged by default."""
    area.put("file", b"content")
    scalla("cat", area.url("file")).ok()
    assert scalla("cat", area.url("file")).err == ""
    assert "connected" in scalla("cat", area.url("file"), XRD_LOGLEVEL="Debug").ok().err
    assert scalla("cat", area.url("file"), XRD_LOGLEVEL="Error").ok().err == ""
    log = tmp_path / "log"
    assert scalla("cat", area.url("file"), XRD_LOGLEVEL="Dump", XRD_LOGFILE=str(log)).ok().err == ""
    assert "connected" in log.read_text()
    assert "XRD_LOGLEVEL" in scalla("cat", area.url("file"), XRD_LOGLEVEL="loud").ok().err
    told = tools.run([peers.link("xrdcp"), "-d", "2", area.url("file"), tmp_path / "out"]).ok()
    assert "connected" in told.err


def test_logins_and_encryption_are_traced_without_secrets(serve, tmp_path):
    """`XrdSecDEBUG`, and `XRDTLS_DEBUG` or `XRD_TLSDBGLVL`, which log nothing else."""
    with grid.new_site() as site:
        ready = site.proxy("plain")
        certificate = f"xrd.tls {site.host.certificate} {site.host.key}\nxrd.tlsca certdir {site.certificates}\n"
        server = serve(settings=peers.SETTINGS + site.settings() + certificate)
        listing = lambda **more: scalla("ls", f"roots://localhost:{server.port}//", **{**site.client(ready), **more})
        login = listing(XrdSecDEBUG="3").ok().err
        assert 'offered="gsi"' in login and 'protocol="gsi"' in login and "authenticated" in login and "TLS" not in login, login
        assert not any(form in login.encode() for part in key_parts(ready) for form in forms(part).values())
        # A protocol that fails is named with the reason.
        assert "no valid proxy" in listing(XrdSecDEBUG="1", X509_USER_PROXY="/nonexistent", HOME="/nonexistent").fails(1, 'protocol="gsi"').err
        for variable in ("XRDTLS_DEBUG", "XRD_TLSDBGLVL"):
            handshake = listing(**{variable: "CTX"}).ok().err
            assert 'version="TLSv1_3"' in handshake and "is_resumed=false" in handshake and "gsi" not in handshake, handshake
        assert not listing(XrdSecDEBUG="0", XRD_TLSDBGLVL="OFF").ok().err
