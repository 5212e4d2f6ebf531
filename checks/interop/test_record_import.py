"""The queues of XRootD's `frm_xfrd`, taken over by a server and a daemon of ours: each request once, and nothing that
cannot be read is lost."""

import contextlib
import os
import signal
import subprocess

import peers
from test_frm_daemons import agent, daemon, site  # noqa: F401
from test_residency import names, tape  # noqa: F401
from tools import wait_until

def theirs(server, name, *arguments, lines=()):
    """Runs one of the real programs as the user of a server, and returns its output."""
    command = [peers.real(name), "-c", str(server.work / "xrootd.cfg"), *arguments]
    done = subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, timeout=60,
                          check=False, env=peers.environment(), cwd=server.work, **as_user())
    return done.stdout.decode()


def as_user():
    if os.geteuid() != 0:
        return {}
    return dict(zip(("user", "group"), peers.unprivileged()), extra_groups=[])


@contextlib.contextmanager
def real_daemon(server):
    """Their `frm_xfrd`, which is killed with its programs at the end."""
    with open(server.work / "theirs.log", "ab") as log:
        process = subprocess.Popen([peers.real("frm_xfrd"), "-c", str(server.work / "xrootd.cfg")], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, env=peers.environment(), cwd=server.work, start_new_session=True,
                                   **as_user())
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def queues(server):
    """Returns the directory of the record files."""
    return next(server.work.rglob("Queues"))


def record_files(server):
    return sorted(path.name for path in queues(server).iterdir() if not path.name.endswith(".lock"))


def copied(tape):  # noqa: F811
    """Returns the names in mass storage of all copies in, in order."""
    return sorted(run.split()[-1].removeprefix(str(tape.files)) for run in tape.runs())


def test_requests_of_a_real_agent_come_once(tape, site, daemon):  # noqa: F811
    server = site()
    for name in ("one", "two", "gone", "three", "four"):
        tape.put(name, name.encode() * 1000)
    theirs(server, "frm_xfragent", lines=[
        "+me.1:2@h ID1 - 1 w /one?x=y /two", "+ ID2 - 0 w /gone", "- ID2 x x", "< ID3 file:///dev/null 2 wns /three",
        "+ ID4 - 0 w root://far.example.org//two /four", "& ID5 - 0 w /one"])
    listed = theirs(server, "frm_admin", "query", "xfrq", "lfn", "rid", "prty", "op")
    assert "/two ID1 1 +" in listed and "/three ID3 2 <" in listed, listed
    wanted = [line.split() for line in listed.splitlines()]
    gone = "ID2" not in listed
    server.start()
    wait_until(lambda: {"one", "two", "three", "four"} <= set(names(server.tree)))
    assert (server.tree / "two").read_bytes() == b"two" * 1000
    assert copied(tape) == sorted(["/one", "/two", "/three", "/four"] + ([] if gone else ["/gone"])), wanted
    # Requests that this server cannot execute are named, and stay.
    for text in ("root://far.example.org//two", "is not on an export with mig", "notifications of requests are not sent"):
        wait_until(lambda: text in server.output())  # noqa: B023
    files = record_files(server)
    assert {"pstgQ.1.imported", "pstgQ.0.partly-imported", "getfQ.2.imported", "migrQ.0"} <= set(files), files
    # Another start finds nothing to do, also if the files have gone from the disk.
    for name in names(server.tree):
        (server.tree / name).unlink()
    server.stop()
    server.start()
    assert agent(daemon, server, "?")[0] == [""]
    assert names(server.tree) == [] and record_files(server) == files


def test_a_copy_that_their_daemon_had_begun_is_not_lost(tape, site, daemon):  # noqa: F811
    server = site()
    for name in ("one", "two", "three", "four"):
        tape.put(name, name.encode() * 1000)
    theirs(server, "frm_xfragent", lines=["+ ID1 - 0 w /one /two /three /four"])
    with tape.flag("hold"), real_daemon(server):
        # The daemon takes requests out of the chain of their file when it begins with them.
        wait_until(lambda: len(tape.runs()) >= 2)
    begun = len(tape.runs())
    assert begun < 4
    # Our own daemon takes over as well as a server.
    ours = daemon("frm_xfrd", server).start()
    wait_until(lambda: {"one", "two", "three", "four"} <= set(names(server.tree)))
    assert ours.end() == 0
    assert len(tape.runs()) == begun + 4 and record_files(server).count("pstgQ.0.imported") == 1
    for name in ("one", "two", "three", "four"):
        assert (server.tree / name).read_bytes() == name.encode() * 1000


def test_a_file_that_cannot_be_read_is_named_and_kept(tape, site, daemon):  # noqa: F811
    server = site()
    tape.put("one", b"1")
    theirs(server, "frm_xfragent", lines=["+ ID1 - 0 w /one"])
    broken = queues(server) / "putfQ.1"
    broken.write_bytes(b"no record " * 2000)
    for _ in range(2):
        server.start()
        wait_until(lambda: "one" in names(server.tree))
        wait_until(lambda: "no request of this queue of XRootD's frm_xfrd can be used; it stays" in server.output())
        wait_until(lambda: str(broken) in server.output())
        server.stop()
        assert broken.read_bytes() == b"no record " * 2000
    assert len(tape.runs()) == 1
