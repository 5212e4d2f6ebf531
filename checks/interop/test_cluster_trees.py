"""Trees of several levels, in mixes of real daemons and ours: supervisors between a manager and its
servers, and meta managers above managers.

One round of client operations, at the top."""

import pytest

import clusters
import tools
from codes import ErrorCode, ShellCode
from tools import wait_until, xrdcp, xrdfs

# s1 and s2 are below the supervisor, s3 beside it.
SUPERVISED = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server sup
    s3 server man
""")
# Two sites; the second has one more server.
FEDERATION = clusters.Plan("""
    top meta
    m1 manager top
    m2 manager top
    s1 server m1
    s2 server m2
    s3 server m2
""")
SITES = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "by-command-line": dict(rest="plain"),
    "our-top": dict(top="ours", rest="real"),
    "real-top": dict(top="real", rest="ours"),
    "mixed-under-ours": dict(top="ours", m1="real", s1="ours", m2="ours", s2="real", s3="ours"),
}
SHAPES = [
    *clusters.parameters("supervised", SUPERVISED, clusters.LEVELS, plan_in=True),
    *clusters.parameters("federation", FEDERATION, SITES, plan_in=True),
]


@pytest.fixture(scope="module", params=SHAPES)
def running(request):
    plan, makers = request.param
    with clusters.Cluster(plan, makers) as cluster:
        yield cluster.answering()


@pytest.fixture
def cluster(running):
    return running.complete()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


def test_location(cluster, area):
    """One step at a time as inner nodes, in one step as servers."""
    path = area.put("file", b"deep", "s1", "s3")
    assert sorted(cluster.named(xrdfs(cluster.top, "locate", "-d", path).ok().out)) == ["s1", "s3"]
    step = xrdfs(cluster.top, "locate", path).ok()
    expected = ["m1", "m2"] if cluster.plan is FEDERATION else ["s3", "sup"]
    assert sorted(cluster.named(step.out)) == expected, step
    assert step.out.count("Manager") == len(set(expected) - {"s3"}), step
    assert sorted(cluster.named(xrdfs(cluster.top, "locate", "-r", "-d", path).ok().out)) == ["s1", "s3"]
    assert sorted(cluster.named(xrdfs(cluster.top, "locate", "-d", "-h", path).ok().out)) == ["s1", "s3"]
    assert xrdfs(cluster.top, "cat", path).ok().out == "deep"


def test_missing_file(cluster, area):
    xrdfs(cluster.top, "stat", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdfs(cluster.top, "locate", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdcp(area.url("nope"), "-").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)


def test_upload_rename_and_deletion(cluster, area, source, tmp_path):
    xrdcp(source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    xrdcp(area.url("file"), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert xrdfs(cluster.top, "query", "checksum", area / "file").ok().out.startswith("adler32 ")
    xrdfs(cluster.top, "mv", area / "file", area / "renamed").ok()
    assert area.holders("file") == []
    wait_until(lambda: xrdfs(cluster.top, "stat", area / "renamed").status == 0)
    wait_until(lambda: xrdfs(cluster.top, "stat", area / "file").status == ShellCode.SERVER_ERROR)
    xrdfs(cluster.top, "rm", area / "renamed").ok()
    assert area.holders("renamed") == []
    wait_until(lambda: xrdfs(cluster.top, "stat", area / "renamed").status == ShellCode.SERVER_ERROR)


def test_changes_at_servers_reach_the_top(cluster, area, source):
    """A file created, and one removed, at a server two levels below a top with stale information."""
    xrdfs(cluster.top, "stat", area / "made").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdcp(source, cluster.s2.url(area / "made")).ok()
    wait_until(lambda: cluster.named(xrdfs(cluster.top, "locate", "-d", area / "made").out) == ["s2"])
    path = area.put("gone", b"x", "s1", "s3")
    xrdfs(cluster.top, "stat", path).ok()
    xrdfs(cluster.s3, "rm", path).ok()
    wait_until(lambda: cluster.named(xrdfs(cluster.top, "locate", "-d", path).out) == ["s1"])
    for _ in range(3):
        assert xrdfs(cluster.top, "cat", path).ok().out == "x"


def test_listing_has_each_name_once(cluster, area):
    area.put("everywhere", b"x", "s1", "s2", "s3")
    for name in ("s1", "s2", "s3"):
        area.put(f"on-{name}", b"x", name)
    listed = xrdfs(cluster.top, "ls", area.path).ok().out.split()
    assert listed == sorted(area / name for name in ("everywhere", "on-s1", "on-s2", "on-s3"))


def test_map(cluster, area):
    path = area.put("file", b"x", "s2")
    shown = tools.run([clusters.XRDMAPC, "--list", "all", cluster.top.host]).ok()
    assert sorted(set(cluster.named(shown.out))) == sorted(cluster.nodes), shown
    done = tools.run([clusters.XRDMAPC, "--verify", cluster.top.host, path]).ok()
    marks = {cluster.named(line)[0]: line.split()[0] for line in done.out.splitlines() if cluster.named(line)}
    assert "+" in marks["s2"] and "-" in marks["s1"] and "-" in marks["s3"], done


def test_space(cluster):
    assert "oss.free=" in xrdfs(cluster.top, "query", "space", "/").ok().out
    assert "Total:" in xrdfs(cluster.top, "spaceinfo", "/").ok().out


def test_restarts(cluster, area):
    """A server, the inner node above it, and the top are restarted one after another."""
    path = area.put("file", b"before and after", "s2")
    xrdfs(cluster.top, "stat", path).ok()
    for node in (cluster.s2, cluster[cluster.s2.parents[0]], cluster.top):
        node.restart()
        wait_until(lambda: xrdfs(cluster.top, "cat", path).out == "before and after", 60)
