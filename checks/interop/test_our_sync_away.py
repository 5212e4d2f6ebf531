"""`sync --delete` at a cluster one of whose servers is away: its files look missing."""

import re

import pytest

import clusters
import peers
import tools
from tools import scalla, wait_until

PLAN = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
""")
DEEP = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server sup
""")


def away(cluster):
    """The answer of the manager, `N ADDRESS...`."""
    return tools.xrdfs(cluster.man, "query", "config", "scalla.away").out.split()


def fill(cluster, tmp_path):
    area = clusters.Area(cluster)
    area.put("one", b"one", "s1")
    area.put("two", b"two", "s2")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("one", "two"):
        (here / name).write_bytes(name.encode())
    return area, here


def lose(cluster, parent):
    """Kills a server. Returns when its parent has noticed."""
    cluster.s2.kill()
    asked = cluster[parent]
    wait_until(lambda: tools.xrdfs(asked, "query", "config", "scalla.away").out.split()[0] == "1")


@pytest.mark.parametrize("plan,parent", [(PLAN, "man"), (DEEP, "sup")], ids=["flat", "deep"])
def test_nothing_is_deleted_while_a_server_is_away(plan, parent, tmp_path):
    with clusters.Cluster(plan, "ours") as cluster:
        area, here = fill(cluster, tmp_path)
        wait_until(lambda: away(cluster) == ["0"])
        url = area.url("")
        scalla("sync", "--delete", "--size-only", url, here).ok()
        lose(cluster, parent)
        for more in ([], ["-n"]):
            for ends in ([url, here], [here, url]):
                refused = scalla("sync", "--delete", "--size-only", *more, *ends).fails(1, "1 server of the cluster of", "--allow-away")
                assert str(cluster.s2.port) in refused.err
        assert sorted(path.name for path in here.iterdir()) == ["one", "two"]
        assert area.holders("one") == ["s1"]
        # Without deletions, and with the option, it goes on. A manager lists a server that is away, so its files are unknown, not missing. A
        # supervisor does not list it.
        for more in ([], ["--delete", "--allow-away"]):
            done = scalla("sync", "--size-only", *more, url, here)
            done.fails(1, "no connection") if parent == "man" else done.ok()
        assert sorted(path.name for path in here.iterdir()) == (["one", "two"] if parent == "man" else ["one"])
        cluster.s2.start()
        cluster.formed()
        wait_until(lambda: away(cluster) == ["0"])
        scalla("sync", "--delete", "--size-only", url, here).ok()
        assert sorted(path.name for path in here.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("plan,parent", [(PLAN, "man"), (DEEP, "sup")], ids=["flat", "deep"])
def test_nothing_is_deleted_after_a_restart_until_all_servers_are_back(plan, parent, tmp_path):
    with clusters.Cluster(plan, "ours") as cluster:
        area, here = fill(cluster, tmp_path)
        wait_until(lambda: away(cluster) == ["0"])
        cluster.s2.kill()
        cluster[parent].kill()
        cluster[parent].start()
        wait_until(lambda: tools.xrdfs(cluster.man, "stat", area / "one").status == 0, 90)
        for ends in ([area.url(""), here], [here, area.url("")]):
            scalla("sync", "--delete", "--size-only", *ends).fails(1, "--allow-away")
        assert sorted(path.name for path in here.iterdir()) == ["one", "two"]
        assert area.holders("one") == ["s1"]
        cluster.s2.start()
        cluster.formed()
        wait_until(lambda: tools.xrdfs(cluster[parent], "query", "config", "scalla.away").out.split() == ["0"])
        scalla("sync", "--delete", "--size-only", area.url(""), here).ok()
        assert sorted(path.name for path in here.iterdir()) == ["one", "two"]


def test_managers_that_do_not_report_it_are_noted(tmp_path):
    with clusters.Cluster(PLAN, "real") as cluster:
        area, here = fill(cluster, tmp_path)
        assert away(cluster) == ["scalla.away"]
        (here / "three").write_bytes(b"three")
        done = scalla("sync", "--delete", "--size-only", area.url(""), here).ok()
        assert re.search(r"note: \S+ does not report whether a server of its cluster is away", done.err)
        assert "note:" not in scalla("sync", "--delete", "-q", "--size-only", area.url(""), here).ok().err
        assert sorted(path.name for path in here.iterdir()) == ["one", "two"]


def test_the_log_names_the_former_address_and_the_number_of_names(tmp_path):
    with clusters.Cluster(PLAN, "ours") as cluster:
        area = clusters.Area(cluster)
        for name in ("a", "b", "c"):
            area.put(name, b"content", "s2")
        # At its start it lists its files: these, and their directory if it lists all names.
        cluster.s2.restart()
        cluster.formed()
        former = cluster.s2.port
        log = lambda: cluster.man.output()  # noqa: E731
        wait_until(lambda: "joined again" in log())
        shown = lambda: cluster.man.scalla("status").ok().out  # noqa: E731
        wait_until(lambda: re.search(rf":{former} .* \d+ names", shown()))
        names = re.search(rf":{former} .* (\d+) names", shown())[1]
        assert int(names) >= 3
        cluster.s2.kill()
        wait_until(lambda: f"it listed {names} names when it joined" in log())
        wait_until(lambda: re.search(rf":{former} .* away .* {names} names", shown()))
        # It gets another port.
        cluster.s2.port = peers.free_port()
        cluster.s2.start()
        cluster.formed()
        assert cluster.s2.port != former
        wait_until(lambda: re.search(rf":{cluster.s2.port} joined again \(was \S+:{former}\)", log()))
