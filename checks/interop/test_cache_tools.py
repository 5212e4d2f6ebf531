"""`scalla cache status`, `evict` and `verify`: with a server, without one, and on the disk of a real cache."""

import json
import os
import time
from xml.etree import ElementTree

import pytest

import peers
import raw
from origins import CONTENT, SIZE, Freezing
from test_cache import Cache, place
from test_cache_print import SETTINGS
from tools import data, run, scalla, wait_until, xrdcp

BLOCK = 65_536
BLOCKS = -(-SIZE // BLOCK)


def status(tree):
    return json.loads(scalla("cache", "status", tree, "--json").ok().out)


def verify(tree, *paths):
    """The exit status and the report."""
    ran = scalla("cache", "verify", tree, *paths, "--json")
    return ran.status, json.loads(ran.out)


@pytest.fixture
def cache(tmp_path):
    """A cache with three files."""
    with Freezing() as origin, Cache(origin.host) as server:
        for name in ("/d/f", "/d/g", "/h"):
            xrdcp(server.url(name), tmp_path / name.replace("/", "_")).ok()
        for name in ("d/f", "d/g", "h"):
            wait_until(lambda name=name: server.is_complete(name), 30)
        yield server


def test_the_status_of_a_cache_with_and_without_its_server(cache, tmp_path):
    found = status(cache.tree)
    assert (found["files"], found["complete_files"], found["stored_bytes"]) == (3, 3, 3 * SIZE)
    assert (found["damaged_states"], found["unclaimed_files"], found["foreign_files"]) == (0, 0, 0)
    server = found["server"]
    assert (server["opens"], server["files"], server["bytes_stored"]) == (3, 3, 3 * SIZE)
    assert (server["bytes_missed"], server["bytes_bypassed"], server["is_paused"]) == (3 * SIZE, 0, False)
    # What was fetched ahead of a reader may be on disk when it is read.
    hit = server["bytes_hit"]
    xrdcp("-f", cache.url("/h"), tmp_path / "copy").ok()
    assert status(cache.tree)["server"]["bytes_hit"] == hit + SIZE
    (cache.tree / "of_somebody").write_bytes(b"precious")
    cache.stop()
    found = status(cache.tree)
    assert (found["files"], found["foreign_files"], found["server"]) == (3, 1, None)
    text = scalla("cache", "status", cache.tree).ok().out
    assert "3, 3 of them complete" in text and "none that this user may control" in text
    missing = scalla("cache", "status", cache.tree / "missing")
    assert missing.status == 1 and "No such file" in missing.err


def test_files_are_removed_through_the_server(cache):
    connection = raw.Connection(cache)
    handle = connection.open("/d/g")
    ran = scalla("cache", "evict", cache.tree, "/d", "/missing", "/h")
    assert ran.status == 1
    assert ran.out.splitlines() == ["/d: 1 removed, 1 in use", "/h: 1 removed"]
    assert "/missing: nothing is cached there" in ran.err
    assert cache.files() == ["d/g"]
    assert connection.read(handle, 5, 1000) == CONTENT[5:1005]
    assert status(cache.tree)["server"]["files"] == 1
    connection.close(handle)


@pytest.mark.parametrize("name", ["/../h", "h", "//h", "/d/./g"])
def test_names_lead_nowhere_else(cache, name):
    (cache.tree.parent / "h").write_bytes(b"precious")
    scalla("cache", "evict", cache.tree / "d", name)
    assert (cache.tree.parent / "h").read_bytes() == b"precious"
    assert "h" in cache.files()


def test_files_are_removed_without_a_server_and_others_stay(cache):
    cache.stop()
    (cache.tree / "d" / "of_somebody").write_bytes(b"precious")
    ran = scalla("cache", "evict", cache.tree, "/d", "--json")
    assert json.loads(ran.ok().out) == {"path": "/d", "removed": 2, "in_use": 0, "pinned": 0, "failed": 0, "is_partial": False}
    assert cache.files() == ["h"]
    assert scalla("cache", "evict", cache.tree, "/d/of_somebody").status == 1
    assert (cache.tree / "d" / "of_somebody").read_bytes() == b"precious"
    scalla("cache", "evict", cache.tree, "/").ok()
    assert cache.files() == []
    # The user of the server can still start it.
    cache.start()
    assert raw.Connection(cache).open("/h")


def test_pinned_files_stay_with_and_without_a_server(cache):
    pinned = json.loads(scalla("cache", "pin", cache.tree, "/d", "--for", "2d", "--json").ok().out)
    assert (pinned["path"], pinned["bytes"], pinned["is_kept"]) == ("/d", 2 * SIZE, True)
    assert 0 < pinned["expires"] - time.time() <= 2 * 86_400
    assert status(cache.tree)["pins"] == [pinned]
    ran = scalla("cache", "evict", cache.tree, "/")
    assert (ran.status, ran.out) == (1, "/: 1 removed, 2 pinned\n")
    assert cache.files() == ["d/f", "d/g"]
    refused = scalla("cache", "pin", cache.tree, "/x.cinfo", "/e")
    assert refused.status == 1 and "no file of this name" in refused.err and "/e: pinned until" in refused.out
    # The pins are those of the directory, not of the process.
    cache.kill()
    assert [(pin["path"], pin["bytes"]) for pin in status(cache.tree)["pins"]] == [("/d", None), ("/e", None)]
    evicted = json.loads(scalla("cache", "evict", cache.tree, "/d", "--json").out)
    assert (evicted["removed"], evicted["pinned"]) == (0, 2)
    scalla("cache", "unpin", cache.tree, "/e").ok()
    cache.start()
    wait_until(lambda: [pin["bytes"] for pin in status(cache.tree)["pins"]] == [2 * SIZE], 60)
    assert "/d, pinned until" in scalla("cache", "status", cache.tree).ok().out
    text = scalla("cache", "unpin", cache.tree, "/d", "/e")
    assert (text.status, text.out) == (1, "/d: not pinned\n") and "there is no pin of this path" in text.err
    assert status(cache.tree)["pins"] == []
    scalla("cache", "evict", cache.tree, "/d").ok()
    assert cache.files() == []


def test_damage_is_found_and_stays_for_the_server_to_heal(cache, tmp_path):
    good = {"files": 3, "blocks": 3 * BLOCKS, "bytes": 3 * SIZE, "blocks_without_checksum": 0, "damaged": [], "missing": []}
    assert verify(cache.tree) == (0, good)
    with open(cache.tree / "d" / "f", "r+b") as file:
        for offset in (5, BLOCK * 2 + 7, BLOCK * 3):
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 1]))
    exit_status, found = verify(cache.tree)
    problem = f"3 of {BLOCKS} blocks are damaged"
    assert (exit_status, found["damaged"]) == (1, [{"path": "/d/f", "problem": problem, "blocks": [0, 2, 3]}])
    assert verify(cache.tree, "/d/g", "/h")[1]["damaged"] == []
    text = scalla("cache", "verify", cache.tree, "/d")
    assert text.status == 1 and f"/d/f: {problem}: 0, 2-3\n" in text.out and "2 files" in text.out
    xrdcp("-f", cache.url("/d/f"), tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT
    wait_until(lambda: verify(cache.tree)[0] == 0, 60)
    assert status(cache.tree)["server"]["damaged_blocks"] == 3


def test_what_cannot_be_verified_is_not_good(cache):
    text = scalla("cache", "verify", cache.tree, "/h", "/typo")
    assert text.status == 1 and "/typo: nothing is cached there" in text.err and "1 files" in text.out
    assert verify(cache.tree, "/typo")[1]["missing"] == ["/typo"]
    cache.stop()
    (cache.tree / "d").chmod(0)
    user, group = peers.unprivileged()
    become = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"] if os.geteuid() == 0 else []
    ran = run([*become, peers.program(), "cache", "verify", cache.tree, "--json"])
    (cache.tree / "d").chmod(0o755)
    exit_status, found = ran.status, json.loads(ran.out)
    assert (exit_status, found["files"]) == (1, 2)
    assert found["damaged"] == [{"path": "/d", "problem": "it cannot be read: permission denied", "blocks": []}]


def test_a_damaged_state_is_named(cache):
    cache.stop()
    state = cache.tree / "h.cinfo"
    content = state.read_bytes()
    state.write_bytes(bytes([*content[:60], content[60] ^ 1, *content[61:]]))
    exit_status, found = verify(cache.tree)
    assert exit_status == 1
    assert [(file["path"], file["problem"]) for file in found["damaged"]] == [("/h", "its state is damaged")]
    assert status(cache.tree)["damaged_states"] == 1


def test_the_disk_of_a_real_cache(tmp_path):
    with peers.Theirs() as origin:
        place(origin, "f", data(700_000))
        settings = peers.SETTINGS + SETTINGS.format(port=origin.port)
        with peers.Theirs(settings=settings) as proxy:
            xrdcp(proxy.url("/f"), tmp_path / "f").ok()
            wait_until(lambda: status(proxy.tree)["complete_files"] == 1, 60)
            proxy.kill()
            exit_status, found = verify(proxy.tree)
            assert (exit_status, found["files"], found["bytes"]) == (0, 1, 700_000)
            assert found["blocks_without_checksum"] == found["blocks"] == 171


def test_statistics_have_the_section_of_the_cache(cache, tmp_path):
    xrdcp("-f", cache.url("/h"), tmp_path / "copy").ok()
    found = ElementTree.fromstring(run(["/usr/bin/xrdfs", cache.host, "query", "stats", "p"]).ok().out)
    section = next(part for part in found if part.get("id") == "cache")

    def number(path):
        return int(section.find(path).text)

    assert section.get("type") == "pfc"
    assert number("prerd/in") + number("rd/in") == number("wr/out") == number("store/used") == 3 * SIZE
    assert number("rd/out") == 4 * SIZE and number("rd/hits") >= SIZE
    assert (number("files/opened"), number("files/closed"), number("pass"), number("pass/cnt")) == (4, 4, 0, 0)
    assert number("mem/size") == 1 << 30
    with peers.Ours() as plain:
        assert "pfc" not in run(["/usr/bin/xrdfs", plain.host, "query", "stats", "a"]).ok().out
