"""New files at two managers that share their servers, and below supervisors: slow creators,
earlier readers, a second creator, nodes that are killed in between.

No file is ever on two servers. `make soak` runs more of these cases."""

import concurrent.futures
import os
import random
import select
import signal
import struct
import time

import pytest

import clusters
import raw
from clusters import Plan, opened
from codes import ErrorCode
from tools import wait_until

PLAN = Plan("""
    m1 manager
    m2 manager
    s1 server m1 m2
    s2 server m1 m2
    s3 server m1 m2
""")
BRANCHES = Plan("""
    man manager
    u1 supervisor man
    u2 supervisor man
    s1 server u1
    s2 server u1
    s3 server u2
    s4 server u2
""")
MIXES = {"ours": dict(rest="ours")}
FILES = int(os.environ.get("SCALLA_PLACEMENTS", "10"))
CREATE = raw.O_NEW | raw.O_UPDT | raw.O_MKPATH
# The wait of a client that arrives before its lease, in seconds.
OVERTAKEN = 1


@pytest.fixture(scope="module", params=clusters.parameters("placement", PLAN, MIXES))
def cluster(request):
    with clusters.Cluster(PLAN, request.param) as cluster:
        yield cluster.answering()


@pytest.fixture(scope="module", params=clusters.parameters("branches", BRANCHES, MIXES))
def branches(request):
    with clusters.Cluster(BRANCHES, request.param) as cluster:
        yield cluster


def redirected(node, path, options=CREATE):
    """Returns the node to which a creator is redirected, without a wait."""
    way, port = opened(node, path, options)
    assert way == "redirect"
    return node.cluster[node.cluster.name_of(port)]


def first_answer(node, path):
    """Returns the first answer to a creator that is not a wait."""
    return wait_until(lambda: (answer := opened(node, path, CREATE))[0] != "wait" and answer, 150)


def after_waits(node, path):
    """Returns the node to which a creator is redirected, after any waits."""
    way, port = first_answer(node, path)
    assert way == "redirect"
    return node.cluster[node.cluster.name_of(port)]


def creates(node, path, options=CREATE):
    """Reports whether a client creates a file. A client that arrives before its lease is asked to
    retry and then sent back, and arrives again; the lease of a busy server may be slow."""
    answers = []
    for _ in range(8):
        answers.append(opened(node, path, options)[0])
        if answers[-1] not in ("wait", "redirect"):
            break
        time.sleep(OVERTAKEN)
    print(f"a creator at {node.name}: {', then '.join(answers)}")
    return answers[-1] == "open"


def refuses(node, path):
    """Reports whether a client without a lease is asked to retry, because its lease may follow, and is
    then redirected."""
    return [opened(node, path, CREATE)[0] for _ in range(2)] == ["wait", "redirect"]


def recorded(cluster, node, name):
    """Waits for the record of this name that a node writes for its next run."""
    records = lambda: cluster.work.glob(f"admin/{node.name}/**/{name}")
    wait_until(lambda: any(record.read_text().strip() for record in records()))


def came_from(path, port, reason):
    """Returns a path as requested by a client that returns from a server."""
    return f"{path}?tried=127.0.0.1:{port}&triedrc={reason}"


def read_in_vain(cluster, manager, path):
    """A reader queries a manager, and returns from the server to which it was redirected."""
    way, port = opened(manager, path, raw.O_READ)
    if way == "redirect":
        server = cluster.name_of(port)
        opened(cluster[server], path, raw.O_READ)
        opened(manager, came_from(path, port, "enoent"), raw.O_READ)


def test_a_file_is_created_once(cluster):
    """The first creator is redirected, and arrives after readers and a second creator have queried
    both managers."""
    area, dice = clusters.Area(cluster), random.Random(14)
    managers = [cluster.m1, cluster.m2]
    for number in range(FILES):
        path = area / f"file{number}"
        # The managers have placed different numbers of other files.
        opened(managers[0], area / f"other{number}", CREATE)
        way, port = opened(dice.choice(managers), path, CREATE)
        assert way == "redirect"
        for _ in range(dice.randrange(3)):
            read_in_vain(cluster, dice.choice(managers), path)
        way, second = opened(dice.choice(managers), path, CREATE)
        assert way == "wait" or (way, second) == ("redirect", port)
        assert opened(cluster[cluster.name_of(port)], path, CREATE)[0] == "open"
        assert area.holders(f"file{number}") == [cluster.name_of(port)]
        for manager in managers:
            assert opened(manager, path, raw.O_READ) == ("redirect", port)
    area.remove()


@pytest.mark.parametrize("reason", ["srverr", "ioerr", "enoent"])
@pytest.mark.parametrize("options", [CREATE, raw.O_DELETE | raw.O_UPDT | raw.O_MKPATH], ids=["new", "replace"])
def test_a_creator_that_cannot_reach_the_server_gets_another(cluster, options, reason):
    """The first server ends the lease, and creates nothing for a late client."""
    area = clusters.Area(cluster)
    path = area / "file"
    first = redirected(cluster.m1, path, options)
    second = redirected(cluster.m1, came_from(path, first.port, reason), options)
    assert second is not first
    assert refuses(first, path)
    assert creates(second, path, options)
    assert area.holders("file") == [second.name]
    area.remove()


def test_a_creation_that_fails_frees_the_name(cluster):
    """The creator's server refuses. The next creator does not wait for the end of the lease."""
    area = clusters.Area(cluster)
    path = area / "file"
    server = redirected(cluster.m1, path)
    # A file has the name of the parent directory.
    blocker = server.tree / area.path[1:]
    blocker.write_bytes(b"")
    assert opened(server, path, CREATE)[0] == "error"
    blocker.unlink()
    server = redirected(cluster.m2, path)
    assert creates(server, path)
    assert area.holders("file") == [server.name]
    area.remove()


def test_a_killed_server_reports_that_it_has_lost_its_leases(cluster):
    """Other creators do not wait for a client that may be on its way, and that client creates
    nothing when it arrives."""
    area = clusters.Area(cluster)
    path = area / "file"
    server = redirected(cluster.m1, path)
    recorded(cluster, server, "leases")
    server.restart()
    cluster.formed().answering()
    # A file created there now needs a lease of this run.
    assert refuses(server, path)
    second = after_waits(cluster.m1, path)
    assert creates(second, path)
    if second is not server:
        assert refuses(server, path)
    assert area.holders("file") == [second.name]
    area.remove()


def test_a_restarted_manager_waits_for_a_server_that_may_have_a_lease(cluster):
    """One server is enough for service (`cms.delay servers 1`), and the one with the lease does not
    answer."""
    area = clusters.Area(cluster)
    path = area / "file"
    server = redirected(cluster.m1, path)
    server.signal(signal.SIGSTOP)
    try:
        cluster.m1.restart()
        others = {node.port for node in cluster.servers if node is not server}
        wait_until(lambda: others <= cluster.m1.children())
        # From now on the manager knows which files are missing.
        wait_until(lambda: opened(cluster.m1, area / "nowhere", raw.O_READ) == ("error", ErrorCode.NOT_FOUND))
        with raw.Connection(cluster.m1) as connection:
            connection.start(raw.OPEN, struct.pack(">HH", 0o644, CREATE), path.encode())
            # A later query is answered.
            wait_until(lambda: opened(cluster.m1, area / "nowhere either", raw.O_READ) == ("error", ErrorCode.NOT_FOUND))
            assert not select.select([connection.socket], [], [], 0)[0]
            server.signal(signal.SIGCONT)
            frame = connection.answer()
            while frame.status == raw.WAITRESP:
                frame = connection.answer()
            # Not a redirect to another server.
            assert frame.status == raw.WAIT
    finally:
        server.signal(signal.SIGCONT)
    cluster.formed()
    assert opened(server, path, CREATE)[0] == "open"
    assert area.holders("file") == [server.name]
    area.remove()


def placed(cluster, path):
    """Returns the supervisor and the server to which a creator is redirected."""
    supervisor = redirected(cluster.man, path)
    return supervisor, redirected(supervisor, path)


def siblings(cluster, server):
    """Returns the other servers of the same supervisor."""
    return [node for node in cluster.servers if node.parents == server.parents and node is not server]


def test_a_supervisor_that_was_killed_waits_for_the_server_that_may_have_a_lease(branches):
    """The supervisor restarts while a creator is on its way to a server that does not answer."""
    branches.complete().answering()
    area = clusters.Area(branches)
    path = area / "file"
    supervisor, server = placed(branches, path)
    old = area.put("old", b"known", siblings(branches, server)[0].name)
    recorded(branches, supervisor, "lessees")
    server.signal(signal.SIGSTOP)
    try:
        supervisor.restart()
        others = {node.port for node in siblings(branches, server)}
        wait_until(lambda: others <= supervisor.children())
        # The query timeout of the manager has passed. No file is created elsewhere, and none is
        # reported as missing.
        questions = [(path, CREATE), (area / "nowhere", raw.O_READ), (old, raw.O_READ)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda question: opened(branches.man, *question), questions))
        assert answers == [("wait", 0), ("wait", 0), ("redirect", supervisor.port)]
    finally:
        server.signal(signal.SIGCONT)
    branches.formed()
    wait_until(lambda: opened(branches.man, area / "nowhere either", raw.O_READ) == ("error", ErrorCode.NOT_FOUND))
    assert opened(branches.man, path, CREATE) == ("wait", 0)
    assert opened(server, path, CREATE)[0] == "open"
    assert area.holders("file") == [server.name]
    area.remove()


def test_a_supervisor_that_was_killed_sends_a_creator_back_whose_lease_it_forgot(branches):
    """The creator is on its way from the manager to the supervisor. Another one does not wait for it."""
    branches.complete().answering()
    area = clusters.Area(branches)
    path = area / "file"
    supervisor = redirected(branches.man, path)
    recorded(branches, supervisor, "leases")
    supervisor.restart()
    branches.formed().answering()
    assert refuses(supervisor, path)
    server = after_waits(after_waits(branches.man, path), path)
    assert creates(server, path)
    assert area.holders("file") == [server.name]
    area.remove()


def test_a_file_below_a_supervisor_is_not_created_elsewhere_while_its_server_is_away(branches):
    """No client has requested the file before its server was killed."""
    branches.complete().answering()
    area = clusters.Area(branches)
    path = area.put("file", b"below u1", "s1")
    branches.s1.kill()
    try:
        wait_until(lambda: branches.s1.port not in branches.u1.children())
        # The query timeout of the manager is 2 s, and clients of the supervisor wait for 5 s.
        assert {opened(branches.man, path, CREATE) for _ in range(4)} == {("wait", 0)}
    finally:
        branches.s1.start()
    branches.formed()
    assert first_answer(branches.man, path)[0] == "error"
    assert area.holders("file") == ["s1"]
    area.remove()
