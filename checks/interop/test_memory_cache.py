"""A proxy with a memory cache between real programs and origins."""

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Freezing, Mortal, Proxy
from test_cache import OLD, place
from test_proxy import PYTHON
from tools import data, run, xrdcp, xrdfs

PAGE = 32_768


class MemoryCache(Proxy):
    """Our proxy with a memory cache."""

    def __init__(self, origin, options="size 16m max2cache 16m", **how):
        super().__init__(origin, settings=f"pss.cache {options}\n", **how)

    def figures(self):
        """The section of the cache in the summary."""
        text = run(["/usr/bin/xrdfs", self.host, "query", "stats", "p"]).ok().out
        section = next(one for one in ElementTree.fromstring(text) if one.get("id") == "cache")
        assert section.get("type") == "rmc"
        return lambda path: int(section.find(path).text)


@pytest.fixture(params=[peers.Ours, peers.Theirs], ids=["ours", "theirs"])
def origin(request):
    with request.param() as server:
        yield server


@pytest.fixture
def cache(origin):
    with MemoryCache(origin.host) as server:
        yield server


def test_each_byte_is_fetched_once_and_counted(tmp_path):
    with Freezing() as origin, MemoryCache(origin.host) as cache:
        xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
        cold = origin.counts[raw.READ]
        for number in range(3):
            xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT
        assert origin.counts[raw.READ] == cold
        figure = cache.figures()
        assert (figure("rd/in"), figure("rd/out"), figure("files/opened")) == (SIZE, 4 * SIZE, 4)
        assert figure("rd/hits") >= 3 * SIZE and SIZE < figure("mem/used") < figure("mem/size") == 16 << 20


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 5_000_000])
def test_files_of_each_size_are_served_cold_and_warm(origin, cache, size, tmp_path):
    place(origin, "d/f", data(size))
    for _ in range(2):
        xrdcp("-f", cache.url("/d/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == data(size)


def test_many_readers_of_more_than_fits_get_the_right_bytes(origin, tmp_path):
    content = data(20_000_000)
    place(origin, "f", content)
    with MemoryCache(origin.host, "size 9m") as cache:
        with ThreadPoolExecutor(6) as threads:
            copies = [
                threads.submit(xrdcp, "-f", "-S", "4", cache.url("/f"), tmp_path / f"{number}") for number in range(6)
            ]
        for number, copy in enumerate(copies):
            copy.result().ok()
            assert (tmp_path / f"{number}").read_bytes() == content
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        for offset in range(0, 20_000_000 - 5000, PAGE):
            assert connection.read(handle, offset, 5000) == content[offset:offset + 5000]
        figure = cache.figures()
        assert 4 << 20 < figure("mem/used") <= figure("mem/size") == 9 << 20
        assert figure("purge") > 5_000_000


def test_reads_above_max2cache_are_not_kept(tmp_path):
    with Freezing() as origin, MemoryCache(origin.host, "size 16m") as cache:
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, 0, PAGE) == CONTENT[:PAGE]
        assert connection.read(handle, PAGE, PAGE + 1) == CONTENT[PAGE:2 * PAGE + 1]
        figure = cache.figures()
        assert (figure("pass"), figure("pass/cnt"), figure("rd/in")) == (PAGE + 1, 1, PAGE)


def test_vectors_pages_and_the_python_client_read(origin, cache):
    place(origin, "f", CONTENT)
    for _ in range(2):
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, SIZE - 5, 100) == CONTENT[-5:]
        assert connection.read(handle, SIZE + 5, 100) == b""
        pieces = [(offset, 1 + offset % 500) for offset in range(0, SIZE - 600, 7919)]
        payload = b"".join(struct.pack(">4siq", handle, length, offset) for offset, length in pieces)
        expected = b"".join(
            struct.pack(">4siq", handle, length, offset) + CONTENT[offset:offset + length] for offset, length in pieces
        )
        assert connection.ask(raw.READV, payload=payload) == expected
        found = run(["/usr/bin/python3", "-c", PYTHON, cache.url("/f"), SIZE]).ok().raw
        assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]


def test_a_changed_file_is_served_anew_and_an_open_one_is_never_mixed(origin, cache, tmp_path):
    old, new = data(2_000_000), data(2_000_000)[::-1]
    place(origin, "f", old)
    connection = raw.Connection(cache)
    handle = connection.open("/f")
    assert connection.read(handle, 0, 1000) == old[:1000]
    place(origin, "f", new, OLD + 5)
    assert connection.read(handle, 0, 1000) == old[:1000]
    assert connection.error(raw.READ, struct.pack(">4sqi", handle, 1_500_000, 1000)) == ErrorCode.FS_ERROR
    for _ in range(2):
        xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == new


def test_own_changes_are_seen_at_once(origin, cache, tmp_path):
    place(origin, "f", data(300_000))
    xrdfs(cache, "cat", "/f").ok()
    (tmp_path / "new").write_bytes(data(200_000)[::-1])
    xrdcp("-f", tmp_path / "new", cache.url("/f")).ok()
    assert xrdfs(cache, "cat", "/f").ok().raw == data(200_000)[::-1]
    place(origin, "e", data(300_000))
    reader = raw.Connection(cache)
    handle = reader.open("/e")
    assert reader.read(handle, 0, 1000) == data(300_000)[:1000]
    xrdfs(cache, "truncate", "/e", "10").ok()
    assert reader.error(raw.READ, struct.pack(">4sqi", handle, 0, 1000)) == ErrorCode.FS_ERROR
    place(origin, "g", data(1000))
    xrdfs(cache, "cat", "/g").ok()
    xrdfs(cache, "mv", "/g", "/h").ok()
    xrdfs(cache, "cat", "/g").fails(54)
    assert xrdfs(cache, "cat", "/h").ok().raw == data(1000)
    xrdfs(cache, "truncate", "/h", "10").ok()
    assert xrdfs(cache, "cat", "/h").ok().raw == data(1000)[:10]
    xrdfs(cache, "rm", "/h").ok()
    xrdfs(cache, "cat", "/h").fails(54)


def test_a_file_that_was_modified_a_moment_ago_is_not_kept(origin, cache):
    place(origin, "f", data(1000))
    os.utime(origin.tree / "f")
    assert xrdfs(cache, "cat", "/f").ok().raw == data(1000)
    assert cache.figures()("mem/used") == 0


def test_readers_go_on_without_the_origin():
    origin = Mortal()
    with MemoryCache(origin.host) as cache:
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 2 * PAGE) == CONTENT[:2 * PAGE]
        origin.die()
        assert connection.read(handle, 100, 5000) == CONTENT[100:5100]
        code = connection.error(raw.READ, struct.pack(">4sqi", handle, 2_000_000, 100))
        assert code in (ErrorCode.NO_SERVER, ErrorCode.FS_ERROR)
