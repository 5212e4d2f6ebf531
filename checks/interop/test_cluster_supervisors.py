"""Supervisors between a manager and its servers: two redundant ones, and one to which a full
manager redirects further servers.

In mixes of real daemons and ours."""

import contextlib

import pytest

import clusters
import cms
from tools import data, wait_until, xrdcp, xrdfs

PAIR = clusters.Plan("""
    man manager
    u1 supervisor man
    u2 supervisor man
    s1 server u1 u2
    s2 server u1 u2
""")
FULL = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server man>sup
    s2 server man>sup
""")
BESIDE = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server man
    s2 server sup
""")
SLOTS = 64


@pytest.fixture(params=clusters.parameters("pair", PAIR, clusters.LEVELS))
def pair(request):
    with clusters.Cluster(PAIR, request.param) as cluster:
        # A real supervisor never repeats a query to a server that was not ready for it.
        yield cluster.answering()


def test_supervisor_killed(pair, tmp_path):
    """Each in turn: files are found through the other one, and new ones are created."""
    area = clusters.Area(pair)
    (tmp_path / "source").write_bytes(data(100_000))
    path = area.put("file", b"below both", "s2")
    assert xrdfs(pair.man, "cat", path).ok().out == "below both"
    for lost in (pair.u1, pair.u2):
        lost.kill()
        wait_until(lambda: lost.port not in pair.man.children())
        assert xrdfs(pair.man, "cat", path).ok().out == "below both"
        late = area.put(f"without-{lost.name}", b"asked for only now", "s1")
        assert xrdfs(pair.man, "cat", late).ok().out == "asked for only now"
        lost.start()
        pair.formed().answering()
    assert xrdfs(pair.man, "cat", path).ok().out == "below both"
    xrdcp(tmp_path / "source", area.url("new")).ok()
    assert area.get("new") == data(100_000)


@contextlib.contextmanager
def started_full(cluster):
    """Starts a cluster with one free slot at its manager, for the supervisor: 63 servers without
    files have the others."""
    crowd = None

    def fill():
        nonlocal crowd
        crowd = cms.Crowd(cluster.man, SLOTS - 1)
        wait_until(lambda: len(cluster.man.children()) == SLOTS - 1)

    try:
        yield cluster.start(between=fill).answering()
    finally:
        cluster.remove()
        if crowd:
            crowd.stop()


@pytest.mark.parametrize("makers", clusters.parameters("full", FULL, clusters.LEVELS))
def test_full_manager_sends_servers_to_the_supervisor(makers):
    """Files two levels down are found, also after the supervisor was away."""
    with started_full(clusters.Cluster(FULL, makers)) as cluster:
        area = clusters.Area(cluster)
        path = area.put("file", b"two levels down", "s1")
        assert sorted(cluster.named(xrdfs(cluster.man, "locate", "-d", path).ok().out)) == ["s1"]
        assert xrdfs(cluster.man, "cat", path).ok().out == "two levels down"
        cluster.sup.restart()
        cluster.formed()
        wait_until(lambda: xrdfs(cluster.man, "cat", path).out == "two levels down")


def test_supervisor_without_servers_sends_clients_back(tmp_path):
    """A client that was redirected to it when its last server left is redirected to the root of the
    cluster."""
    (tmp_path / "source").write_bytes(data(100_000))
    with clusters.Cluster(BESIDE, "ours") as cluster:
        cluster.s2.kill()
        area = clusters.Area(cluster)
        path = area.put("file", b"beside it", "s1")
        assert xrdfs(cluster.sup, "cat", path).ok().out == "beside it"
        assert cluster.named(xrdfs(cluster.sup, "locate", path).ok().out) == ["s1"]
        xrdcp(tmp_path / "source", cluster.sup.url(f"{path}-new")).ok()
        assert area.get("file-new") == data(100_000)
