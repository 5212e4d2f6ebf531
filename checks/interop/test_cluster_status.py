"""`scalla cluster status` from each node of ours, in mixes of real daemons and ours: the tree as
text and as JSON.

The tree is as complete as nodes know their parents. A real node does not report its parents, but
its children."""

import json
import re
import signal

import pytest

import clusters
from test_cluster_flat import FLAT, MIXES
from test_cluster_trees import FEDERATION, SITES, SUPERVISED
from tools import wait_until, xrdfs


def shapes(name, plan, mixes):
    """Without mixes of one kind: the real ones have no such status, and ours are configured by
    command line."""
    return clusters.parameters(name, plan, {mix: mixes[mix] for mix in mixes if mix not in ("real", "ours")}, plan_in=True)


SHAPES = [
    *shapes("flat", FLAT, MIXES),
    *shapes("supervised", SUPERVISED, clusters.LEVELS),
    *shapes("federation", FEDERATION, SITES),
]
ROLES = {"meta": "meta manager"}
# States of a server in a drawing, of which a lost server has one.
STATES = ("not serving", "serving", "away")
LINE = re.compile(r"^([│├└─ ]*)(meta manager|manager|supervisor|server)( [^ ,]+)?(, nodes at ([^ ]+))? ")


@pytest.fixture(scope="module", params=SHAPES)
def running(request):
    plan, makers = request.param
    with clusters.Cluster(plan, makers) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    for node in running.nodes.values():
        node.signal(signal.SIGCONT)
    return running.complete()


def ours(cluster):
    return [node for node in cluster.nodes.values() if node.maker != "real"]


def root_seen_from(node):
    """A node of ours reports its parents, a real one does not."""
    first = node
    while node.parents and (node is first or node.maker != "real"):
        node = node.cluster[node.parents[0]]
    return node


def expected(node, path=()):
    """Returns the paths of names below a node, including itself."""
    path = (*path, node.name)
    children = [other for other in node.cluster.nodes.values() if node.name in other.parents]
    return {path}.union(*(expected(child, path) for child in children))


def name_of(cluster, address):
    return cluster.name_of(address.rpartition(":")[2])


def drawn(cluster, text):
    """Parses a drawing into the same paths, and the rest of each line by name."""
    lines = [(LINE.match(line), line) for line in text.splitlines()]
    path, paths, rest = [], set(), {}
    for match, line in lines:
        if not match:
            continue
        lead, role, address, _, nodes_at = match.groups()
        if address:
            name = name_of(cluster, address)
        else:
            port = int(nodes_at.rpartition(":")[2])
            name = next(node.name for node in cluster.nodes.values() if node.cms_port == port)
        path = [*path[: len(lead) // 3], name]
        paths.add(tuple(path))
        rest[name] = (role, line[match.end():].split())
    return paths, rest


def told(cluster, status, name, path=()):
    """Parses an object into the same paths."""
    path = (*path, name)
    found = {path}
    for child in status["children"]:
        below = child.get("node") or {"children": []}
        found |= told(cluster, below, name_of(cluster, child["address"]), path)
    return found


def children(status):
    """Returns all children in an object, at all depths."""
    for child in status["children"]:
        yield child
        yield from children(child.get("node") or {"children": []})


def test_tree_as_text(cluster):
    for node in ours(cluster):
        root = root_seen_from(node)
        seen = node.scalla("status").ok()
        paths, rest = drawn(cluster, seen.out)
        assert paths == expected(root), (node.name, seen)
        assert seen.err == ""
        for name, (role, words) in rest.items():
            one = cluster[name]
            # A real manager does not report to other nodes that it is a supervisor; its managers
            # know.
            known = one is not root or one.maker != "real"
            assert role == ROLES.get(one.role, one.role) or not known, seen
            assert "serving" in words, seen
        assert "scalla v" not in seen.out
        wide = drawn(cluster, node.scalla("status", "--wide").ok().out)[1]
        assert "scalla" in wide[node.name][1] and set(wide) == set(rest), seen
        assert len([line for line in seen.out.splitlines() if "locations known" in line]) == \
            len([name for name in rest if cluster[name].is_parent and cluster[name].maker != "real" and tells_all(node, name)]), seen


def tells_all(start, name):
    """Reports whether the whole view of a node of ours is available from another: real nodes above
    it do not report its status address."""
    cluster = start.cluster
    above = [start]
    while above[-1].parents:
        above.append(cluster[above[-1].parents[0]])
    node = cluster[name]
    return node in above or all(cluster[parent].maker != "real" for parent in node.parents)


def test_tree_as_json(cluster):
    for node in ours(cluster):
        root = root_seen_from(node)
        status = json.loads(node.scalla("status", "--json").ok().out)
        assert status["missing"] == []
        assert status["state"] == "serving"
        assert told(cluster, status, root.name) == expected(root), status
        if root.maker != "real":
            assert status["role"] == ROLES.get(root.role, root.role) and status["data_port"] == root.port
            assert status["version"].startswith("scalla v") and status["uptime_seconds"] >= 0
            assert {"locations", "hits", "misses", "hit_rate", "queries"} <= set(status["cache"])
        for child in children(status):
            one = cluster[name_of(cluster, child["address"])]
            assert child["role"] == ROLES.get(one.role, one.role) and child["state"] == "serving", child
            parent = cluster[one.parents[0]]
            if parent.maker != "real" and tells_all(node, parent.name):
                # Its parent is ours and has all its data.
                assert child["age_seconds"] >= 0 and child["id"] and child["paths"] == ["w /"], child
                assert child["name"] == one.name, child
                assert child["version"].startswith("scalla v") == (one.maker != "real"), child
                assert child["space"]["free_mb"] > 0, child
                # A real supervisor or manager reports only its best server.
                assert child["space"]["total_mb"] > 0 or one.is_parent and one.maker == "real", child
            if one.is_parent and one.maker == "real":
                assert child["version"] == "v5.5.3", child


def test_here(cluster):
    """Without queries to others: parents by address, children without their subtrees."""
    for node in ours(cluster):
        status = json.loads(node.scalla("status", "--here", "--json").ok().out)
        assert [address.rpartition(":")[2] for address in status["parents"]] == [str(cluster[name].cms_port) for name in node.parents]
        assert {name_of(cluster, child["address"]) for child in status["children"]} == \
            {other.name for other in cluster.nodes.values() if node.name in other.parents}
        assert not any("node" in child for child in status["children"])


def test_cache_is_counted(cluster):
    if cluster.top.maker == "real":
        pytest.skip("a real node does not say what it knows")
    area = clusters.Area(cluster)
    path = area.put("file", b"x", cluster.servers[0].name)

    def cache():
        return json.loads(cluster.top.scalla("status", "--json").ok().out)["cache"]

    before = cache()
    for _ in range(3):
        xrdfs(cluster.top, "locate", path).ok()
    after = cache()
    assert after["misses"] > before["misses"] and after["hits"] >= before["hits"] + 2 and after["locations"] > before["locations"]


def state_of_lost(node, lost):
    """Returns the state of a lost server that a node shows; None for no line. A supervisor forgets a
    lost child. A manager of ours reports it as away, where its whole view is available."""
    parent = node.cluster[lost.parents[0]]
    if parent.role == "supervisor":
        return None
    return "away" if parent.maker != "real" and tells_all(node, parent.name) else "not serving"


def test_lost_server(cluster):
    lost = cluster.s2
    observers = [node for node in ours(cluster) if node is not lost and lost.name in expected_names(node)]
    assert observers
    lost.kill()
    for node in observers:

        def shown():
            """Returns the state in its line, if there is one."""
            words = drawn(cluster, node.scalla("status").ok().out)[1].get(lost.name, (None, None))[1]
            return words and next((state for state in STATES if f" {state} " in f" {' '.join(words)} "), None)

        wait_until(lambda: shown() == state_of_lost(node, lost))


def test_inner_node_that_does_not_answer(cluster):
    """It is named, with the reason, and everything else is shown."""
    if cluster.plan is FLAT:
        pytest.skip("no inner node below the top")
    inner = cluster[cluster.s1.parents[0]]
    asker = next((node for node in ours(cluster) if node not in (inner, cluster.s1, cluster.s2) and inner.name in expected_names(node)), None)
    if asker is None:
        pytest.skip("no node of ours sees it from elsewhere")
    inner.signal(signal.SIGSTOP)
    seen = asker.scalla("status").ok()
    inner.signal(signal.SIGCONT)
    _, rest = drawn(cluster, seen.out)
    assert {"s3", inner.name} <= set(rest), seen
    if "away" not in rest[inner.name][1]:
        assert "not seen: " in seen.err and (str(inner.port) in seen.err or str(inner.cms_port) in seen.err), seen


def expected_names(node):
    return {path[-1] for path in expected(root_seen_from(node))}


def test_order_for_a_node_that_is_not_there(cluster):
    for node in ours(cluster):
        done = node.scalla("drain", "nobody.invalid:1094")
        assert done.status == 1 and "nobody.invalid:1094" in done.err, done


# Two managers that share a server.
TWO_MANAGERS = clusters.Plan("""
    m1 manager
    m2 manager
    s1 server m1 m2
""")


def test_newcomers_are_shown(request):
    """A server that does not know all its managers yet gets no new files."""
    cluster = clusters.Cluster(TWO_MANAGERS, "ours")
    request.addfinalizer(cluster.remove)
    cluster.write_configuration()
    cluster["m1"].start()
    cluster["m2"].start()
    # It accepts the connection of the server, and does not answer.
    cluster["m2"].signal(signal.SIGSTOP)
    cluster["s1"].start()

    def child():
        known = json.loads(cluster["m1"].scalla("status", "--here", "--json").ok().out)["children"]
        return known[0] if known else {}

    wait_until(lambda: child().get("newcomer"))
    assert "serving (newcomer)" in cluster["m1"].scalla("status", "--here").ok().out
    cluster["m2"].signal(signal.SIGCONT)
    wait_until(lambda: child() and "newcomer" not in child())
