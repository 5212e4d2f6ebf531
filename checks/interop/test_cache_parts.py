"""Parts of a large file are removed from a disk cache that a real cache uses before and after."""

import peers
from origins import pattern
from test_cache import Cache, place
from test_cache_print import REAL, SETTINGS
from test_cache_tools import status
from tools import run, scalla, wait_until, xrdcp

# Four parts of 64 MiB, of which the last one has less.
CONTENT = pattern(200_000_017)
LIMIT = 150 << 20
LIMITS = "pfc.diskusage 0.98 0.99 files 50m 100m 150m\n"


def read_all(server, target):
    xrdcp("-f", server.url("/d/f"), target).ok()
    assert target.read_bytes() == CONTENT


def read_until_parts_have_gone(cache, target):
    """Reads the file while parts of it are removed. Returns the bytes that are left."""
    for _ in range(3):
        read_all(cache, target)
    wait_until(lambda: status(cache.tree)["server"]["evicted_parts"] > 0, 60)
    server = status(cache.tree)["server"]
    assert server["evicted_files"] == 0 and server["damaged_blocks"] == 0
    cache.stop()
    left = status(cache.tree)["stored_bytes"]
    assert 0 < left <= LIMIT
    # Also the space is free.
    assert (cache.tree / "d/f").stat().st_blocks * 512 <= left + (1 << 20)
    assert scalla("cache", "verify", cache.tree).ok()
    return left


def test_parts_go_and_both_caches_read_the_rest(tmp_path):
    target = tmp_path / "f"
    with peers.Theirs() as origin:
        place(origin, "d/f", CONTENT)
        with Cache(origin.host, LIMITS) as ours:
            read_until_parts_have_gone(ours, target)
            state = ours.tree / "d/f.cinfo"
            output = run([REAL, "-v", state]).ok().out
            assert output == run([peers.link("xrdpfc_print"), "-v", state]).ok().out
            assert "state incomplete" in output
            settings = SETTINGS.format(port=origin.port).replace("pfc.blocksize 4k", "pfc.blocksize 64k\npfc.cschk off")
            theirs = peers.Theirs(settings=peers.SETTINGS + settings)
            theirs.tree = ours.tree
            with theirs:
                read_all(theirs, target)
                wait_until(lambda: ours.is_complete("d/f"), 60)
            # Now all blocks are those of the real cache, which records no checksums.
            ours.start()
            read_until_parts_have_gone(ours, target)
            theirs = peers.Theirs(settings=peers.SETTINGS + settings)
            theirs.tree = ours.tree
            with theirs:
                read_all(theirs, target)
