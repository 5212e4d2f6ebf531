"""Nodes drained by their administrator, each in a network namespace of its own, configured by
command lines alone and in mixes.

They are drained with active clients, over a restart, and with the network cut meanwhile."""

import json
import re
import signal
import struct

import pytest

import clusters
import places
import raw
from clients import MAKING, Steps, digest, url, xrdcp, xrdfs
from tools import data, pattern, wait_until

PLAN = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server sup
    s3 server man
""")
MIXES = {
    "by-command-line": dict(rest="plain"),
    "ours": dict(rest="ours"),
    "our-servers-under-real": dict(servers="ours", rest="real"),
    "real-servers-under-ours": dict(servers="real", rest="ours"),
    "real-supervisor": dict(sup="real", rest="ours"),
}
MIB = 1 << 20


@pytest.fixture(scope="module", params=clusters.parameters("drained", PLAN, MIXES))
def running(request):
    with places.Network() as network, clusters.Cluster(PLAN, request.param, places=network) as cluster:
        network.name_hosts({"managers": [cluster.man.address]})
        yield cluster


@pytest.fixture
def cluster(running):
    """All nodes running and in use."""
    for node in running.nodes.values():
        node.place.heal()
    running.complete()
    for node in running.nodes.values():
        if node.maker != "real":
            node.scalla("undrain").ok()
            for child in json.loads(node.scalla("status", "--here", "--json").ok().out)["children"]:
                node.scalla("undrain", child["address"]).ok()
    return running.complete().answering()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


def state(node, of):
    """Returns the state that `scalla cluster status` on a node reports for itself or for its child."""
    status = json.loads(node.scalla("status", "--here", "--json").ok().out)
    if node is of:
        return status["state"]
    # A supervisor forgets a lost child.
    return next((child["state"] for child in status["children"] if child["address"].startswith(f"{of.address}:")), "away")


def drain(cluster, name):
    """Drains by a command at the node itself, or for a real one at its parent. Returns the node at
    which to end the drain. Waits until its parent, if ours, reports it, and a real one has received
    it."""
    node = cluster[name]
    parent = cluster[node.parents[0]]
    at, words = (node, []) if node.maker != "real" else (parent, [node.host])
    assert "draining " in at.scalla("drain", *words).ok().out
    if parent.maker != "real":
        wait_until(lambda: state(parent, node) == "draining")
    else:
        wait_until(lambda: node.port not in parent.children())
    return lambda: at.scalla("undrain", *words).ok()


def goes_to(cluster, target, name):
    """All clients are redirected there. A real supervisor that was blocked for long may be lost and
    back only after its pause. Meanwhile the draining server is the only known one with the files
    below it."""
    for _ in range(3):
        if cluster.sup.maker == "real" and cluster.man.maker != "real":
            wait_until(lambda: state(cluster.man, cluster.sup) == "serving")
        assert opened_at(cluster, target) == name


def both_known(cluster, path):
    """Both servers with the file are known. A real supervisor that answers after the query timeout,
    which is 1 s here, counts as a node without the file until it answers."""
    def found():
        return xrdfs(cluster, "locate", "-d", path).ok().out.count("Server") == 2

    if cluster.sup.maker == "real":
        wait_until(found)
    assert found()


def told_of(cluster, parent):
    """The manager knows the drained node below this one: it is itself, or a supervisor that can
    report it."""
    return parent is cluster.man or {parent.maker, cluster.man.maker}.isdisjoint({"real"})


def lets_wait(parent):
    """A real supervisor lets clients wait for its one suspended server with the file, even if other
    nodes have it."""
    return parent.maker == "real" and parent.role == "supervisor"


def is_led_to(cluster, path, node):
    """The manager redirects a bare client there, which takes almost no time. A node that had fewer
    clients than another for a while, as after an earlier test that drained it, gets all of them
    until it has had as many."""
    with cluster.man.connect() as connection:
        stream = connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode())
        return clusters.redirected(connection, stream, path) == node.port


def opened_at(cluster, target):
    with Steps(cluster) as steps:
        steps("open", "read", target)
        found = steps.server(cluster).name
        steps("close")
    return found


@pytest.mark.parametrize("name", ["s1", "s3"])
def test_server_is_drained_under_clients(cluster, area, name, tmp_path):
    """Open files stay open. New clients go elsewhere, and return when the drain has ended."""
    content = pattern(2 * MIB)
    other = "s3" if name == "s1" else "s2"
    area.put("both", content, name, other)
    area.put("only", content, name)
    (tmp_path / "source").write_bytes(data(1000))
    node, parent = cluster[name], cluster[cluster[name].parents[0]]
    both_known(cluster, area / "both")
    with Steps(cluster) as reading, Steps(cluster, **MAKING) as writing:
        reading("open", "read", url(area, "only"))
        writing("open", "new", url(area, "written", node.host))
        assert reading("read", 0, MIB) == digest(content[:MIB])
        undrain = drain(cluster, name)
        if told_of(cluster, parent):
            goes_to(cluster, url(area, "both"), other)
        if not lets_wait(parent):
            assert xrdcp(cluster, url(area, "both"), "-").ok().raw == content
        for number in range(4):
            xrdcp(cluster, tmp_path / "source", url(area, f"new{number}")).ok()
            assert name not in area.holders(f"new{number}")
        if node.maker != "real" and told_of(cluster, parent) and parent.maker != "real":
            # A client that connects to it directly is redirected to another copy.
            goes_to(cluster, url(area, "both", node.host), other)
        if all(one.maker != "real" for one in cluster.of("manager", "supervisor")):
            # Files without another copy are still served. (A real parent lets clients wait.)
            assert opened_at(cluster, url(area, "only")) == name
        assert reading("read", MIB, MIB) == digest(content[MIB:])
        writing("write", 0, len(content))
        assert reading("close") == "" and writing("close") == ""
    assert area.local(name, "written").read_bytes() == content
    undrain()
    cluster.formed()
    if parent.maker != "real":
        wait_until(lambda: state(parent, node) == "serving")
    wait_until(lambda: xrdcp(cluster, url(area, "only"), "-").raw == content)


@pytest.mark.parametrize("name", ["sup", "s3"])
def test_manager_waits_until_nothing_is_open(cluster, area, name):
    """At a server and at a supervisor, open files are counted from the statistics, which real servers
    have too. An interrupt ends the wait and not the drain."""
    if cluster.man.maker == "real":
        pytest.skip("a real manager has no such order")
    target = "s1" if name == "sup" else name
    area.put("only", pattern(MIB), target)

    def shown():
        words = cluster.man.scalla("status").ok().out.split("\n")
        return next(line for line in words if f"{cluster[name].address}:{cluster[name].port}" in line)

    with Steps(cluster) as reading:
        reading("open", "read", url(area, "only", cluster[target].host))
        reading("read", 0, 100)
        with cluster.man.begin_scalla("drain", cluster[name].host, "--wait") as waiting:
            first = waiting.stdout.readline()
            assert re.fullmatch(r"draining \S+: 1 file open, \d+ clients?\n", first), first
            if cluster[name].role == "server":
                assert "draining (1 file open, " in shown()
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait() == -signal.SIGINT
        assert state(cluster.man, cluster[name]) == "draining"
        with cluster.man.begin_scalla("drain", cluster[name].host, "--wait") as waiting:
            assert "1 file open" in waiting.stdout.readline()
            reading("close")
            # Clients may leave before the file is closed.
            assert list(waiting.stdout)[-1].startswith("drained ")
            assert waiting.wait() == 0
    if cluster[name].role == "server":
        assert " drained " in shown()


@pytest.mark.parametrize("name", ["s1", "s3"])
def test_drain_holds_over_a_restart_and_a_cut(cluster, area, name):
    """The node itself remembers the drain. Its parent learns of it again when the network is back."""
    content = pattern(10_000)
    other = "s3" if name == "s1" else "s2"
    area.put("both", content, name, other)
    node, parent = cluster[name], cluster[cluster[name].parents[0]]
    if node.maker == "real":
        pytest.skip("a real node does not remember it")
    both_known(cluster, area / "both")

    def drained():
        return state(parent if parent.maker != "real" else node, node) == "draining"

    def elsewhere():
        """The drain holds at the node itself, and clients are sent to the other copy."""
        assert state(node, node) == "draining"
        if not lets_wait(parent):
            for _ in range(3):
                assert xrdcp(cluster, url(area, "both"), "-").ok().raw == content
        if told_of(cluster, parent):
            goes_to(cluster, url(area, "both"), other)

    undrain = drain(cluster, name)
    node.kill()
    node.start()
    wait_until(drained)
    elsewhere()
    node.place.cut()
    if parent.maker != "real":
        wait_until(lambda: state(parent, node) == "away", 60)
    elsewhere()
    node.place.heal()
    wait_until(drained, 60)
    elsewhere()
    undrain()
    cluster.formed()
    cluster[other].kill()
    wait_until(lambda: xrdcp(cluster, url(area, "both"), "-").raw == content, 60)


def test_supervisor_is_drained(cluster, area):
    """The whole subtree is drained: copies elsewhere are read, and files that exist only below it
    are still served."""
    if cluster.sup.maker == "real" and cluster.man.maker == "real":
        pytest.skip("there is nobody to give the order to")
    content = pattern(10_000)
    area.put("both", content, "s1", "s3")
    area.put("only", content, "s2")
    undrain = drain(cluster, "sup")
    for _ in range(4):
        assert opened_at(cluster, url(area, "both")) == "s3"
    assert opened_at(cluster, url(area, "only")) == "s2"
    undrain()
    wait_until(lambda: state(cluster.man, cluster.sup) == "serving")
    cluster.s3.kill()
    wait_until(lambda: xrdcp(cluster, url(area, "both"), "-").raw == content, 60)


def test_all_below_a_supervisor_are_drained(cluster, area, tmp_path):
    """New files and readers go elsewhere. Files that exist only there are read there, and open
    reads move when they can."""
    if "real" in {cluster.man.maker, cluster.sup.maker}:
        pytest.skip("a real parent lets clients wait for files of a drained server")
    content = pattern(2 * MIB)
    for name in ("s1", "s2"):
        area.put(f"only-{name}", content, name)
    area.put("all", content, "s1", "s2", "s3")
    (tmp_path / "source").write_bytes(data(1000))
    with Steps(cluster) as reading:
        reading("open", "read", url(area, "all", cluster.s1.host))
        assert reading("read", 0, MIB) == digest(content[:MIB])
        undrain = [drain(cluster, name) for name in ("s1", "s2")]
        wait_until(lambda: state(cluster.man, cluster.sup) == "draining")
        goes_to(cluster, url(area, "all"), "s3")
        for number in range(4):
            xrdcp(cluster, tmp_path / "source", url(area, f"new{number}")).ok()
            assert area.holders(f"new{number}") == ["s3"]
        for name in ("s1", "s2"):
            assert opened_at(cluster, url(area, f"only-{name}")) == name

        def moved():
            assert reading("read", MIB, MIB) == digest(content[MIB:])
            return reading.server(cluster) is not cluster.s1

        if cluster.s1.maker != "real":
            wait_until(moved)
    for back in undrain:
        back()
    wait_until(lambda: state(cluster.man, cluster.sup) == "serving")
    wait_until(lambda: is_led_to(cluster, area / "all", cluster.sup))
    wait_until(lambda: opened_at(cluster, url(area, "all")) != "s3")


def test_suspended_by_its_manager(cluster, area):
    """A parent has one way to keep clients off a child: files with other copies are read there."""
    if cluster.man.maker == "real":
        pytest.skip("a real manager has no such order")
    content = pattern(10_000)
    area.put("both", content, "s1", "s3")
    both_known(cluster, area / "both")
    assert cluster.man.scalla("suspend", cluster.s3.host).ok().out.startswith("draining ")
    assert state(cluster.man, cluster.s3) == "draining"
    for _ in range(4):
        assert opened_at(cluster, url(area, "both")) == "s1"
    cluster.man.scalla("resume", cluster.s3.host).ok()
    assert state(cluster.man, cluster.s3) == "serving"
