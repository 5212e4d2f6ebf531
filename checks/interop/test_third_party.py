"""Third-party copies: ours and the real server as source and as destination, driven by the real
client.

On one machine the real server knows hosts by address only, so its URLs use addresses."""

import itertools
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from XRootD.client import CopyProcess

import clusters
import hollow
import peers
import raw
import tools
from between import shut_down
from codes import ErrorCode, Exit, ShellCode
from tools import data, wait_until

# A busy machine may delay clients and servers; only tests of timeouts use short ones.
SETTINGS = peers.SETTINGS + "ofs.tpc ttl 90 120 logok{more}\n"
PROGRAM = f" pgm {peers.real('xrdcp')} --server"
SIZE = 5_000_000
HOLD_SECONDS = {"ours": 30, "theirs": 180}
PAIRS = list(itertools.product(("ours", "theirs"), repeat=2))
KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}


def settings(kind, more=""):
    """The real server has no built-in client."""
    return SETTINGS.format(more=more + (PROGRAM if kind == "theirs" else ""))


def url(port, path):
    return f"root://127.0.0.1:{port}/{path}"


def copy(source, target, *options, **environment):
    return tools.xrdcp("-N", *options, source, target, **environment)


@pytest.fixture
def started(begin):
    """Starts servers for copies: `started(kind, more)`."""
    return lambda kind, more="": begin(KINDS[kind](settings=settings(kind, more)))


@pytest.fixture(scope="module")
def servers():
    """Two servers of each kind that no test damages."""
    made = {}
    try:
        for kind, role in itertools.product(KINDS, ("source", "target")):
            made[kind, role] = KINDS[kind](settings=settings(kind)).start()
        yield made
    finally:
        for server in made.values():
            server.remove()


def put(server, name, content):
    peers.place(server.tree / name, content)
    return f"/{name}"


def names(server):
    return sorted(entry for entry in os.listdir(server.tree) if not entry.startswith("."))


class Slow:
    """A slow path to a server: it forwards part of a second copy, and a test can cut it."""

    def __init__(self, server, rate=2_000_000, stops_after=None):
        self.to = server.port
        self.rate = rate
        self.left = stops_after
        self.go_on = threading.Event()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.sockets += [near, far]
            for source, sink, rate in ((near, far, None), (far, near, self.rate)):
                threading.Thread(target=self._pass, args=(source, sink, rate), daemon=True).start()

    def _pass(self, source, sink, rate):
        try:
            while part := source.recv(65536):
                sink.sendall(part)
                if rate:
                    time.sleep(len(part) / rate)
                    self._gate(len(part))
        except OSError:
            pass
        shut_down(source, sink)

    def _gate(self, passed):
        """Waits for `go_on` when the allowed bytes have passed."""
        if self.left is not None:
            self.left -= passed
            if self.left <= 0:
                self.go_on.wait()

    def cut(self):
        """Drops all traffic, and accepts no connection."""
        self.listener.close()
        self.go_on.set()
        for one in self.sockets:
            shut_down(one)
            one.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()


@pytest.mark.parametrize("source,target", PAIRS)
@pytest.mark.parametrize("options", [
    ["--tpc", "only"],
    ["--tpc", "first", "-f"],
    ["--tpc", "delegate", "only"],
    ["--tpc", "only", "-S", "4", "--cksum", "adler32"],
    ["--tpc", "only", "--posc", "--cksum", "crc32c"],
], ids=lambda options: "".join(options).replace("--", "-"))
def test_copies(servers, source, target, options):
    source, target = servers[source, "source"], servers[target, "target"]
    content = data(SIZE)
    put(source, "file", content)
    copy(url(source.port, "/file"), url(target.port, "/copies/new"), *options).ok()
    path = target.tree / "copies" / "new"
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o7777 == 0o644
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("source,target", PAIRS)
@pytest.mark.parametrize("when", ["only", "first"])
def test_our_client_by_the_name_of_theirs(servers, source, target, when):
    source, target = servers[source, "source"], servers[target, "target"]
    content = data(SIZE)
    put(source, "ours", content)
    order = [peers.link("xrdcp"), "-N", "-f", "--tpc", when, "--cksum", "adler32"]
    tools.run([*order, url(source.port, "/ours"), url(target.port, "/ours-copy")]).ok()
    assert (target.tree / "ours-copy").read_bytes() == content


@pytest.mark.parametrize("source,target", PAIRS)
def test_delegation(servers, source, target):
    """Servers without `fcreds` report that they do not support it (`tpcdlg`). A client that would
    delegate, the real one or ours under its name, arranges the copy without; `scalla cp` fails."""
    source, target = servers[source, "source"], servers[target, "target"]
    put(source, "delegated", data(SIZE))
    words = url(source.port, "/delegated"), url(target.port, "/delegated-copy")
    for server in (source, target):
        assert tools.xrdfs(server, "query", "config", "tpcdlg").ok().out.split() == ["tpcdlg"]
    for program in (tools.XRDCP, peers.link("xrdcp")):
        for mode in ("only", "first"):
            tools.run([program, "-N", "-f", "--tpc", "delegate", mode, *words]).ok()
            assert (target.tree / "delegated-copy").read_bytes() == data(SIZE)
            (target.tree / "delegated-copy").unlink()
    tools.scalla("cp", "--tpc", "delegate", *words).fails(Exit.FAILED, "does not copy with delegated credentials")
    assert not (target.tree / "delegated-copy").exists()


@pytest.mark.parametrize("source,target", PAIRS)
def test_an_empty_file(servers, source, target):
    source, target = servers[source, "source"], servers[target, "target"]
    put(source, "empty", b"")
    copy(url(source.port, "/empty"), url(target.port, "/empty-copy"), "--tpc", "only", "-f").ok()
    assert (target.tree / "empty-copy").read_bytes() == b""


def test_hosts_may_be_named(servers):
    """Where only the name of a host differs, it is resolved."""
    source, target = servers["ours", "source"], servers["ours", "target"]
    content = data(100_000)
    put(source, "named", content)
    for one, other in ((source.url("/named"), target.url("/named")), (source.url("/named"), url(target.port, "/named")),
                       (url(source.port, "/named"), target.url("/named"))):
        copy(one, other, "--tpc", "only", "-f").ok()
        assert (target.tree / "named").read_bytes() == content


def test_a_program_of_the_site_copies(started):
    source, strange = started("ours"), started("ours", " ttl 2 2")
    target = started("ours", f" cksum adler32 streams 2 scan stderr echo{PROGRAM}")
    content = data(SIZE)
    put(source, "file", content)
    copy(url(source.port, "/file"), url(target.port, "/file"), "--tpc", "only").ok()
    assert (target.tree / "file").read_bytes() == content
    # The program has no permission: its last output is the reason.
    with raw.Connection(target) as client:
        handle = client.open(f"/new?tpc.key=k&tpc.src=127.0.0.1:{strange.port}&tpc.lfn=/file&tpc.stage=copy", raw.O_NEW | raw.O_UPDT)
        client.sync(handle)
        with pytest.raises(raw.Failed) as failed:
            client.sync(handle)
        assert "Unable to copy root://127.0.0.1" in failed.value.text and str(ErrorCode.NOT_AUTHORIZED.value) in failed.value.text
        client.close(handle)
    assert names(target) == ["file"]


def test_a_source_that_does_not_permit_it(started):
    """The ttl expires without a permission: an error names source and reason, and no file is left."""
    source, target = started("ours", " ttl 2 2"), started("ours")
    put(source, "file", b"x")
    with raw.Connection(target) as client:
        handle = client.open(f"/new?tpc.key=k&tpc.src=127.0.0.1:{source.port}&tpc.lfn=/file&tpc.stage=copy", raw.O_NEW | raw.O_UPDT)
        client.sync(handle)
        with pytest.raises(raw.Failed) as failed:
            client.sync(handle)
        assert failed.value.code == ErrorCode.FS_ERROR
        assert failed.value.text == f"Unable to copy root://127.0.0.1:{source.port}//file; open: tpc authorization expired"
        client.close(handle)
    assert names(target) == []


@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_the_client_is_stopped(started, source):
    """Ctrl-C: no file is left at the destination, and the source receives no more requests."""
    source, target = started(source), started("ours")
    put(source, "file", data(SIZE * 8))
    with Slow(source) as way:
        client = subprocess.Popen(["timeout", "60", "xrdcp", "-N", "--tpc", "only", url(way.port, "/file"), url(target.port, "/new")],
                                  env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_until(lambda: names(target) == ["new"] and (target.tree / "new").stat().st_size > 0)
        os.killpg(client.pid, signal.SIGINT)
        client.wait(30)
        wait_until(lambda: names(target) == [])
    assert target.alive()


@pytest.mark.parametrize("target", ["ours", "theirs"])
def test_a_copy_has_a_timeout(started, target):
    """`XRD_CPTPCTIMEOUT`: our client gives up a copy that takes longer, and no file stays at the
    destination."""
    source, target = started("ours"), started(target)
    put(source, "file", data(SIZE * 8))
    with Slow(source) as way:
        words = "--tpc", "only", url(way.port, "/file"), url(target.port, "/new")
        tools.scalla("cp", *words, XRD_REQUESTTIMEOUT="", XRD_CPTPCTIMEOUT="4").fails(1, "no answer within", "new")
        # A real destination removes it only after its hold time and a later scan, which is slow
        # under load.
        wait_until(lambda: names(target) == [], seconds=HOLD_SECONDS[target.kind])
    tools.scalla("cp", "--tpc", "only", url(source.port, "/file"), url(target.port, "/new"), XRD_REQUESTTIMEOUT="", XRD_CPTPCTIMEOUT="100").ok()
    assert (target.tree / "new").read_bytes() == data(SIZE * 8)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_server_that_never_answers(started, later):
    """`XRD_CPINITTIMEOUT`: a destination that does not answer is given up while the copy is
    arranged."""
    source = started("ours")
    put(source, "file", b"x")
    with hollow.Debtor("1 4096 19 1700000000", later) as mute:
        words = url(source.port, "/file"), url(mute.port, "/new")
        tools.scalla("cp", "--tpc", "only", *words, XRD_REQUESTTIMEOUT="", XRD_CPINITTIMEOUT="3").fails(1, mute.host, "no answer within 3 s")
        tools.scalla("cp", "--tpc", "first", *words, XRD_REQUESTTIMEOUT="3").fails(1, mute.host)


@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_the_source_vanishes(started, source):
    source, target = started(source), started("ours")
    put(source, "file", data(SIZE * 8))
    with Slow(source) as way:
        client = subprocess.Popen(["timeout", "200", "xrdcp", "-N", "--tpc", "only", url(way.port, "/file"), url(target.port, "/new")],
                                  env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: names(target) == ["new"] and (target.tree / "new").stat().st_size > 0)
        source.kill()
        way.cut()
        _, errors = client.communicate(timeout=180)
    assert client.returncode not in (0, 124)
    # The stock client formats addresses in its own way.
    assert "Unable to copy root://" in errors and f":{way.port}//file; pgread: " in errors
    wait_until(lambda: names(target) == [])


def test_the_destination_is_killed(started):
    """The remaining file has the mark of an incomplete one, is not read as a complete one, and does
    not block the next copy."""
    source, target = started("ours"), started("ours")
    content = data(SIZE * 4)
    put(source, "file", content)
    with Slow(source) as way:
        client = subprocess.Popen(["timeout", "100", "xrdcp", "-N", "--tpc", "only", url(way.port, "/file"), url(target.port, "/new")],
                                  env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = target.tree / "new"
        wait_until(lambda: path.exists() and path.stat().st_size > 0)
        target.kill()
        assert path.stat().st_mode & 0o1000
        client.kill()
        client.wait()
    target.start()
    read = tools.xrdcp("-f", "-N", url(target.port, "/new"), os.devnull, XRD_REQUESTTIMEOUT="5")
    assert read.status != 0
    copy(url(source.port, "/file"), url(target.port, "/new"), "--tpc", "only", "-f").ok()
    assert path.read_bytes() == content and not path.stat().st_mode & 0o1000


def test_a_checksum_that_differs_is_refused(started):
    """The source reports the checksum it has stored, which differs from that of its data."""
    source, target = started("ours"), started("ours", " cksum adler32")
    put(source, "file", b"right")
    tools.xrdfs(source, "query", "checksum", "/file").ok()
    path = source.tree / "file"
    times = path.stat()
    path.write_bytes(b"wrong")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = copy(url(source.port, "/file"), url(target.port, "/new"), "--tpc", "only")
    done.fails(ShellCode.SERVER_ERROR, "checksum of the source is 065c021f", "that of the copy 06b0022e")
    assert names(target) == []


def test_progress_is_visible(started):
    """While a copy stalls in its middle its target shows a part, and does not count it as complete.
    Our destination writes in the order of the file and reads four pieces of 2 MiB ahead, which
    arrive in any order: the first is there when all four are."""
    source, target = started("ours"), started("ours")
    whole = SIZE * 4
    put(source, "file", data(whole))
    with Slow(source, rate=20_000_000, stops_after=whole // 2) as way, raw.Connection(target, pid=77) as client, raw.Connection(source, pid=77) as other:
        handle = client.open(f"/new?tpc.key=k&tpc.src=127.0.0.1:{way.port}&tpc.lfn=/file&tpc.stage=copy", raw.O_NEW | raw.O_UPDT)
        client.sync(handle)
        other.open("/file?tpc.key=k&tpc.dst=127.0.0.1&tpc.stage=copy", raw.O_READ)
        sync = client.start(raw.SYNC, handle)
        assert client.frame().status == raw.WAITRESP

        def size():
            client.start(raw.STAT, bytes(12) + handle)
            frame = client.frame()
            assert frame.status == raw.OK
            return int(frame.body.split()[1])

        wait_until(lambda: 0 < size() < whole)
        way.go_on.set()
        end = client.frame()
        assert end.status == raw.ATTN and end.body[8:12] == sync.to_bytes(2, "big") + b"\0\0"
        assert size() == whole


def test_copies_wait_for_their_turn(started):
    source, target = started("ours"), started("ours", " xfr 1")
    contents = {f"file{n}": data(300_000, n) for n in range(6)}
    for name, content in contents.items():
        put(source, name, content)
    clients = [subprocess.Popen(["timeout", "100", "xrdcp", "-N", "--tpc", "only", url(source.port, f"/{name}"), url(target.port, f"/{name}")],
                                env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for name in contents]
    assert [client.wait() for client in clients] == [0] * len(clients)
    assert {name: (target.tree / name).read_bytes() for name in contents} == contents


@pytest.mark.parametrize("mode", ["only", "first"])
def test_without_the_directive_nothing_is_offered(mode, server, area):
    """A destination refuses, and the stock client stops."""
    area.put("file", b"x")
    address = f"root://127.0.0.1:{server.port}/"
    refused = copy(address + (area / "file"), address + (area / "new"), "--tpc", mode)
    refused.fails(ShellCode.SERVER_ERROR, f"{ErrorCode.UNSUPPORTED.shown} Unable to open {area / 'new'}; tpc not supported")


def test_a_source_without_the_directive_is_copied_through_the_client(ours, area_on, started):
    area, target = area_on(ours), started("ours")
    area.put("file", b"x")
    source = f"root://127.0.0.1:{ours.port}/{area / 'file'}"
    # Other names, because the server may notice the end of the first client after the second has
    # connected.
    assert copy(source, url(target.port, "/refused"), "--tpc", "only").status != 0
    copy(source, url(target.port, "/new"), "--tpc", "first").ok()
    assert (target.tree / "new").read_bytes() == b"x"


def test_rules_of_the_site(started):
    server = started("ours", " restrict /open allow host 10.9.9.9 require client host")
    put(server, "file", b"x")
    (server.tree / "open").mkdir()
    put(server, "open/file", b"x")
    with raw.Connection(server, pid=5) as client:
        for path, options, says in (
            ("/file?tpc.key=k&tpc.dst=127.0.0.1", raw.O_READ, "tpc not allowed for path"),
            ("/new?tpc.key=k&tpc.src=127.0.0.1:1&tpc.stage=copy", raw.O_NEW | raw.O_UPDT, "tpc not allowed for path"),
            ("/open/file?tpc.key=k&tpc.org=tester.5@127.0.0.1", raw.O_READ, "dest not authorized for tpc"),
        ):
            with pytest.raises(raw.Failed) as failed:
                open_later(client, path, options)
            assert failed.value.code == ErrorCode.NOT_AUTHORIZED and says in failed.value.text


def open_later(client, path, options):
    """Opens a file, and retries while the server asks for an immediate retry."""
    while True:
        try:
            return client.open(path, options)
        except AssertionError as waits:
            assert f"unexpected status {raw.WAIT}: {bytes(4)!r}" in str(waits)


def test_through_clusters():
    """Source and destination are behind managers: the selected servers arrange it between
    themselves."""
    plan = clusters.Plan("man manager\none server man\ntwo server man")
    content = data(SIZE)
    with clusters.Cluster(plan, "ours", settings="ofs.tpc ttl 90 120\n") as source, \
            clusters.Cluster(plan, "ours", settings="ofs.tpc ttl 90 120\n") as target:
        put(source.two, "file", content)
        copy(source.man.url("/file"), target.man.url("/new"), "--tpc", "only", "--posc").ok()
        copies = [node.tree / "new" for node in target.servers if (node.tree / "new").exists()]
        assert [path.read_bytes() for path in copies] == [content]


def test_python_client(servers):
    """The newest client, from its wheel."""
    source, target = servers["ours", "source"], servers["ours", "target"]
    content = data(SIZE)
    put(source, "wheel", content)
    process = CopyProcess()
    process.add_job(url(source.port, "/wheel"), url(target.port, "/wheel"), force=True, thirdparty="only", tpctimeout=60)
    assert process.prepare().ok
    status, results = process.run()
    assert status.ok, results
    assert (target.tree / "wheel").read_bytes() == content


@pytest.mark.parametrize("redirected", [False, True])
def test_a_source_outside_the_policy_is_never_connected_to(started, redirected):
    """Neither the one that the client names nor the target of another source's redirect."""
    with socket.create_server(("127.0.0.2", 0)) as inside:
        port = inside.getsockname()[1]
        target = started("ours", "\nscalla.tpcsource deny 127.0.0.2")
        source = f"127.0.0.2:{port}"
        if redirected:
            between = started("ours", f"\nxrootd.redirect {source} /")
            source = f"127.0.0.1:{between.port}"
        with raw.Connection(target) as client:
            handle = client.create(f"/f?tpc.key=k1&tpc.src={source}&tpc.lfn=/f&tpc.stage=copy")
            client.sync(handle)
            with pytest.raises(raw.Failed) as failed:
                client.sync(handle)
            assert "127.0.0.2 is denied as a source (scalla.tpcsource)" in failed.value.text
        inside.setblocking(False)
        with pytest.raises(BlockingIOError):
            inside.accept()
        wait_until(lambda: "f" not in names(target))
