"""Directives that define the members of a cluster and the view of its servers, in mixes of real
daemons and ours.

Each node is in a network namespace of its own where hosts matter."""

import re
import signal

import pytest

import clusters
import peers
import places
from clients import xrdcp, xrdfs
from codes import ErrorCode, ShellCode
from tools import data, wait_until


def addresses(cluster):
    """Returns the addresses of the nodes to which the first manager could redirect a client."""
    return {word[2:].rpartition(":")[0].strip("[]:") for word in cluster.top.locate("*") or []}


@pytest.fixture
def start():
    """Returns a function that starts a cluster in namespaces, defined by the test."""
    entered = []

    def begin(plan, makers, settings, **how):
        network = places.Network()
        entered.append(network)
        cluster = clusters.Cluster(plan, makers, places=network, **how)
        entered.append(cluster)
        cluster.settings = settings(cluster)
        network.name_hosts({"managers": [cluster.top.address]})
        return cluster

    yield begin
    for one in reversed(entered):
        one.remove()


@pytest.mark.parametrize("makers", clusters.parameters("allow", clusters.PAIR, clusters.SIDES))
def test_only_hosts_that_are_allowed_join(start, makers):
    cluster = start(clusters.PAIR, makers, lambda cluster: "".join(
        f"if named man\ncms.allow host {host}\nfi\n" for host in (cluster.man.address, cluster.s1.address)))
    cluster.s2.parents, parents = [], cluster.s2.parents
    cluster.start()
    area = clusters.Area(cluster)
    area.put("file", b"allowed", "s1")
    area.put("hidden", b"not allowed", "s2")
    assert xrdfs(cluster, "cat", area / "file").ok().out == "allowed"
    xrdfs(cluster, "stat", area / "hidden").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    assert addresses(cluster) == {cluster.s1.address}
    if cluster.man.maker == "ours":
        wait_until(lambda: f"{cluster.s2.address} is not allowed to join" in cluster.man.output())
        assert "cms.allow is not set" not in cluster.man.output()
    cluster.s2.parents = parents


@pytest.mark.parametrize("forward", ["", "ofs.forward 2way mv rm\n"], ids=["files", "orders"])
def test_an_open_cluster_port_is_logged_as_a_warning(forward):
    """The log states what unauthenticated hosts may do; servers have no such port."""
    makers = clusters.mixed(clusters.PAIR, rest="ours")
    with clusters.Cluster(clusters.PAIR, makers, settings=forward) as cluster:
        warnings = [line for line in cluster.man.output().splitlines() if "cms.allow is not set" in line]
        assert len(warnings) == 1 and "may join as a data server" in warnings[0]
        assert ("have all servers do mv, rm (ofs.forward)" in warnings[0]) == bool(forward)
        assert all("cms.allow" not in server.output() for server in cluster.servers)


@pytest.mark.parametrize("makers", clusters.parameters("shared", clusters.PAIR, clusters.SIDES))
def test_servers_that_share_their_files(start, makers, tmp_path):
    """`cms.dfs`: both servers share one directory. Each file is reported at both, and space is
    counted once."""
    cluster = start(clusters.PAIR, makers, lambda cluster: "cms.dfs lookup distrib redirect verify\n")
    cluster.s2.tree = cluster.s1.tree
    cluster.start()
    (tmp_path / "source").write_bytes(data(10_000))
    area = clusters.Area(cluster)
    xrdcp(cluster, tmp_path / "source", f"root://managers:1094/{area / 'file'}").ok()
    for _ in range(3):
        assert xrdcp(cluster, f"root://managers:1094/{area / 'file'}", "-").ok().raw == data(10_000)
    xrdfs(cluster, "mv", area / "file", area / "moved").ok()
    wait_until(lambda: xrdcp(cluster, f"root://managers:1094/{area / 'moved'}", "-").raw == data(10_000))
    # Without one server the other has all files.
    cluster.s1.kill()
    wait_until(lambda: xrdcp(cluster, f"root://managers:1094/{area / 'moved'}", "-").raw == data(10_000), 60)
    xrdfs(cluster, "rm", area / "moved").ok()
    wait_until(lambda: xrdfs(cluster, "stat", area / "moved").status == ShellCode.SERVER_ERROR)


@pytest.mark.parametrize("makers", clusters.parameters("central", clusters.PAIR, clusters.SIDES))
def test_manager_that_looks_up_files_itself(start, makers):
    """`cms.dfs lookup central`: the manager also sees the servers' directory, and finds files
    without a query. Names in a missing directory are reported missing for `mdhold`."""
    cluster = start(clusters.PAIR, makers, lambda cluster: f"cms.dfs lookup central mdhold 1h\nif named man\noss.localroot {cluster.s1.tree}\nfi\n")
    cluster.s2.tree = cluster.s1.tree
    cluster.start()
    area = clusters.Area(cluster)
    area.put("file", b"shared", "s1")
    both = {cluster.s1.address, cluster.s2.address}

    def holders(name, *options):
        found = xrdfs(cluster, "locate", *options, area / name)
        return {word.rpartition(":")[0].strip("[]:") for word in re.findall(r"^\S+", found.out, re.M)} if found.status == 0 else set()

    # There is no server to query.
    for server in cluster.servers:
        server.signal(signal.SIGSTOP)
    assert holders("file") == both
    xrdfs(cluster, "locate", area / "late").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    area.put("late", b"later", "s1")
    xrdfs(cluster, "locate", area / "late").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    assert holders("late", "-r") == both
    xrdfs(cluster, "locate", area / "gone/file").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    (area.local("s1") / "gone").mkdir()
    peers.place(area.local("s1", "gone/file"), b"there")
    assert holders("gone/file", "-r") == set()
    for server in cluster.servers:
        server.signal(signal.SIGCONT)
    cluster.formed()
    assert xrdfs(cluster, "cat", area / "file").ok().out == "shared"
    assert xrdcp(cluster, "/etc/hostname", f"root://managers:1094/{area / 'made'}").ok()
    assert area.local("s1", "made").is_file()
    xrdfs(cluster, "rm", area / "made").ok()
    assert not area.local("s1", "made").exists()


@pytest.mark.parametrize("makers", clusters.parameters("named", clusters.PAIR, clusters.SIDES))
def test_identity_by_configuration(start, makers):
    """`cms.vnid`: a node that reconnects with another address is the same node."""
    cluster = start(clusters.PAIR, makers, lambda cluster: "".join(f"if named {name}\ncms.vnid =id-of-{name}\nfi\n" for name in cluster.nodes))
    cluster.start()
    area = clusters.Area(cluster)
    area.put("file", b"the same", "s1")
    assert xrdfs(cluster, "cat", area / "file").ok().out == "the same"
    cluster.s1.kill()
    cluster.s1.place = cluster.places.make("s1-moved")
    cluster.s1.address, cluster.s1.port = cluster.s1.place.address, None
    cluster.places.name_hosts({"managers": [cluster.man.address]})
    cluster.s1.start()
    cluster.formed()
    wait_until(lambda: xrdfs(cluster, "cat", area / "file").out == "the same", 60)
    assert addresses(cluster) == {cluster.s1.address, cluster.s2.address}
