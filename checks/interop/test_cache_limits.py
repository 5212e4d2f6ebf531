"""Limits of a disk cache: quotas of directories, and shares of the disk."""

import peers
from origins import SIZE, Freezing
from test_cache import Cache
from tools import wait_until, xrdcp


def check_refused(cache, text):
    """Checks that a cache does not start. Its port may be open for a moment."""
    try:
        cache.start()
    except RuntimeError as refusal:
        assert text in str(refusal)
    else:
        wait_until(lambda: not cache.alive(), 30)
        assert text in cache.output()


def test_a_directory_of_a_running_server_is_reduced_to_its_quota(tmp_path):
    with Freezing() as origin:
        cache = Cache(origin.host)
        quotas = cache.work / "quotas"
        cache.settings += f"pfc.purgelib libXrdPfcPurgeQuota.so {quotas}\n"
        peers.place(quotas, f"# names in the cache\n/d {SIZE * 3 // 2}\n/d/below {SIZE}\n".encode())
        with cache:
            for name in ("d/1", "d/2", "d/below/3", "e/4"):
                xrdcp("-f", cache.url(f"/{name}"), tmp_path / "copy").ok()
                # The file that was used last is not removed.
                wait_until(lambda name=name: cache.is_complete(name), 60)
            # One file is within the quota. Those that were not used for the longest time have gone.
            wait_until(lambda: cache.files() == ["d/below/3", "e/4"], 60)
            wait_until(lambda: "their directory has more than its quota" in cache.output())
            cache.stop()
            peers.place(quotas, b"/d much\n")
            check_refused(cache, "line 1: quota much is not a number")


def test_limits_that_are_not_in_order_on_this_disk_stop_the_start():
    cache = Cache("127.0.0.1:1", "pfc.diskusage 0.5 0.6 files 1k 2k 500t\n")
    try:
        check_refused(cache, "not in order on this file system")
    finally:
        cache.remove()
