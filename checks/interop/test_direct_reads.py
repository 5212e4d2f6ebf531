"""Clients on the machine of a cache read its complete files directly (`pss.dca`)."""

import ctypes
import multiprocessing
import os
import platform
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import peers
import raw
from clusters import PYTHONS
from origins import CONTENT, Freezing, pattern
from test_cache import OLD, Cache, place, status
from test_cache_commands import authorized
from test_proxy import PYTHON
from tools import data, run, scalla, wait_until, xrdcp, xrdfs

FULLURL, LCLFILE, REDIRFLAGS = 0x01, 0x40, 0x80
COPIES = "ofs.tpc ttl 90 120 logok\n"
CAPABLE = FULLURL | LCLFILE | REDIRFLAGS
OPEN = struct.pack(">HH", 0, raw.O_READ)
# Only programs of the account of the server are redirected.
ACCOUNT = peers.unprivileged() if os.geteuid() == 0 else None
AS_SERVER = ["/usr/bin/setpriv", "--reuid=%d" % ACCOUNT[0], "--regid=%d" % ACCOUNT[1], "--clear-groups", "--"] if ACCOUNT else []
SET_DUMPABLE = 4


class BoundCache(Cache):
    """A cache with its directory mounted onto itself, as `ReadWritePaths` of systemd does."""

    def command(self):
        self.as_user = False
        shell = 'mount --bind "$1" "$1" && shift && exec "$@"'
        return ["unshare", "-m", "sh", "-c", shell, "sh", self.tree, *AS_SERVER, *super().command()]


def without_netlink():
    """Refuses sockets of the family AF_NETLINK with EAFNOSUPPORT, as `RestrictAddressFamilies` of systemd does."""
    load, equal, end = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("HBBI", *step) for step in (
        (load, 0, 0, 0), (equal, 0, 3, 41), (load, 0, 0, 16), (equal, 0, 1, 16), (end, 0, 0, 0x50061), (end, 0, 0, 0x7FFF0000),
    ))
    steps = ctypes.create_string_buffer(program)
    chosen = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, chosen, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def login(cache, ability=CAPABLE, pid=None):
    connection = raw.Connection(cache, login=False)
    connection.hello()
    connection.login(pid=os.getpid() if pid is None else pid, ability=ability)
    return connection


def opened(cache, path="/f", ability=CAPABLE, options=raw.O_READ, pid=None, account=ACCOUNT):
    """Opens a file as a program of an account, and returns the path of the local file to which it is redirected, or None."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), become, (account,)) as child:
        return child.submit(open_here, Address(cache), path, ability, options, pid).result(60)


def become(account):
    if account is not None:
        os.setgroups([])
        os.setresgid(*[account[1]] * 3)
        os.setresuid(*[account[0]] * 3)
        # As after the start of a program.
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)


class Address:
    """What a connection needs of a server."""

    def __init__(self, server):
        self.port, self.bare_address = server.port, getattr(server, "bare_address", "localhost")


def open_here(server, path, ability, options, pid):
    connection = login(server, ability, pid)
    connection.start(raw.OPEN, struct.pack(">HH", 0, options), path.encode())
    frame = connection.answer()
    if frame.status != raw.REDIRECT:
        assert frame.status == raw.OK, frame
        return None
    (port,), url = struct.unpack(">i", frame.body[:4]), frame.body[4:].decode()
    assert port == -1 and url.startswith("file://localhost/"), url
    return Path(url.removeprefix("file://localhost"))


def fetch(cache, tmp_path, name="f"):
    """Lets a cache fetch a file completely."""
    xrdcp("-f", cache.url(f"/{name}"), tmp_path / "fetched").ok()
    wait_until(lambda: cache.is_complete(name))


def names(cache):
    return sorted((cache.tree / ".scalla-cache/direct").glob("*"))


@pytest.fixture(params=[peers.Ours, peers.Theirs], ids=["ours", "theirs"])
def origin(request):
    with request.param() as server:
        place(server, "f", CONTENT)
        yield server


@pytest.mark.parametrize("words", ["", "world", "recheck off group"])
def test_a_complete_file_is_redirected_and_keeps_its_mode(origin, tmp_path, words):
    with Cache(origin.host, f"pss.dca {words}\n") as cache:
        assert opened(cache) is None, "nothing is cached"
        fetch(cache, tmp_path)
        local = opened(cache)
        assert local.read_bytes() == CONTENT and local.stat().st_mode & 0o7777 == 0o600
        assert opened(cache) == local and names(cache) == [local]
        assert status(cache.tree)["server"]["direct_opens"] == 2
        assert opened(cache, options=raw.O_READ | raw.O_RETSTAT) == local


def test_real_programs_read_the_local_file(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        for more in ([], ["-S", "4"], ["--cksum", "adler32:print"]):
            target = cache.work / "copied"
            copied = run([*AS_SERVER, peers.real("xrdcp"), "-f", "-d", "3", *more, cache.url("/f"), target]).ok()
            assert target.read_bytes() == CONTENT
            assert ".scalla-cache/direct/" in copied.err, copied.err
        shown = run([*AS_SERVER, peers.real("xrdfs"), cache.host, "cat", "/f"]).ok()
        assert shown.raw == CONTENT
        before = status(cache.tree)["server"]["direct_opens"]
        for number, python in enumerate(PYTHONS, 1):
            found = run([*AS_SERVER, python, "-c", PYTHON, cache.url("/f"), len(CONTENT)]).ok().raw
            assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]
            assert status(cache.tree)["server"]["direct_opens"] == before + number
        scalla("cp", "--force", cache.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT


def test_other_clients_and_writers_are_served_as_without_it(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        for ability in (0, FULLURL, LCLFILE & ~FULLURL, FULLURL | REDIRFLAGS):
            assert opened(cache, ability=ability) is None, ability
        assert opened(cache, options=raw.O_UPDT) is None
    with Cache(origin.host) as cache:
        fetch(cache, tmp_path)
        assert opened(cache) is None, "the directive is missing"


def test_an_incomplete_file_is_not_redirected(origin):
    with Cache(origin.host, "pss.dca\npfc.prefetch 0\n") as cache:
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 100_000) == CONTENT[:100_000]
        assert opened(cache) is None and names(cache) == []


def test_damaged_data_is_not_given_to_clients(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        cache.kill()
        with open(cache.tree / "f", "r+b") as stored:
            stored.seek(1_000_000)
            stored.write(b"damage")
        cache.start()
        assert opened(cache) is None and names(cache) == []
        # The server serves the client, which heals the file.
        fetch(cache, tmp_path)
        assert (tmp_path / "fetched").read_bytes() == CONTENT
        assert opened(cache).read_bytes() == CONTENT


def test_a_changed_file_is_another_local_file(origin, tmp_path):
    new = data(200_000)
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        before = opened(cache)
        place(origin, "f", new, OLD + 100)
        assert opened(cache) is None
        # A client that comes late still finds what it was sent to.
        assert before.read_bytes() == CONTENT
        fetch(cache, tmp_path)
        after = opened(cache)
        assert after != before and after.read_bytes() == new and before.read_bytes() == CONTENT


def test_a_file_with_a_lease_is_not_evicted(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        evicted = scalla("cache", "evict", cache.tree, "/f")
        assert "in use" in evicted.out + evicted.err, evicted.out + evicted.err
        assert local.read_bytes() == CONTENT and cache.files() == ["f"]


def test_a_restart_removes_the_names_and_keeps_the_files(tmp_path):
    with Freezing() as origin, Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        reads = origin.counts[raw.READ]
        cache.kill()
        assert scalla("cache", "verify", cache.tree).ok() and local.exists()
        cache.start()
        wait_until(lambda: names(cache) == [])
        again = opened(cache)
        assert again != local and not local.exists() and again.read_bytes() == CONTENT and origin.counts[raw.READ] == reads


def test_a_reader_keeps_its_version_over_a_crash_and_a_change(origin, tmp_path):
    new = data(len(CONTENT))[::-1]
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        with open(opened(cache), "rb") as local:
            half = local.read(len(CONTENT) // 2)
            cache.kill()
            place(origin, "f", new, OLD + 100)
            cache.start()
            fetch(cache, tmp_path)
            assert opened(cache).read_bytes() == new
            assert half + local.read() == CONTENT


def test_with_an_authorization_all_clients_are_served(origin, tmp_path):
    """The authorization sees nothing of a direct read."""
    with authorized(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        wait_until(lambda: "pss.dca has no effect with ofs.authorize" in cache.output())
        assert opened(cache) is None and names(cache) == []


def test_with_logins_all_clients_are_served(origin, tmp_path):
    with Cache(origin.host, "xrootd.seclib libXrdSec.so\nsec.protocol unix\npss.dca\n") as cache:
        fetch(cache, tmp_path)
        wait_until(lambda: "pss.dca has no effect with xrootd.seclib" in cache.output())
        fetch(cache, tmp_path)
        assert status(cache.tree)["server"]["direct_opens"] == 0 and names(cache) == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter of system calls is for this machine")
def test_a_server_that_cannot_look_up_sockets_says_so_and_serves(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n", limits=without_netlink) as cache:
        line = "pss.dca has no effect: the kernel does not tell which process has a connection"
        wait_until(lambda: line in cache.output())
        fetch(cache, tmp_path)
        assert opened(cache) is None and names(cache) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has clients of other accounts")
def test_a_process_that_does_not_have_the_connection_is_not_that_of_the_client(origin, tmp_path):
    """Clients in containers have numbers that are those of other processes on the machine."""
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        for pid in (1, 2, os.getppid()):
            assert opened(cache, pid=pid) is None, pid
        assert opened(cache, pid=cache.process.pid) is None
        assert opened(cache) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has clients of other accounts")
def test_programs_of_other_accounts_are_served(origin, tmp_path):
    """The server cannot see whether they have the connection."""
    with Cache(origin.host, "pss.dca world\n") as cache:
        fetch(cache, tmp_path)
        for account in ((0, 0), (1, 1), (1, ACCOUNT[1]), (ACCOUNT[0], 1)):
            assert opened(cache, account=account) is None, account
        assert opened(cache) is not None


def test_an_open_for_writing_that_becomes_one_for_reading_is_not_redirected(origin, tmp_path):
    """The client would write to the file in the cache."""
    with Cache(origin.host, "pss.dca\n", export="/ forcero") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        for options in (raw.O_UPDT, raw.O_DELETE, raw.O_NEW, raw.O_APND, raw.O_READ | raw.O_UPDT):
            assert opened(cache, options=options) is None, options
        (tmp_path / "new").write_bytes(b"new")
        assert xrdcp("-f", tmp_path / "new", cache.url("/f")).status != 0
        assert local.read_bytes() == CONTENT and opened(cache) == local


def test_files_of_copies_between_servers_are_served(origin, tmp_path):
    with peers.Ours(settings=COPIES) as other, Cache(origin.host, f"pss.dca\n{COPIES}") as cache:
        fetch(cache, tmp_path)
        assert opened(cache) is not None
        for how in ("only", "first"):
            xrdcp("-f", "--tpc", how, cache.url("/f"), other.url(f"/{how}")).ok()
            assert (other.tree / how).read_bytes() == CONTENT
        # A client that accepts no local files grants the file to one that does.
        granting = raw.Connection(cache)
        granting.open("/f?tpc.key=abc&tpc.dst=127.0.0.1&tpc.ttl=60")
        asked = b"/f?tpc.key=abc&tpc.org=tester.1234@127.0.0.1"
        assert len(login(cache).ask(raw.OPEN, OPEN, asked)) >= 4


def test_a_start_without_the_directive_removes_the_names(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        assert local.parent.stat().st_mode & 0o777 == 0o700, "others cannot list the names"
        cache.kill()
        cache.settings = cache.settings.replace("pss.dca\n", "")
        cache.start()
        wait_until(lambda: names(cache) == [])


def test_the_end_of_the_server_removes_the_names_and_readers_go_on(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        with open(opened(cache), "rb") as local:
            assert cache.stop() == 0
            assert names(cache) == []
            scalla("cache", "evict", cache.tree, "/f").ok()
            assert cache.files() == [] and local.read() == CONTENT


def test_room_is_made_without_files_that_clients_read_directly(origin, tmp_path):
    """The file that was not used for the longest time has a direct reader, and stays."""
    for name in ("d/f", "d/g"):
        place(origin, name, CONTENT)
    cache = Cache(origin.host, "pss.dca\n")
    quotas = cache.work / "quotas"
    cache.settings += f"pfc.purgelib libXrdPfcPurgeQuota.so {quotas}\n"
    peers.place(quotas, f"/d {len(CONTENT) * 3 // 2}\n".encode())
    with cache:
        fetch(cache, tmp_path, "d/f")
        with open(opened(cache, "/d/f"), "rb") as local:
            xrdcp("-f", cache.url("/d/g"), tmp_path / "g").ok()
            wait_until(lambda: cache.files() == ["d/f"], 60)
            assert local.read() == CONTENT and opened(cache, "/d/f") == Path(local.name)


def test_parts_of_a_file_stay_while_a_client_reads_it_directly(origin, tmp_path):
    """Parts of another file make room, and those of this one when the client has closed it and its name has ended."""
    kept, other = pattern(100_000_000), pattern(200_000_017)
    place(origin, "d/f", kept)
    place(origin, "d/g", other)
    with Cache(origin.host, "pss.dca\npfc.diskusage 0.98 0.99 files 50m 150m 220m\n") as cache:
        fetch(cache, tmp_path, "d/f")
        found = []
        # All of it is compared before.
        wait_until(lambda: found.append(opened(cache, "/d/f")) or found[-1] is not None, 60)
        evicted = lambda: status(cache.tree)["server"]["evicted_parts"]
        with open(found[-1], "rb") as local:
            for _ in range(3):
                xrdcp("-f", cache.url("/d/g"), tmp_path / "g").ok()
                assert (tmp_path / "g").read_bytes() == other
            wait_until(lambda: evicted() > 0, 60)
            assert cache.is_complete("d/f") and local.read() == kept
            # The space of a part would be free.
            assert os.fstat(local.fileno()).st_blocks * 512 >= len(kept)
            assert opened(cache, "/d/f") == found[-1]
            # A server that has not given the name does not know the client.
            cache.kill()
            cache.settings = cache.settings.replace("pss.dca\n", "").replace("50m 150m 220m", "10m 30m 60m")
            cache.start()
            wait_until(lambda: names(cache) == [] and status(cache.tree)["server"]["evicted_bytes"] > 0, 60)
            xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
            local.seek(0)
            assert local.read() == kept and os.fstat(local.fileno()).st_blocks * 512 >= len(kept)
        wait_until(lambda: status(cache.tree)["stored_bytes"] <= 60 << 20, 120)
        xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == kept


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "100%", "a#b", "\u00fc\u00e4", "a'b;c", "a\\b", "-f", "x" * 200])
def test_the_local_name_has_nothing_of_the_name_of_the_file(origin, name):
    place(origin, f"d {name}/{name}", CONTENT)
    with Cache(origin.host, "pss.dca\n") as cache:
        path = f"/d {name}/{name}"
        connection = raw.Connection(cache)
        handle = connection.open(path)
        assert connection.read(handle, 0, len(CONTENT)) == CONTENT
        found = []
        wait_until(lambda: found.append(opened(cache, path)) or found[-1] is not None)
        assert found[-1].parent == cache.tree.resolve() / ".scalla-cache/direct" and len(found[-1].name) == 32
        assert found[-1].read_bytes() == CONTENT


class Relay:
    """A program on this machine that forwards connections, as a forwarded port does."""

    def __init__(self, server):
        self.server = server
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.bare_address, self.port = self.listener.getsockname()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("localhost", self.server.port))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=ends, daemon=True).start()

    @staticmethod
    def forward(source, target):
        try:
            while piece := source.recv(65_536):
                target.sendall(piece)
        except OSError:
            pass
        finally:
            target.close()


def test_a_client_behind_a_relay_is_served(origin, tmp_path):
    """The other end of the connection is a program here, and the process of the client is on another machine."""
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        for pid in (0, -1, 1 << 30):
            assert opened(cache, pid=pid) is None, pid
        relay = Relay(cache)
        try:
            assert opened(relay, pid=1 << 30) is None
        finally:
            relay.listener.close()
        assert opened(cache) is not None


def relay_as(account, server, ends):
    """A program with an account that forwards connections until it is ended."""
    become(account)
    relay = Relay(server)
    ends.send(relay.port)
    ends.recv()


def test_a_client_with_the_process_number_of_its_relay_is_taken_for_the_relay(origin, tmp_path):
    """The limit that docs/proxy.md names: nothing else of the client can be seen."""
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        here, there = multiprocessing.Pipe()
        relay = multiprocessing.get_context("fork").Process(target=relay_as, args=(ACCOUNT, Address(cache), there), daemon=True)
        relay.start()
        try:
            through = Address(cache)
            through.bare_address, through.port = "127.0.0.1", here.recv()
            assert opened(through, pid=1 << 30) is None and opened(through) is None
            assert opened(through, pid=relay.pid) is not None
        finally:
            relay.kill()
            relay.join()


may_mount = pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode != 0,
    reason="without the right to mount file systems",
)


@may_mount
def test_clients_find_the_names_of_a_server_with_mounts_of_its_own(origin, tmp_path):
    with BoundCache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        assert opened(cache).read_bytes() == CONTENT


@may_mount
def test_a_client_that_does_not_see_the_disk_of_the_cache_is_served(origin, tmp_path):
    """A container that shares the network of the machine."""
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        before = status(cache.tree)["server"]["direct_opens"]
        shell = 'mount -t tmpfs none "$1" && shift && exec "$@"'
        target = cache.work / "copied"
        copy = [*AS_SERVER, peers.real("xrdcp"), "-f", cache.url("/f"), target]
        # Only the directory of the names, and a directory beside the way to it.
        own_numbers = ["-p", "--fork", "--mount-proc"]
        for hidden, direct, more in ((local.parent, 0, []), (local.parent, 0, own_numbers), (Path("/mnt"), 1, [])):
            run(["unshare", "-m", *more, "sh", "-c", shell, "sh", hidden, *copy]).ok()
            assert target.read_bytes() == CONTENT
            assert status(cache.tree)["server"]["direct_opens"] == before + direct, hidden
        assert opened(cache) == local


def test_tools_remove_the_names_before_files(origin, tmp_path):
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        cache.kill()
        scalla("cache", "evict", cache.tree, "/f").ok()
        assert not local.exists() and cache.files() == []


def test_a_cache_that_clients_cannot_reach_serves_them(origin, tmp_path):
    tree = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="scalla-closed-"))
    try:
        # A directory above that only members of the group pass.
        closed = [("closed", 0o710)] if ACCOUNT else []
        for name, mode in (*closed, ("a%b", 0o755)):
            (tree / name).mkdir()
            tree.chmod(mode)
            if ACCOUNT:
                os.chown(tree, 0, ACCOUNT[1])
            peers.give(tree / name)
            with Cache(origin.host, "pss.dca\n", tree=tree / name) as cache:
                fetch(cache, tmp_path)
                assert opened(cache) is None and names(cache) == []
                assert "pss.dca has no effect" in cache.output()
    finally:
        shutil.rmtree(tree)


@pytest.mark.parametrize("options", [["--cksum", "adler32"], ["--cksum", "crc32c:source"]], ids=lambda words: words[1])
def test_a_client_that_compares_checksums_of_both_ends_needs_the_server(origin, tmp_path, options):
    """It asks the last URL for the checksum of the source, and that is the local file."""
    with Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        copy = [*AS_SERVER, peers.real("xrdcp"), "-f", *options, cache.url("/f"), cache.work / "f"]
        assert run(copy).status != 0
    with Cache(origin.host) as cache:
        fetch(cache, tmp_path)
        xrdcp("-f", *options, cache.url("/f"), tmp_path / "f").ok()


def test_the_directive_is_checked():
    for words in ("recheck 5", "recheck soon", "recheck"):
        assert "recheck" in peers.refused_start(Cache("localhost:1", f"pss.dca {words}\n"))
