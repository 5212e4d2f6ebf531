"""Meta managers and managers below them are killed (kill -9) while clients are active, each node in
a network namespace of its own.

Reads continue, opens wait or go elsewhere, and everything is found again."""

import pytest

import clusters
import places
import tools
from clients import Steps, digest, start, url, xrdcp, xrdfs
from test_cluster_faults import MIB, write_whole
from tools import data, wait_until

# Two sites below two redundant meta managers.
PLAN = clusters.Plan("""
    t1 meta
    t2 meta
    m1 manager t1 t2
    m2 manager t1 t2
    s1 server m1
    s2 server m2
    s3 server m2
""")
MIXES = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "by-command-line": dict(rest="plain"),
    "our-tops": dict(metas="ours", rest="real"),
    "real-tops": dict(metas="real", rest="ours"),
}


@pytest.fixture(scope="module", params=clusters.parameters("federation-killed", PLAN, MIXES))
def running(request):
    with places.Network() as network, clusters.Cluster(PLAN, request.param, places=network) as cluster:
        # Clients know one name for both.
        network.name_hosts({"managers": [cluster.t1.address, cluster.t2.address]})
        yield cluster


@pytest.fixture
def cluster(running):
    return running.complete().answering()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


def test_one_meta_manager_killed(cluster, area):
    """Clients do not notice: reads continue, and files are opened and created through the other
    one."""
    content = data(MIB)
    area.put("file", content, "s2")
    for number, top in enumerate((cluster.t1, cluster.t2)):
        with Steps(cluster) as steps:
            steps("open", "read", url(area, "file"))
            top.kill()
            assert steps("read", 0, MIB) == digest(content)
        assert xrdcp(cluster, url(area, "file"), "-").ok().raw == content
        write_whole(cluster, url(area, f"new{number}"), content[:1000])
        assert len(area.holders(f"new{number}")) == 1
        top.start()
        cluster.formed()


def test_all_meta_managers_killed(cluster, area, tmp_path):
    """Open files are read on. A site's own manager serves its clients. Opens at the top wait for a
    meta manager."""
    content = data(MIB)
    area.put("file", content, "s1")
    with Steps(cluster) as steps:
        steps("open", "read", url(area, "file"))
        cluster.t1.kill()
        cluster.t2.kill()
        assert steps("read", 0, MIB) == digest(content)
        assert xrdcp(cluster, url(area, "file", cluster.m1.host), "-").ok().raw == content
        with start(cluster, tools.XRDCP, "--nopbar", url(area, "file"), tmp_path / "back", XRD_CONNECTIONRETRY="20") as copy:
            cluster.t2.start()
            said = copy.communicate(timeout=100)[0]
            assert copy.returncode == 0, said
        assert (tmp_path / "back").read_bytes() == content
    cluster.t1.start()
    cluster.formed()


def test_manager_below_a_meta_manager_killed(cluster, area):
    """Its clients continue to read. Files that the other site also has are read there. Files of
    this site alone are found when it is back."""
    content = data(MIB)
    area.put("both", content, "s1", "s2")
    area.put("only", content, "s1")
    for name in ("both", "only"):
        assert xrdfs(cluster, "stat", area / name).ok()
    with Steps(cluster) as steps:
        steps("open", "read", url(area, "only"))
        cluster.m1.kill()
        assert steps("read", 0, MIB) == digest(content)
        for _ in range(3):
            assert xrdcp(cluster, url(area, "both"), "-").ok().raw == content
        cluster.m1.start()
        wait_until(lambda: xrdcp(cluster, url(area, "only"), "-").raw == content, 60)
        assert steps("read", 0, MIB) == digest(content)
    cluster.formed()
    wait_until(lambda: xrdfs(cluster, "locate", "-d", area / "both").out.count("Server") == 2, 60)
