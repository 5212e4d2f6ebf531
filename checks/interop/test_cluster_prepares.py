"""Files prepared together through a manager of ours: each request goes to the server with the file,
real or ours, and no server crashes.

Also access time updates, which both kinds of managers send to servers of both kinds."""

import os

import pytest

import clusters
import tools
from codes import ErrorCode, ShellCode

MIXES = {"ours": dict(rest="ours"), "real-servers": dict(managers="ours", servers="real"),
         "both": dict(man="ours", s1="ours", s2="real")}


@pytest.fixture(scope="module", params=clusters.parameters("prepares", clusters.PAIR, MIXES))
def cluster(request):
    with clusters.Cluster(clusters.PAIR, request.param) as cluster:
        yield cluster.answering()


def xrdfs(cluster, *words):
    return tools.xrdfs(cluster.man, *words)


def test_several_files_on_different_servers(cluster):
    area = clusters.Area(cluster)
    paths = [area.put(f"on-{name}", b"content", name) for name in ("s1", "s2")]
    said = xrdfs(cluster, "prepare", "-s", *paths).ok().out.strip()
    assert said, "a request that stages has an id"
    xrdfs(cluster, "query", "prepare", said, *paths).ok()
    xrdfs(cluster, "prepare", "-f", *paths).ok()
    xrdfs(cluster, "prepare", "-w", "-c", "-s", *paths).ok()
    xrdfs(cluster, "prepare", "-e", *paths).ok()
    xrdfs(cluster, "prepare", "-a", said).ok()
    for path in paths:
        assert xrdfs(cluster, "cat", path).ok().out == "content"
    assert all(node.alive() for node in cluster.nodes.values())


def test_missing_files(cluster):
    area = clusters.Area(cluster)
    xrdfs(cluster, "prepare", "-s", area / "none", area / "neither").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    there = area.put("there", b"content", "s1")
    xrdfs(cluster, "prepare", "-s", area / "nothing", there).ok()
    assert all(node.alive() for node in cluster.nodes.values())


@pytest.mark.parametrize("makers", clusters.parameters("wanted", clusters.PAIR, {**MIXES, **clusters.SIDES}))
def test_access_time_of_prepared_files(makers):
    """It is updated where the file is, and the time of its last change is not. A real server does
    so only if the file is also to be staged."""
    with clusters.Cluster(clusters.PAIR, makers) as cluster:
        area = clusters.Area(cluster.answering())
        for server in ("s1", "s2"):
            path = area.put(f"on-{server}", b"content", server)
            local = area.local(server, f"on-{server}")
            os.utime(local, (10**9, 10**9))
            wanted = ["-s", "-f"] if cluster[server].maker == "real" else ["-f"]

            def renewed():
                xrdfs(cluster, "prepare", *wanted, path).ok()
                return local.stat().st_atime > 10**9

            tools.wait_until(renewed)
            assert local.stat().st_mtime == 10**9
