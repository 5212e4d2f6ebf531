"""`frm_xfrd`, `frm_purged` and `frm_xfragent` of ours: the transfers and purges of a server as processes of their
own, beside servers that start, end and crash."""

import os
import signal
import socket
import subprocess

import pytest

import peers
from test_migration import COPY as OUT
from test_purge import ALL, FOREVER, PIN, set_access, set_copied
from test_residency import is_running, names, tape  # noqa: F401
from tools import data, scalla, wait_until, xrdcp, xrdfs


class Daemon:
    """One of our daemons with the configuration of a server, as its user."""

    def __init__(self, name, server, *arguments):
        self.name, self.server, self.arguments = name, server, arguments
        self.log = server.work / f"{name}.log"
        self.process = None

    def command(self, *more):
        return [str(peers.link(self.name)), "-c", str(self.server.work / "xrootd.cfg"), *self.arguments, *more]

    def popen(self, command, **how):
        user = dict(zip(("user", "group"), peers.unprivileged())) if os.geteuid() == 0 else {}
        if user:
            user["extra_groups"] = []
        return subprocess.Popen(command, env=peers.environment(), cwd=self.server.work, start_new_session=True, **user, **how)

    def start(self):
        with open(self.log, "ab") as log:
            self.process = self.popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: "initialization completed" in self.output() or self.process.poll() is not None)
        return self

    def output(self):
        return self.log.read_text() if self.log.exists() else ""

    def run(self, *more, input=b"", seconds=60):
        """Runs it to its end, and returns its status, output and messages."""
        process = self.popen(self.command(*more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(input, timeout=seconds)
        finally:
            process.kill()
            process.wait()
        return process.returncode, out.decode(), err.decode()

    def end(self, number=signal.SIGTERM):
        if self.process is None:
            return None
        self.process.send_signal(number)
        status = self.process.wait(60)
        self.process = None
        return status


class RealDaemon(Daemon):
    """The real program."""

    def command(self, *more):
        return [peers.real(self.name), *super().command(*more)[1:]]


@pytest.fixture
def daemon():
    daemons = []

    def make(*arguments):
        daemons.append(Daemon(*arguments))
        return daemons[-1]

    yield make
    for one in daemons:
        one.end(signal.SIGKILL)


@pytest.fixture
def site(tape):  # noqa: F811
    """A server with a tape that is configured, and runs only when a test starts it."""
    servers = []

    def make(more="", export="/ stage", tree=None):
        server = peers.Linked(settings=tape.copies_in(more=more), export=export, tree=tree)
        servers.append(server)
        # Writes the configuration.
        server.command()
        return server

    yield make
    for server in servers:
        server.remove()


def agent(daemon, server, *lines):
    """Gives lines to an agent, and returns its output and messages."""
    status, out, err = daemon("frm_xfragent", server).run(input="".join(f"{line}\n" for line in lines).encode())
    assert status == 8, err
    return out.splitlines(), err


def test_requests_are_notified_of_their_files(tape, site, daemon):  # noqa: F811
    server = site()
    tape.put("one", b"1")
    pipe = server.work / "events"
    os.mkfifo(pipe)
    peers.give(pipe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        to = f"udp://127.0.0.1:{receiver.getsockname()[1]}/text"
        agent(daemon, server, f"+ ID1 {to} 0 w /one", f"+ ID2 {to} 0 wn /one", f"+ ID3 {to} 0 wq /none",
              f"+ ID4 {to}\rfile://{pipe} 0 w /none", f"+ ID5 file:///{pipe} 0 ws /one")
        xfrd = daemon("frm_xfrd", server).start()
        found = {receiver.recv(1000) for _ in range(2)}
        # Success is reported to those that want it, failure to all that are not quiet.
        assert found == {b"ready ID2 text /one", b"unprep ID4 text /none"}
        lines = set()
        wait_until(lambda: lines.update(read_now(reader).splitlines()) or len(lines) == 2)
        assert b"stage OK /one" in lines
        assert any(line.startswith(b"stage ENOENT /none ") for line in lines), lines
        os.close(reader)
    assert xfrd.end() == 0, xfrd.output()


def read_now(descriptor):
    try:
        return os.read(descriptor, 10_000)
    except BlockingIOError:
        return b""


def test_files_that_are_staged_into_a_space_are_complete_for_the_real_tools(tape, site, daemon, small_disk):  # noqa: F811
    peers.give(small_disk)
    server = site(f"oss.space hot {small_disk}\noss.space hot assign /\n")
    tape.put("store/one", b"one" * 1000)
    agent(daemon, server, "+ ID1 - 1 w /store/one")
    xfrd = daemon("frm_xfrd", server).start()
    wait_until(lambda: (server.tree / "store/one").exists())
    assert xfrd.end() == 0, xfrd.output()

    def theirs(*words):
        command = [peers.real("frm_admin"), "-c", server.work / "xrootd.cfg", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return (done.stdout + done.stderr).decode()

    assert "0 problems found" in theirs("audit", "-r", "names", "/store")
    assert "0 problems found" in theirs("audit", "space", "hot")
    assert theirs("query", "space", "/store/one") == f"hot {server.tree}/store/one\n"


def test_requests_of_an_agent_are_executed_without_a_server(tape, site, daemon):  # noqa: F811
    server = site()
    for name in ("one", "two", "store/three"):
        tape.put(name, name.encode() * 1000)
    out, err = agent(daemon, server, "+ ID1 - 1 w /one?x=y /two", "+u.1:2@h ID2 tcp://localhost:9/x 9 wq /store/three",
                     "? lfn prty rid tid", "+ ID3 - 0 w relative", "^ ID4 - 0 w /one", "+ ID5 - 0 w")
    assert out == ["/one 1 ID1 frm_xfragent ", "/two 1 ID1 frm_xfragent ", "/store/three 2 ID2 u.1:2@h ", ""]
    for text in ("notifications (tcp://localhost:9/x) are not sent", "relative is not an absolute path",
                 "/one is not on an export with mig", "ID5 has no path"):
        assert text in err, err
    # Only the acknowledged requests are there when the daemon starts.
    xfrd = daemon("frm_xfrd", server).start()
    wait_until(lambda: {"one", "two", "store"} <= set(names(server.tree)))
    wait_until(lambda: (server.tree / "store/three").exists())
    assert (server.tree / "one").read_bytes() == b"one" * 1000
    # Another daemon has nothing to do here, and neither has XRootD's.
    status, _, err = daemon("frm_xfrd", server).run()
    assert status == 4 and "Another frm_xfrd may already be running!" in err
    with open("/dev/null") as nothing:
        theirs = subprocess.run([peers.real("frm_xfrd"), "-c", server.work / "xrootd.cfg"], stdin=nothing, capture_output=True,
                                timeout=30, check=False)
    assert theirs.returncode == 4 and b"Another frm_xfrd may already be running!" in theirs.stderr
    # A request that comes while it runs begins at once, and not at the next look at the queue.
    tape.put("four", b"4")
    agent(daemon, server, "+ ID6 - 0 w /four")
    wait_until(lambda: (server.tree / "four").exists(), seconds=20)
    assert xfrd.end() == 0, xfrd.output()
    assert agent(daemon, server, "?")[0] == [""]


def test_a_cancel_of_an_agent_ends_a_copy_that_runs(tape, site, daemon):  # noqa: F811
    server = site()
    tape.put("file", b"x" * 5000)
    daemon("frm_xfrd", server).start()
    with tape.flag("hold"):
        agent(daemon, server, "+ ID1 - 0 w /file")
        wait_until(tape.runs)
        agent(daemon, server, "- ID1")
        wait_until(lambda: agent(daemon, server, "?")[0] == [""])
    assert names(server.tree) == []


def test_files_are_removed_after_their_copy(tape, site, daemon):  # noqa: F811
    (tape.directory / "out").write_text(OUT)
    (tape.directory / "out").chmod(0o755)
    server = site(more=f"frm.xfr.copycmd out {tape.directory}/out $SRC $DST\nfrm.xfr.migr.idlehold 0\n",
                  export="/ stage mig purge")
    requests = {"one": "^", "two": "=", "kept": "&", "busy": "^", "pinned": "^"}
    for name in requests:
        path = server.tree / name
        path.write_bytes(name.encode() * 100)
        peers.give(path)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    os.setxattr(server.tree / "pinned", PIN, FOREVER)
    with open(server.tree / "busy", "rb"):
        listed, _ = agent(daemon, server, *(f"{op} {name} - 0 w /{name}" for name, op in requests.items()), "? op lfn")
        assert listed == ["^ /one ", "^ /two ", "& /kept ", "^ /busy ", "^ /pinned ", ""]
        xfrd = daemon("frm_xfrd", server).start()
        wait_until(lambda: names(server.tree) == ["busy", "kept", "pinned"])
        wait_until(lambda: "a file stays on disk after its copy" in xfrd.output())
        wait_until(lambda: all(tape.content(name) == name.encode() * 100 for name in requests))
        # The content is there before the copy has ended.
        wait_until(lambda: agent(daemon, server, "? op lfn")[0] == ["^ /busy ", ""])
    # The copy is not repeated when the file is free.
    wait_until(lambda: names(server.tree) == ["kept", "pinned"])
    wait_until(lambda: agent(daemon, server, "?")[0] == [""])
    assert len(tape.runs()) == len(requests)


def test_a_server_takes_over_and_leaves_the_queue_to_the_daemon_again(tape, site, daemon, tmp_path):  # noqa: F811
    server = site()
    content = data(200_000)
    tape.put("file", content)
    xfrd = daemon("frm_xfrd", server).start()
    with tape.flag("hold"):
        agent(daemon, server, "+ ID1 - 0 w /file")
        wait_until(tape.runs)
        server.start()
        wait_until(lambda: "a server executes the transfers from now on" in xfrd.output())
        wait_until(lambda: len(tape.runs()) == 2)
    target = tmp_path / "target"
    xrdcp(server.url("/file"), target).ok()
    assert target.read_bytes() == content and len(tape.runs()) == 2
    # What a client has asked for survives the crash of the server, and does not wait for its next start.
    for name in ("next", "later"):
        tape.put(name, content)
    with tape.flag("hold"):
        assert xrdfs(server, "prepare", "-s", "/next", "/later").ok()
        wait_until(lambda: len(tape.runs()) == 4)
        server.kill()
        wait_until(lambda: "no server runs: executing transfers" in xfrd.output().split("from now on")[-1])
    wait_until(lambda: {"next", "later"} <= set(names(server.tree)))
    assert (server.tree / "next").read_bytes() == (server.tree / "later").read_bytes() == content
    # The other way: the daemon dies, and a server goes on.
    tape.put("last", content)
    with tape.flag("hold"):
        agent(daemon, server, "+ ID2 - 0 w /last")
        wait_until(lambda: any(run.endswith("/last") for run in tape.runs()))
        xfrd.end(signal.SIGKILL)
        server.start()
    wait_until(lambda: "last" in names(server.tree))
    assert (server.tree / "last").read_bytes() == content


def test_a_server_with_the_queue_keeps_a_daemon_from_it(tape, site, daemon):  # noqa: F811
    server = site()
    server.start()
    wait_until(lambda: "initialization completed" in server.output())
    tape.put("file", b"x")
    xfrd = daemon("frm_xfrd", server).start()
    wait_until(lambda: "standing by" in xfrd.output())
    agent(daemon, server, "+ ID1 - 0 w /file")
    wait_until(lambda: "file" in names(server.tree), seconds=20)
    assert "executing transfers" not in xfrd.output() and len(tape.runs()) == 1
    os.kill(xfrd.process.pid, signal.SIGHUP)
    assert xfrd.end() == 0


def purgeable(server, tape, all_names):  # noqa: F811
    """Puts files with a copy on the disk, the first one with the oldest access."""
    for number, name in enumerate(all_names):
        tape.put(name, b"x" * 300_000)
        path = server.tree / name
        path.write_bytes(b"x" * 300_000)
        peers.give(path)
        set_copied(path, f"/{name}", 1_000_000_000)
        set_access(path, 1_000_000_000 + number)


def test_a_purge_at_once_removes_what_was_ordered(tape, site, daemon, small_disk):  # noqa: F811
    peers.give(small_disk)
    server = site(export="/ stage purge", tree=small_disk)
    server.start()
    purgeable(server, tape, [f"file{number}" for number in range(10)])
    (server.tree / "own").write_bytes(b"y" * 300_000)
    purged = daemon("frm_purged", server)
    status, _, err = purged.run("-T", "-O", "6m,0")
    assert status == 0 and err.count("Zorch") == 10 and len(names(server.tree)) == 11, err
    status, _, err = purged.run("-O", "5m,99999d")
    assert status == 0 and len(names(server.tree)) == 11, "all files are within this hold time"
    status, _, err = purged.run("-O", "6m,0")
    left = names(server.tree)
    # 8 MiB less 6 MiB are 6 of 11 files.
    assert status == 0 and left == ["file4", "file5", "file6", "file7", "file8", "file9", "own"][-len(left):] and len(left) == 6, (left, err)
    assert "Purge cycle ended." in err
    for words, text in ((["-O", "6m,0", "nospace"], "Space nospace not defined."), (["-O", "6m,0", "relative/"], "not defined"),
                        (["-O", "x"], "-O takes free"), (["-q"], "'q' option is invalid")):
        status, _, err = purged.run(*words)
        assert status in (1, 4) and text in err, err
    # A purge that another process does is awaited, and the file that stops purges stops this one.
    (server.work / "admin/frm/STOPPURGE").touch()
    status, _, err = purged.run("-O", "7m,0")
    assert status == 0 and names(server.tree) == left and "STOPPURGE exists" in err


def test_purges_of_a_daemon_and_of_a_server_exclude_each_other(tape, site, daemon, small_disk):  # noqa: F811
    peers.give(small_disk)
    more = f"frm.purge.policy {ALL} hold 0\nfrm.purge.waittime 1\n"
    server = site(more=more, export="/ stage purge", tree=small_disk)
    purged = daemon("frm_purged", server, "-w", "1").start()
    purgeable(server, tape, ["one"])
    wait_until(lambda: names(server.tree) == [])
    status, _, err = daemon("frm_purged", server).run()
    assert status == 4 and "Another frm_purged may already be running!" in err
    count = purged.output().count("purged")
    server.start()
    # From now on the server purges, because it tells its cluster.
    purgeable(server, tape, ["two"])
    wait_until(lambda: names(server.tree) == [])
    assert purged.output().count("purged") == count
    done = scalla("residency", "--admin-path", server.work / "admin", "status").ok().out
    assert "removed" in done
    server.kill()
    purgeable(server, tape, ["three"])
    wait_until(lambda: names(server.tree) == [])
    assert purged.output().count("purged") > count
    assert purged.end() == 0


def test_a_daemon_without_work_says_so(tape, site, daemon):  # noqa: F811
    server = site(export="/ nostage")
    status, _, err = daemon("frm_xfrd", server).run()
    assert status == 4 and "No copy commands specified; execution is meaningless!" in err
    status, _, err = daemon("frm_purged", server).run()
    assert status == 4 and "no export is purged" in err
    for name in ("frm_xfrd", "frm_purged", "frm_xfragent"):
        status, _, err = daemon(name, server).run("-h")
        assert status == 0 and f"Usage: {name}  [-b]" in err
    (server.work / "xrootd.cfg").unlink()
    assert daemon("frm_xfrd", server).run()[0] == 4
    assert daemon("frm_xfragent", server).run()[0] == 4


def test_a_daemon_in_the_background_writes_its_pid_and_its_log(tape, site, daemon):  # noqa: F811
    server = site()
    log = server.work / "xfrd.log"
    status, _, err = daemon("frm_xfrd", server).run("-b", "-l", f"={log}", "-s", "xfrd.pid")
    assert status == 0, err
    pid = int((server.work / "xfrd.pid").read_text())
    try:
        assert is_running(pid) and int((server.work / "run/frm_xfrd.pid").read_text()) == pid
        # A server takes over, and the daemon stays the same process.
        wait_until(lambda: "executing transfers" in log.read_text())
        server.start()
        wait_until(lambda: "standing by" in log.read_text())
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_running(pid))


def name_space_events(server):
    """Makes the pipe of the name space daemon, and returns a function that reads the events so far."""
    directory = server.work / "admin/cns"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "XrdCnsd.events")
    for path in (directory.parent, directory, directory / "XrdCnsd.events"):
        peers.give(path)
    reader = os.open(directory / "XrdCnsd.events", os.O_RDWR | os.O_NONBLOCK)
    return lambda: [line.split() for line in read_now(reader).decode().splitlines()]


def test_the_name_space_daemon_gets_the_events_of_the_real_programs(tape, site, daemon):  # noqa: F811
    found = []
    for kind, more in [(kind, more) for more in ("", "frm.all.cnsd auto\n") for kind in (RealDaemon, Daemon)]:
        server = site(more=more, export="/ stage purge")
        events = name_space_events(server)
        purgeable(server, tape, ["file"])
        status, _, err = kind("frm_purged", server).run("-O", "99%,0")
        assert status == 0 and names(server.tree) == [], err
        lines = events()
        # Without the directive there are none.
        assert len(lines) == len(more.splitlines()), (kind, lines, err)
        if not more:
            continue
        ((client, *event),) = lines
        assert client.startswith("purge.") and client.endswith(".0@localhost")
        found.append(event)
    assert found == [["rm", "/file"]] * 2
    # The real frm_xfrd was recorded with these.
    agent(daemon, server, "+ ID1 - 0 w /file")
    xfrd = daemon("frm_xfrd", server).start()
    lines = []
    wait_until(lambda: lines.extend(events()) or len(lines) == 2)
    (client, *create), (other, *close) = lines
    assert (create, close, client) == (["create", "644", "/file"], ["closew", "/file", "300000"], other)
    assert xfrd.end() == 0
