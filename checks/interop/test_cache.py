"""A proxy with a disk cache between real programs and origins, and its disk under a real cache and back."""

import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

import clusters
import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Freezing, Mortal, Proxy
from test_cache_print import SETTINGS
from test_proxy import PYTHON
from tools import data, run, scalla, wait_until, xrdcp, xrdfs

CACHE = "pss.cachelib libXrdPfc.so\npfc.blocksize 64k\npfc.diskusage 0.98 0.99\n"
OLD = 1_700_000_000


class Cache(Proxy):
    """Our proxy with a disk cache in its tree."""

    def __init__(self, origin, settings="", **how):
        super().__init__(origin, settings=CACHE + settings, **how)

    def files(self):
        """The cached files."""
        return sorted(str(path.relative_to(self.tree))[:-6] for path in self.tree.rglob("*.cinfo"))

    def is_complete(self, name):
        """Whether all of a file is cached, in the words of the real program."""
        state = self.tree / f"{name}.cinfo"
        return state.exists() and "state complete" in run([peers.real("xrdpfc_print"), state]).out


def status(tree):
    """The contents of a cache, and what its server knows."""
    return json.loads(scalla("cache", "status", tree, "--json").ok().out)


def place(server, name, content, modified=OLD):
    """Puts a file into the tree of an origin."""
    path = server.tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    peers.give(path.parent)
    peers.place(path, content)
    os.utime(path, (modified, modified))


@pytest.fixture(params=[peers.Ours, peers.Theirs], ids=["ours", "theirs"])
def origin(request):
    with request.param() as server:
        yield server


@pytest.fixture
def cache(origin):
    with Cache(origin.host) as server:
        yield server


def test_each_byte_is_fetched_once_and_kept_over_a_restart(tmp_path):
    with Freezing() as origin, Cache(origin.host) as cache:
        for number in range(3):
            xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT
        cold = origin.counts[raw.READ]
        wait_until(lambda: cache.is_complete("d/f"), 30)
        cache.kill()
        cache.start()
        xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        assert origin.counts[raw.READ] == cold and cache.files() == ["d/f"]


@pytest.mark.parametrize("size", [0, 1, 4095, 65_535, 65_536, 65_537, 5_000_000])
def test_files_of_each_size_are_served_cold_and_warm(origin, cache, size, tmp_path):
    place(origin, "d/f", data(size))
    for _ in range(2):
        xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == data(size)
        if size:
            wait_until(lambda: cache.is_complete("d/f"), 30)
    assert cache.files() == (["d/f"] if size else [])
    assert xrdfs(cache, "ls", "/d").ok().out == "/d/f\n"


def test_many_readers_with_streams_and_page_reads_get_the_same_bytes(origin, cache, tmp_path):
    content = data(20_000_000)
    place(origin, "f", content)
    for _ in range(2):
        with ThreadPoolExecutor(6) as threads:
            copies = [
                threads.submit(xrdcp, "-f", "-S", "4", cache.url("/f"), tmp_path / f"{number}") for number in range(6)
            ]
        for number, copy in enumerate(copies):
            copy.result().ok()
            assert (tmp_path / f"{number}").read_bytes() == content
    connection = raw.Connection(cache)
    handle = connection.open("/f")
    for offset in (0, 4096, 19_999_000):
        answer = connection.read(handle, offset, 5000)
        assert answer == content[offset:offset + 5000]


def test_the_python_client_reads_through_a_cache(origin, cache):
    place(origin, "f", CONTENT)
    for _ in range(2):
        found = run(["/usr/bin/python3", "-c", PYTHON, cache.url("/f"), SIZE]).ok().raw
        assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]


def test_vectors_and_ends_are_read(origin, cache):
    place(origin, "f", CONTENT)
    for _ in range(2):
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, SIZE - 5, 100) == CONTENT[-5:]
        assert connection.read(handle, SIZE + 5, 100) == b""
        pieces = [(offset, 1 + offset % 500) for offset in range(0, SIZE - 600, 7919)]
        payload = b"".join(struct.pack(">4siq", handle, length, offset) for offset, length in pieces)
        answer = connection.ask(raw.READV, payload=payload)
        expected = b"".join(
            struct.pack(">4siq", handle, length, offset) + CONTENT[offset:offset + length] for offset, length in pieces
        )
        assert answer == expected
        connection.close(handle)


def test_a_changed_file_is_served_anew_and_an_open_one_is_never_mixed(origin, cache, tmp_path):
    old, new = data(2_000_000), data(2_000_000)[::-1]
    place(origin, "f", old)
    connection = raw.Connection(cache)
    handle = connection.open("/f")
    assert connection.read(handle, 0, 1000) == old[:1000]
    place(origin, "f", new, OLD + 5)
    assert connection.read(handle, 0, 1000) == old[:1000]
    assert connection.error(raw.READ, struct.pack(">4sqi", handle, 1_500_000, 1000)) == ErrorCode.FS_ERROR
    xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
    assert (tmp_path / "f").read_bytes() == new


def test_own_changes_are_seen_at_once(origin, cache, tmp_path):
    place(origin, "f", data(300_000))
    xrdfs(cache, "cat", "/f").ok()
    wait_until(lambda: cache.is_complete("f"), 30)
    (tmp_path / "new").write_bytes(data(200_000)[::-1])
    xrdcp("-f", tmp_path / "new", cache.url("/f")).ok()
    assert xrdfs(cache, "cat", "/f").ok().raw == data(200_000)[::-1]
    place(origin, "g", data(1000))
    xrdfs(cache, "cat", "/g").ok()
    wait_until(lambda: cache.is_complete("g"), 30)
    xrdfs(cache, "mv", "/g", "/h").ok()
    xrdfs(cache, "cat", "/g").fails(54)
    assert xrdfs(cache, "cat", "/h").ok().raw == data(1000)
    xrdfs(cache, "truncate", "/h", "10").ok()
    assert xrdfs(cache, "cat", "/h").ok().raw == data(1000)[:10]
    xrdfs(cache, "rm", "/h").ok()
    xrdfs(cache, "cat", "/h").fails(54)


def test_changes_that_the_origin_refuses_remove_nothing():
    names = [f"d/{number}" for number in range(5)]
    with peers.Ours(arguments=["--read-only"]) as origin, Cache(origin.host) as cache:
        for name in names:
            place(origin, name, data(100_000))
            xrdfs(cache, "cat", f"/{name}").ok()
        wait_until(lambda: all(cache.is_complete(name) for name in names), 30)
        connection = raw.Connection(cache)
        handle = connection.open("/d/0")
        for command in (("rm", "/d/0"), ("mv", "/d", "/e"), ("truncate", "/d/0", "10")):
            assert xrdfs(cache, *command).status != 0
        for options in (raw.O_UPDT, raw.O_DELETE):
            with pytest.raises(raw.Failed):
                connection.open("/d/0", options)
        assert cache.files() == names
        # The reader reads what is stored without asking the origin.
        origin.kill()
        assert connection.read(handle, 0, 100_000) == data(100_000)


def test_damage_on_the_disk_is_healed_within_the_read(origin, cache):
    place(origin, "f", CONTENT)
    xrdfs(cache, "cat", "/f").ok()
    wait_until(lambda: cache.is_complete("f"), 30)
    with open(cache.tree / "f", "r+b") as file:
        file.seek(1_000_000)
        file.write(b"\0" * 100)
    assert xrdfs(cache, "cat", "/f").ok().raw == CONTENT


def test_what_is_not_of_the_cache_is_left_alone(origin, cache):
    place(origin, "f", data(1000))
    place(origin, "g.cinfo", data(2000))
    peers.place(cache.tree / "f", b"precious")
    os.symlink("/etc/hostname", cache.tree / "h")
    place(origin, "h", data(3000))
    for name, size in [("f", 1000), ("g.cinfo", 2000), ("h", 3000)]:
        assert xrdfs(cache, "cat", f"/{name}").ok().raw == data(size)
    assert (cache.tree / "f").read_bytes() == b"precious" and cache.files() == []


def test_readers_of_cached_parts_go_on_without_the_origin():
    origin = Mortal()
    with Cache(origin.host) as cache:
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 65_536) == CONTENT[:65_536]
        origin.die()
        assert connection.read(handle, 100, 5000) == CONTENT[100:5100]
        assert str(SIZE) in str(connection.stat(handle=handle))
        code = connection.error(raw.READ, struct.pack(">4sqi", handle, 2_000_000, 100))
        assert code in (ErrorCode.NO_SERVER, ErrorCode.FS_ERROR)


def test_a_copy_at_another_server_of_the_origin_is_read_on_and_another_version_is_not():
    with clusters.Cluster(clusters.Plan("man manager\ns1 server man\ns2 server man\n"), "ours") as cluster:
        cluster.answering().complete()
        area = clusters.Area(cluster)
        for number, name in enumerate(("s1", "s2")):
            area.put("one", CONTENT, name)
            os.utime(area.local(name, "one"), (OLD, OLD))
            area.put("two", bytes([65 + number]) * 3_000_000, name)
            os.utime(area.local(name, "two"), (OLD + number, OLD + number))
        with Cache(cluster.man.host) as cache:
            connection = raw.Connection(cache)
            handle, other = connection.open(area / "one"), connection.open(area / "two")
            assert connection.read(handle, 0, 5000) == CONTENT[:5000]
            opened = connection.read(other, 0, 5000)
            moves = 0
            for name, offset in (("s1", 1_000_000), ("s2", 2_000_000)):
                cluster.nodes[name].kill()
                assert connection.read(handle, offset, 5000) == CONTENT[offset:offset + 5000]
                try:
                    assert connection.read(other, offset, 5000) == opened
                except raw.Failed as failed:
                    assert failed.code == ErrorCode.FS_ERROR
                    moves += 1
                assert connection.read(other, 0, 5000) == opened
                cluster.complete()
                cluster.answering()
            assert moves, "the file was at one of both"


def test_a_kill_while_files_are_stored_leaves_no_wrong_byte(tmp_path):
    content = data(8_000_000)
    with peers.Ours() as origin, Cache(origin.host) as cache:
        for number in range(4):
            place(origin, f"{number}", content)
        for round in range(4):
            connections = [raw.Connection(cache) for _ in range(4)]
            for number, connection in enumerate(connections):
                handle = connection.open(f"/{number}")
                for offset in range(0, 2_000_000 * (round + 1), 500_000):
                    assert connection.read(handle, offset, 300_000) == content[offset:offset + 300_000]
            cache.kill()
            cache.start()
            # The used space is known from the index, and the files that were written at the end were looked at.
            wait_until(lambda: status(cache.tree)["server"]["is_known"], 30)
            found = status(cache.tree)
            assert (found["files"], found["stored_bytes"]) == (found["server"]["files"], found["server"]["bytes"])
        log = cache.log.read_text()
        assert "the index of the cache was loaded" in log and "the index of the cache is damaged" not in log
        for number in range(4):
            xrdcp("-f", cache.url(f"/{number}"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == content


def test_the_disk_goes_to_a_real_cache_and_back(tmp_path):
    with peers.Theirs() as origin:
        place(origin, "d/one", CONTENT)
        place(origin, "d/two", data(700_000))
        with Cache(origin.host) as ours:
            xrdcp("-f", ours.url("/d/one"), tmp_path / "f").ok()
            wait_until(lambda: ours.is_complete("d/one"), 30)
            ours.stop()
            settings = SETTINGS.format(port=origin.port).replace("pfc.blocksize 4k", "pfc.blocksize 64k\npfc.cschk off")
            theirs = peers.Theirs(settings=peers.SETTINGS + settings)
            theirs.tree = ours.tree
            with theirs:
                # The real cache does not ask the origin for a file that it has.
                (origin.tree / "d/one").rename(origin.tree / "d/gone")
                xrdcp("-f", theirs.url("/d/one"), tmp_path / "f").ok()
                assert (tmp_path / "f").read_bytes() == CONTENT
                xrdcp("-f", theirs.url("/d/two"), tmp_path / "f").ok()
                wait_until(lambda: ours.is_complete("d/two"), 60)
            (origin.tree / "d/gone").rename(origin.tree / "d/one")
            # Other content with the same size and time shows where the bytes come from.
            place(origin, "d/two", bytes(700_000))
            ours.start()
            assert xrdfs(ours, "cat", "/d/two").ok().raw == data(700_000)
            assert xrdfs(ours, "cat", "/d/one").ok().raw == CONTENT


def test_a_second_server_of_a_directory_does_not_stay(origin, cache):
    second = Cache(origin.host)
    second.tree = cache.tree
    try:
        try:
            second.start()
        except RuntimeError as refusal:
            assert "another process uses this cache" in str(refusal)
        else:
            # Its port was open for a moment.
            wait_until(lambda: not second.alive(), 30)
            assert "another process uses this cache" in second.output()
    finally:
        second.remove()
    xrdfs(cache, "ls", "/").ok()


def test_a_full_disk_is_no_error_of_readers(tmp_path):
    """The disk of the cache has less room than the files."""
    with peers.Ours() as origin:
        server = Cache(origin.host)
        mounted = run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0777", "none", server.tree])
        if mounted.status:
            server.remove()
            pytest.skip("no file system can be mounted")
        try:
            for number in range(4):
                place(origin, f"{number}", data(2_000_000, number))
            with server:
                for _ in range(2):
                    for number in range(4):
                        xrdcp("-f", server.url(f"/{number}"), tmp_path / "f").ok()
                        assert (tmp_path / "f").read_bytes() == data(2_000_000, number)
        finally:
            server.kill()
            run(["umount", "-l", server.tree]).ok()
            server.remove()
