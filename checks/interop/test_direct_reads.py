"""Clients on the machine of a cache read its complete files directly (`pss.dca`)."""

import os
import shutil
import struct
import tempfile
from pathlib import Path

import pytest

import peers
import raw
from codes import ErrorCode
from origins import CONTENT, Freezing
from test_cache import OLD, Cache, place, status
from test_cache_commands import DONE, answer, authorized
from test_proxy import PYTHON
from tools import data, run, scalla, wait_until, xrdcp, xrdfs

FULLURL, LCLFILE, REDIRFLAGS = 0x01, 0x40, 0x80
COPIES = "ofs.tpc ttl 90 120 logok\n"
CAPABLE = FULLURL | LCLFILE | REDIRFLAGS
OPEN = struct.pack(">HH", 0, raw.O_READ)


def login(cache, ability=CAPABLE):
    connection = raw.Connection(cache, login=False)
    connection.hello()
    connection.login(ability=ability)
    return connection


def opened(cache, path="/f", ability=CAPABLE, options=raw.O_READ):
    """Opens a file, and returns the path of the local file to which the client is redirected, or None."""
    connection = login(cache, ability)
    connection.start(raw.OPEN, struct.pack(">HH", 0, options), path.encode())
    frame = connection.answer()
    if frame.status != raw.REDIRECT:
        assert frame.status == raw.OK, frame
        return None
    (port,), url = struct.unpack(">i", frame.body[:4]), frame.body[4:].decode()
    assert port == -1 and url.startswith("file://localhost/"), url
    return Path(url.removeprefix("file://localhost"))


def as_account(account, *words):
    """Opens a file as a client of another account of this machine, which is not in the group of the server."""
    os.seteuid(account)
    try:
        return opened(*words)
    finally:
        os.seteuid(0)


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


@pytest.mark.parametrize("words, mode", [("", 0o640), ("world", 0o644), ("recheck off group", 0o640)])
def test_a_complete_file_is_redirected_with_the_mode_of_the_directive(origin, tmp_path, words, mode):
    with Cache(origin.host, f"pss.dca {words}\n") as cache:
        assert opened(cache) is None, "nothing is cached"
        fetch(cache, tmp_path)
        local = opened(cache)
        assert local.read_bytes() == CONTENT and local.stat().st_mode & 0o7777 == mode
        assert opened(cache) == local and names(cache) == [local]
        assert status(cache.tree)["server"]["direct_opens"] == 2
        assert opened(cache, options=raw.O_READ | raw.O_RETSTAT) == local


def test_real_programs_read_the_local_file(origin, tmp_path):
    """Also after the server has ended."""
    with Cache(origin.host, "pss.dca world\n") as cache:
        fetch(cache, tmp_path)
        for more in ([], ["-S", "4"], ["--cksum", "adler32:print"]):
            copied = xrdcp("-f", "-d", "3", *more, cache.url("/f"), tmp_path / "f").ok()
            assert (tmp_path / "f").read_bytes() == CONTENT
            assert ".scalla-cache/direct/" in copied.err, copied.err
        assert xrdfs(cache, "cat", "/f").ok().raw == CONTENT
        found = run(["/usr/bin/python3", "-c", PYTHON, cache.url("/f"), len(CONTENT)]).ok().raw
        assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]
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
        found = []
        wait_until(lambda: found.append(opened(cache)) or found[-1] is not None)
        assert found[-1].read_bytes() == CONTENT


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
    with authorized(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        connection = raw.Connection(cache)
        assert answer(connection, "cache evict /f") == ErrorCode.CONFLICT
        assert local.read_bytes() == CONTENT
        assert answer(connection, "cache fevict /f") == DONE
        assert local.read_bytes() == CONTENT and cache.files() == []


def test_a_restart_removes_the_names_and_keeps_the_files(tmp_path):
    with Freezing() as origin, Cache(origin.host, "pss.dca\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        reads = origin.counts[raw.READ]
        cache.kill()
        assert scalla("cache", "verify", cache.tree).ok() and local.exists()
        cache.start()
        again = opened(cache)
        assert again != local and not local.exists() and again.read_bytes() == CONTENT and origin.counts[raw.READ] == reads


def test_the_authorization_is_asked_first(origin, tmp_path):
    place(origin, "public/f", CONTENT)
    with authorized(origin.host, "pss.dca\n", "u * /public r\n") as cache:
        fetch(cache, tmp_path, "public/f")
        assert opened(cache, "/public/f").read_bytes() == CONTENT
        assert login(cache).error(raw.OPEN, OPEN, b"/f") == ErrorCode.NOT_AUTHORIZED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has clients of other accounts")
def test_only_accounts_that_can_read_the_file_are_redirected(origin, tmp_path):
    for words, other in (("", False), ("world", True)):
        with Cache(origin.host, f"pss.dca {words}\n") as cache:
            fetch(cache, tmp_path)
            assert (as_account(1, cache) is not None) == other, words
            assert opened(cache) is not None


def test_an_open_for_writing_that_becomes_one_for_reading_is_not_redirected(origin, tmp_path):
    """The client would write to the file in the cache."""
    with Cache(origin.host, "pss.dca world\n", export="/ forcero") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        for options in (raw.O_UPDT, raw.O_DELETE, raw.O_NEW, raw.O_APND, raw.O_READ | raw.O_UPDT):
            assert opened(cache, options=options) is None, options
        (tmp_path / "new").write_bytes(b"new")
        assert xrdcp("-f", tmp_path / "new", cache.url("/f")).status != 0
        assert local.read_bytes() == CONTENT and opened(cache) == local


def test_files_of_copies_between_servers_are_served(origin, tmp_path):
    with peers.Ours(settings=COPIES) as other, Cache(origin.host, f"pss.dca world\n{COPIES}") as cache:
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
    with Cache(origin.host, "pss.dca world\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        assert (cache.tree / "f").stat().st_mode & 0o777 == 0o644
        assert local.parent.stat().st_mode & 0o777 == 0o711, "others cannot list the names"
        cache.kill()
        cache.settings = cache.settings.replace("pss.dca world\n", "")
        cache.start()
        assert names(cache) == []


def test_tools_remove_the_names_before_files(origin, tmp_path):
    with Cache(origin.host, "pss.dca world\n") as cache:
        fetch(cache, tmp_path)
        local = opened(cache)
        cache.kill()
        scalla("cache", "evict", cache.tree, "/f").ok()
        assert not local.exists() and cache.files() == []


def test_a_cache_that_clients_cannot_reach_serves_them(origin, tmp_path):
    tree = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="scalla-closed-"))
    try:
        for name, mode in (("closed", 0o700), ("a%b", 0o755)):
            (tree / name).mkdir()
            (tree / name).chmod(mode)
            tree.chmod(0o755)
            peers.give(tree / name)
            with Cache(origin.host, "pss.dca world\n", tree=tree / name) as cache:
                fetch(cache, tmp_path)
                assert opened(cache) is None and names(cache) == []
                assert "pss.dca has no effect" in cache.output()
    finally:
        shutil.rmtree(tree)


@pytest.mark.parametrize("options", [["--cksum", "adler32"], ["--cksum", "crc32c:source"]], ids=lambda words: words[1])
def test_a_client_that_compares_checksums_of_both_ends_needs_the_server(origin, tmp_path, options):
    """It asks the last URL for the checksum of the source, and that is the local file."""
    with Cache(origin.host, "pss.dca world\n") as cache:
        fetch(cache, tmp_path)
        assert xrdcp("-f", *options, cache.url("/f"), tmp_path / "f").status != 0
    with Cache(origin.host) as cache:
        fetch(cache, tmp_path)
        xrdcp("-f", *options, cache.url("/f"), tmp_path / "f").ok()


def test_the_directive_is_checked():
    for words in ("recheck 5", "recheck soon", "recheck"):
        assert "recheck" in peers.refused_start(Cache("localhost:1", f"pss.dca {words}\n"))
