"""A proxy and a cache in front of nginx."""

import os
import signal
import struct

import pytest

import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Proxy, check_stopped
from test_cache import OLD, Cache, place
from tools import data, wait_until, xrdcp, xrdfs
from web import Nginx


@pytest.fixture(scope="module")
def web():
    with Nginx() as server:
        place(server, "f", CONTENT)
        place(server, "d/small", b"small\n")
        place(server, "empty", b"")
        yield server


@pytest.fixture(scope="module", params=[Proxy, Cache], ids=["proxy", "cache"])
def proxy(request, web):
    with request.param(web.origin) as server:
        yield server


def test_files_are_read_in_every_way(proxy, tmp_path):
    for more in ([], ["-S", "4"], []):
        xrdcp("-f", *more, proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT, more
    for name, content in [("empty", b""), ("d/small", b"small\n")]:
        xrdcp("-f", proxy.url(f"/{name}"), tmp_path / "g").ok()
        assert (tmp_path / "g").read_bytes() == content
    connection = raw.Connection(proxy)
    handle = connection.open("/f")
    assert connection.read(handle, SIZE - 10, 100) == CONTENT[-10:]
    assert connection.read(handle, SIZE, 100) == b""
    pieces = [(offset, 1 + offset % 500) for offset in range(0, SIZE - 600, 7919)]
    payload = b"".join(struct.pack(">4siq", handle, length, offset) for offset, length in pieces)
    expected = b"".join(struct.pack(">4siq", handle, length, offset) + CONTENT[offset:offset + length] for offset, length in pieces)
    assert connection.ask(raw.READV, payload=payload) == expected
    found = xrdfs(proxy, "stat", "/f").ok().out
    assert f"Size:   {SIZE}" in found and "2023-11-14" in found, found


def test_missing_files_and_directories_are_errors(proxy):
    connection = raw.Connection(proxy)
    assert connection.error(raw.STAT, bytes(16), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/none/f") == ErrorCode.NOT_FOUND
    # nginx shows no directories without a module for it.
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/d") in (ErrorCode.NOT_AUTHORIZED, ErrorCode.IS_DIRECTORY, ErrorCode.NOT_FILE)


def test_a_file_that_changes_while_it_is_open_is_never_mixed(proxy, web, tmp_path):
    old, new = data(200_000), data(200_000)[::-1]
    for changed in (new, new[:150_000]):
        place(web, "changing", old, OLD)
        xrdfs(proxy, "stat", "/changing").ok()
        connection = raw.Connection(proxy)
        handle = connection.open("/changing")
        assert connection.read(handle, 0, 1000) == old[:1000]
        # As programs replace files; nginx may have the old one open.
        place(web, "next", changed, OLD + 500)
        os.rename(web.tree / "next", web.tree / "changing")
        try:
            assert connection.read(handle, 140_000, 1000) == old[140_000:141_000]
        except raw.Failed as failure:
            assert failure.code == ErrorCode.FS_ERROR
        xrdcp("-f", proxy.url("/changing"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == changed
        (web.tree / "changing").unlink()
        connection.close_socket()


def test_each_byte_is_fetched_once(web, tmp_path):
    with Cache(web.origin) as cache:
        xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
        wait_until(lambda: cache.is_complete("f"))
        before = len(web.requests())
        for _ in range(2):
            xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT
        # An open compares the version by the first byte.
        later = [line for line in web.requests()[before:] if '"GET /f' in line]
        assert later and all(' 206 1 "' in line for line in later), later


def test_a_server_without_ranges_is_refused_or_read_whole(tmp_path):
    with Nginx("max_ranges 0;") as web, Proxy(web.origin) as proxy:
        place(web, "f", CONTENT)
        copied = xrdcp("-f", proxy.url("/f"), tmp_path / "f")
        if copied.status == 0:
            assert (tmp_path / "f").read_bytes() == CONTENT
        else:
            copied.fails(54, "range")


def test_a_compressed_file_is_never_served_for_the_file(tmp_path):
    settings = "gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any;"
    with Nginx(settings) as web, Proxy(web.origin) as proxy:
        place(web, "f", b"x" * 100_000)
        xrdcp("-f", proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == b"x" * 100_000


def test_a_stopped_server_fails_readers_and_returns():
    web = Nginx()
    place(web, "f", CONTENT)
    check_stopped(web, lambda: web.origin)


def test_a_dead_server_serves_again_after_its_start(tmp_path):
    with Nginx() as web, Proxy(web.origin) as proxy:
        place(web, "f", CONTENT)
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 100) == CONTENT[:100]
        web.kill(signal.SIGKILL)
        assert connection.error(raw.READ, struct.pack(">4sqi", handle, 100, 100)) in (ErrorCode.NO_SERVER, ErrorCode.FS_ERROR)
        web.start()
        wait_until(lambda: xrdfs(proxy, "stat", "/f").status == 0)
        xrdcp("-f", proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT
        # The same version, so the open file goes on.
        assert connection.read(handle, 100, 100) == CONTENT[100:200]


def test_a_cached_file_needs_a_server_that_answers(tmp_path):
    """An open compares the version, so a stale file is never served."""
    with Nginx() as web, Cache(web.origin) as cache:
        place(web, "f", CONTENT)
        xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
        wait_until(lambda: cache.is_complete("f"))
        connection = raw.Connection(cache)
        handle = connection.open("/f")
        web.kill()
        assert connection.read(handle, 1_000_000, 1000) == CONTENT[1_000_000:1_001_000]
        assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/f") == ErrorCode.NO_SERVER
