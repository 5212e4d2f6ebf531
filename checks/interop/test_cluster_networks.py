"""Clusters of nodes with IPv6 addresses only, and of nodes with addresses of either family or of
both.

Each client must be redirected to an address that it can reach."""

import pytest

import clusters
import places
import tools
from clients import MAKING, PATIENCE
from codes import ShellCode
from test_cluster_status import expected_names, root_seen_from
from test_cluster_supervisors import started_full
from tools import data, wait_until

PLAN = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server man
""")
MIXES = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "by-command-line": dict(rest="plain"),
    "our-servers-under-real": dict(servers="ours", rest="real"),
    "real-servers-under-ours": dict(servers="real", rest="ours"),
}
# All nodes can reach the manager. The servers have addresses of one family, or of both.
MIXED = clusters.Plan("""
    man manager
    v4 server man
    v6 server man
    both server man
""")
# All servers are redirected to the supervisor.
SENT_ON = clusters.Plan("""
    man manager
    sup supervisor man
    v4 server man>sup
    v6 server man>sup
    both server man>sup
""")
KINDS = {"man": (4, 6), "sup": (4, 6), "v4": (4,), "v6": (6,), "both": (4, 6)}


def run(cluster, program, *words, **environment):
    return tools.run([*cluster.places.prefix(), program, *words], **{**PATIENCE, **environment})


def xrdfs(cluster, *words, **environment):
    return run(cluster, tools.XRDFS, cluster.man.host, *words, **environment)


def xrdcp(cluster, *words, **environment):
    return run(cluster, tools.XRDCP, "--nopbar", *words, **MAKING, **environment)


@pytest.mark.parametrize("makers", clusters.parameters("ipv6", PLAN, MIXES))
def test_ipv6_alone(makers, tmp_path):
    """Location, reading, writing, changes, and the tree, without any IPv4 address."""
    with places.Network((6,)) as network, clusters.Cluster(PLAN, makers, places=network) as cluster:
        cluster.answering()
        area = clusters.Area(cluster)
        area.put("below", b"below", "s1")
        area.put("beside", b"beside", "s2")
        for name in ("below", "beside"):
            assert xrdcp(cluster, area.url(name), "-").ok().out == name
        found = xrdfs(cluster, "locate", "-d", area / "below").ok().out
        assert f"{cluster.s1.address}:{cluster.s1.port} Server" in found, found
        (tmp_path / "source").write_bytes(data(10_000))
        for number in range(4):
            xrdcp(cluster, tmp_path / "source", area.url(f"new{number}")).ok()
            assert area.get(f"new{number}") == data(10_000)
        xrdfs(cluster, "rm", area / "below").ok()
        wait_until(lambda: xrdfs(cluster, "stat", area / "below").status == ShellCode.SERVER_ERROR)
        for node in cluster.nodes.values():
            if node.maker != "real":
                shown = node.scalla("status").ok()
                names = expected_names(node) - {root_seen_from(node).name}
                assert names and all(cluster[name].host in shown.out for name in names), shown
        cluster.s2.restart()
        cluster.formed()
        wait_until(lambda: xrdcp(cluster, area.url("beside"), "-").out == "beside")


@pytest.fixture(scope="module", params=clusters.parameters("mixed-addresses", MIXED, MIXES))
def mixed(request):
    with places.Network((4, 6)) as network, clusters.Cluster(MIXED, request.param, places=network, kinds=KINDS) as cluster:
        cluster.clients = {"v4": network.make("client4", (4,)), "v6": network.make("client6", (6,)), "both": network.make("client46")}
        yield cluster.answering()


@pytest.mark.parametrize("makers", clusters.parameters("sent-on", SENT_ON, MIXES))
def test_supervisor_is_named_by_a_kind_that_the_server_has(makers):
    """A full manager names it to each server with an address that the server can reach, although
    two of three have one family."""
    with places.Network((4, 6)) as network, \
            started_full(clusters.Cluster(SENT_ON, makers, places=network, kinds=KINDS)) as cluster:
        area = clusters.Area(cluster)
        for server in ("v4", "v6", "both"):
            area.put(f"on-{server}", server.encode(), server)
            assert xrdcp(cluster, area.url(f"on-{server}"), "-").ok().out == server


REACHED = {"v4": ["v4", "both"], "v6": ["v6", "both"], "both": ["v4", "v6", "both"]}


@pytest.mark.parametrize("kind", REACHED)
def test_mixed_addresses(mixed, kind, tmp_path):
    """Each client reads from all servers that it can reach, even if unreachable servers have the
    file too."""
    def xrdcp(*words):
        return tools.run([*mixed.clients[kind].prefix(), tools.XRDCP, "--nopbar", *words], **{**PATIENCE, **MAKING})

    area = clusters.Area(mixed)
    for name in REACHED[kind]:
        area.put(f"on-{name}", name.encode(), name)
        assert xrdcp(area.url(f"on-{name}"), "-").ok().out == name
    for server in ("v4", "v6", "both"):
        area.put("everywhere", server.encode(), server)
    for _ in range(4):
        assert xrdcp(area.url("everywhere"), "-").ok().out in REACHED[kind]
    (tmp_path / "source").write_bytes(data(10_000))
    for number in range(4):
        xrdcp(tmp_path / "source", area.url(f"new{number}")).ok()
        assert set(area.holders(f"new{number}")) <= set(REACHED[kind])
