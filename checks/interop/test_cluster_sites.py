"""Names of sites, clusters below a manager of another one (`all.subcluster`), and servers that
belong to the trees of two sites."""

import json

import pytest

import clusters
from codes import ErrorCode, ShellCode
from tools import wait_until, xrdcp, xrdfs

# A server with a manager at each of two sites, and one server at each site alone.
TWO = clusters.Plan("""
    east manager
    west manager
    s1 server east
    s2 server east west
    s3 server west
""")
# A manager with servers of its own, and a whole cluster below it.
PART = clusters.Plan("""
    man manager
    sub manager man
    s1 server man
    s2 server sub
""")
SUBS = {**clusters.SIDES, "our-part": dict(sub="ours", s2="ours", rest="real"), "real-part": dict(sub="real", s2="real", rest="ours")}


def status(node, *words):
    return json.loads(node.scalla("status", "--json", *words).ok().out)


def named(names):
    return "".join(f"if named {name}\nall.sitename {site}\nfi\n" for name, site in names.items())


@pytest.mark.parametrize("makers", clusters.parameters("sites", TWO, clusters.SIDES))
def test_two_sites(makers):
    """A server of two sites is found through the manager of each. Files of one site are found only
    there. Each server is shown with its site."""
    with clusters.Cluster(TWO, makers, settings=named({"east": "EAST", "s1": "EAST", "west": "WEST", "s3": "WEST", "s2": "BOTH"}),
                          sites={"east": "EAST", "west": "WEST"}) as cluster:
        cluster.answering()
        area = clusters.Area(cluster)
        for name in ("s1", "s2", "s3"):
            area.put(f"on-{name}", name.encode(), name)
        for manager, has in ((cluster.east, "s1 s2"), (cluster.west, "s2 s3")):
            for name in ("s1", "s2", "s3"):
                found = xrdfs(manager, "cat", area / f"on-{name}")
                assert (found.out == name) == (name in has), (manager.name, name, found)
        for node in cluster.nodes.values():
            assert xrdfs(node, "query", "config", "sitename").ok().out.strip() == \
                {"east": "EAST", "s1": "EAST", "west": "WEST", "s3": "WEST", "s2": "BOTH"}[node.name]
        for manager in (one for one in (cluster.east, cluster.west) if one.maker != "real"):
            told = status(manager, "--here")
            assert told["site"] == manager.name.upper()
            sites = {cluster.name_of(child["address"].rpartition(":")[2]): child["site"] for child in told["children"]}
            expected = {"s1": "EAST", "s2": "BOTH"} if manager is cluster.east else {"s2": "BOTH", "s3": "WEST"}
            assert sites == expected, told
            shown = manager.scalla("status").ok().out
            assert "SITE" in shown and "BOTH" in shown, shown
        if cluster.s2.maker != "real":
            assert {int(parent.rpartition(":")[2]) for parent in status(cluster.s2, "--here")["parents"]} == \
                {cluster.east.cms_port, cluster.west.cms_port}
        # A site without its manager does not affect the other.
        cluster.east.kill()
        assert xrdfs(cluster.west, "cat", area / "on-s2").ok().out == "s2"
        cluster.east.start()
        cluster.formed()
        wait_until(lambda: xrdfs(cluster.east, "cat", area / "on-s1").out == "s1", 60)


@pytest.mark.parametrize("makers", clusters.parameters("subcluster", PART, SUBS))
def test_subcluster(makers, source):
    """Clients of the manager find the files of the cluster below it, and may be redirected to write
    there."""
    with clusters.Cluster(PART, makers) as cluster:
        cluster.answering()
        area = clusters.Area(cluster)
        for name in ("s1", "s2"):
            area.put(f"on-{name}", name.encode(), name)
            assert xrdfs(cluster.man, "cat", area / f"on-{name}").ok().out == name
        assert xrdfs(cluster.man, "stat", area / "none").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
        # A hash of the path chooses, so a few paths may all have the same server.
        chosen = set()
        for number in range(30):
            xrdcp(source, area.url(f"new{number}")).ok()
            chosen.update(area.holders(f"new{number}"))
            if chosen == {"s1", "s2"}:
                break
        assert chosen == {"s1", "s2"}
        if cluster.man.maker != "real":
            told = status(cluster.man)
            child = next(child for child in told["children"] if child["address"].endswith(f":{cluster.sub.port}"))
            assert child["role"] == "manager" and child["state"] == "serving", told
        cluster.sub.kill()
        assert xrdfs(cluster.man, "cat", area / "on-s1").ok().out == "s1"
        cluster.sub.start()
        cluster.formed()
        wait_until(lambda: xrdfs(cluster.man, "cat", area / "on-s2").out == "s2", 60)
