"""`cms.blacklist` and `cms.whitelist`: excluded nodes and redirected ones, also when the list
changes while clients are active.

Each node is in a network namespace of its own. The managers are ours, because a real one of 5.5.3
disconnects a banned server and accepts it again when it reconnects."""

import pytest

import clusters
from clients import Steps, digest, url, xrdcp, xrdfs
from test_cluster_settings import addresses, start  # noqa: F401 (a fixture)
from tools import data, wait_until

# The servers know only `man`; `other` is the manager to which it may redirect them.
PLAN = clusters.Plan("""
    man manager
    other manager
    s1 server man
    s2 server man
""")
# A real node that was refused reconnects after a minute.
PATIENCE = 200
MIB = 1 << 20
UNDER_OURS = {mix: clusters.SIDES[mix] for mix in ("ours", "real-servers-under-ours")}
OTHER = " redirect other:1213"


class List:
    """The file, replaced as an administrator does."""

    def __init__(self, cluster, kind="blacklist"):
        self.path = cluster.work / "list"
        self.settings = f"if named man\ncms.{kind} check 2 {self.path}\nfi\n"

    def name(self, *nodes, then=""):
        """Replaces it by a list of these nodes."""
        new = self.path.with_name("new")
        new.write_text("# nodes\n" + "".join(f"{node.address}{then}\n" for node in nodes))
        clusters.peers.give(new)
        new.rename(self.path)


@pytest.fixture
def listed(start, request):  # noqa: F811
    """A cluster whose manager has a list, and the list."""
    def begin(makers, kind="blacklist", names=(), then=""):
        lists = []

        def settings(cluster):
            lists.append(List(cluster, kind))
            lists[0].name(*(cluster[name] for name in names), then=then)
            return lists[0].settings
        cluster = start(PLAN, makers, settings)
        return cluster, lists[0]
    return begin


@pytest.mark.parametrize("makers", clusters.parameters("blacklist", PLAN, UNDER_OURS))
def test_banned_while_clients_are_active(listed, makers):
    """A server that is put on the list gets no new clients, and its clients finish. Taken off, it
    rejoins."""
    cluster, list_ = listed(makers)
    cluster.start()
    cluster.answering()
    content = data(MIB)
    area = clusters.Area(cluster)
    area.put("only", content, "s1")
    area.put("both", content, "s1", "s2")
    with Steps(cluster) as steps:
        steps("open", "read", url(area, "only"))
        list_.name(cluster.s1)
        wait_until(lambda: addresses(cluster) == {cluster.s2.address}, PATIENCE)
        assert steps("read", 0, MIB) == digest(content)
        for _ in range(3):
            assert xrdcp(cluster, url(area, "both"), "-").ok().raw == content
        assert addresses(cluster) == {cluster.s2.address}
    list_.name()
    wait_until(lambda: addresses(cluster) == {cluster.s1.address, cluster.s2.address}, PATIENCE)
    wait_until(lambda: xrdcp(cluster, url(area, "only"), "-").raw == content, 60)


@pytest.mark.parametrize("makers", clusters.parameters("blacklist", PLAN, UNDER_OURS))
def test_sent_to_another_manager(listed, makers):
    """A server with `redirect` in its line goes to the manager named there, at its login and while
    it is in use, and serves there."""
    cluster, list_ = listed(makers, names=["s1"], then=OTHER)
    cluster.s1.parents = ["other"]
    cluster.start()
    area = clusters.Area(cluster)
    for name in ("s1", "s2"):
        area.put("file", name.encode(), name)
    assert addresses(cluster) == {cluster.s2.address}
    assert xrdfs(cluster, "cat", area / "file").ok().out == "s2"
    assert xrdfs(cluster, "cat", area / "file", host=cluster.other.host).ok().out == "s1"
    list_.name(cluster.s1, cluster.s2, then=OTHER)
    cluster.s2.parents = ["other"]
    cluster.formed(PATIENCE)
    wait_until(lambda: addresses(cluster) == set(), 60)
    area.put("late", b"s2", "s2")
    wait_until(lambda: xrdfs(cluster, "cat", area / "late", host=cluster.other.host).out == "s2", 60)


@pytest.mark.parametrize("makers", clusters.parameters("whitelist", PLAN, {"ours": clusters.SIDES["ours"]}))
def test_only_listed_servers_join(listed, makers):
    """A whitelist: no other server joins until it is on the list."""
    cluster, list_ = listed(makers, "whitelist", ["s1"])
    cluster.s2.parents = []
    cluster.start()
    assert addresses(cluster) == {cluster.s1.address}
    list_.name(cluster.s1, cluster.s2)
    wait_until(lambda: addresses(cluster) == {cluster.s1.address, cluster.s2.address}, PATIENCE)
