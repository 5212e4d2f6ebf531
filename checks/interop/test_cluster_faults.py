"""Failures of servers, managers and networks of clusters in all mixes, each node in a network
namespace of its own.

Clients are the real `xrdcp` and a Python client. There must be no wrong byte, no hang, and no
avoidable error."""

import signal

import pytest

import clusters
import places
import tools
from clients import MAKING, Steps, digest, start, url, xrdcp, xrdfs
from codes import ShellCode
from tools import data, pattern, wait_until

# Two managers that share two servers: each node logs in to both.
TWINS = clusters.Plan("""
    m1 manager
    m2 manager
    s1 server m1 m2
    s2 server m1 m2
""")
MIXES = {
    **clusters.SIDES,
    "both": dict(m1="ours", m2="real", s1="ours", s2="real"),
}
MIB = 1 << 20


@pytest.fixture(scope="module", params=clusters.parameters("twins", TWINS, MIXES))
def running(request):
    with places.Network() as network, clusters.Cluster(TWINS, request.param, places=network) as cluster:
        # Clients know one name for both managers.
        network.name_hosts({"managers": [cluster.m1.address, cluster.m2.address]})
        yield cluster


@pytest.fixture
def cluster(running):
    """All nodes running, joined, and answering. Connections that were cut take a while to recover."""
    for node in running.nodes.values():
        node.place.heal()
        node.signal(signal.SIGCONT)
    return running.complete().answering()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


@pytest.mark.parametrize("way, python", [("killed", 0), ("killed", 1), ("cut off", 0), ("frozen", 1)],
                         ids=["killed-newest", "killed-5.5.3", "cut-newest", "frozen-5.5.3"])
def test_server_lost_in_the_middle_of_a_read(cluster, area, way, python):
    """The file has another copy, where the read continues."""
    content = pattern(4 * MIB)
    area.put("file", content, "s1", "s2")
    with Steps(cluster, clusters.PYTHONS[python]) as steps:
        steps("open", "read", url(area, "file"))
        assert steps("read", 0, MIB) == digest(content[:MIB])
        lost = steps.server(cluster)
        {"killed": lost.kill, "cut off": lost.place.cut, "frozen": lambda: lost.signal(signal.SIGSTOP)}[way]()
        assert steps("read", MIB, 3 * MIB) == digest(content[MIB:])
        assert steps.server(cluster) is not lost
        if way == "frozen":
            lost.signal(signal.SIGCONT)
        assert steps("close") == ""


def test_server_killed_under_xrdcp(cluster, area, tmp_path):
    content = data(64 * MIB)
    area.put("file", content, "s1", "s2")
    with start(cluster, tools.XRDCP, "--nopbar", "--xrate", "16m", url(area, "file"), tmp_path / "back") as copy:
        wait_until(lambda: (tmp_path / "back").exists() and (tmp_path / "back").stat().st_size > MIB)
        reading = [node for node in cluster.servers if str(area.local(node.name, "file")) in open_files(node)]
        assert reading and copy.poll() is None
        reading[0].kill()
        said = copy.communicate(timeout=100)[0]
        assert copy.returncode == 0, said
    assert (tmp_path / "back").read_bytes() == content


def open_files(node):
    """Returns the paths that the node's processes have open."""
    found = set()
    for process in node.processes:
        for link in clusters.Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                found.add(str(link.readlink()))
            except OSError:
                pass
    return found


def write_whole(cluster, target, content):
    with Steps(cluster, **MAKING) as steps:
        steps("open", "posc", target)
        steps("write", 0, len(content))
        steps("close")


def test_manager_killed_with_a_second_one_alive(cluster, area, tmp_path):
    """Clients that know both managers continue without an error. So does an open file, and new ones
    are created."""
    content = data(MIB)
    area.put("file", content, "s2")
    (tmp_path / "source").write_bytes(content)
    for manager in (cluster.m1, cluster.m2):
        with Steps(cluster) as steps:
            steps("open", "read", url(area, "file"))
            manager.kill()
            assert steps("read", 0, MIB) == digest(content)
        assert xrdcp(cluster, url(area, "file"), "-").ok().raw == content
        xrdcp(cluster, tmp_path / "source", url(area, f"without-{manager.name}")).ok()
        assert area.get(f"without-{manager.name}") == content
        assert xrdfs(cluster, "locate", area / "file").ok().out.count("Server") == 1
        manager.start()
        cluster.formed()


def test_every_manager_killed(cluster, area, tmp_path):
    """Open files stay open. A client that opens a file waits until a manager is back."""
    content = data(MIB)
    area.put("file", content, "s1")
    with Steps(cluster) as steps:
        steps("open", "read", url(area, "file"))
        cluster.m1.kill()
        cluster.m2.kill()
        assert steps("read", 0, MIB) == digest(content)
        with start(cluster, tools.XRDCP, "--nopbar", url(area, "file"), tmp_path / "back", XRD_CONNECTIONRETRY="20") as copy:
            cluster.m2.start()
            said = copy.communicate(timeout=100)[0]
            assert copy.returncode == 0, said
        assert (tmp_path / "back").read_bytes() == content
        assert steps("read", 0, MIB) == digest(content)
    cluster.m1.start()
    cluster.formed()


def test_network_split_and_healed(cluster, area):
    """A server is unreachable: its copies are not used, files elsewhere are served, and its only
    file is not declared missing permanently. After the network is restored everything is found
    without an administrator."""
    area.put("both", b"both", "s1", "s2")
    area.put("only", b"only", "s1")
    for name in ("both", "only"):
        assert xrdfs(cluster, "stat", area / name).ok()
    cluster.s1.place.cut()
    for _ in range(3):
        assert xrdcp(cluster, url(area, "both"), "-").ok().out == "both"
    cluster.s1.place.heal()
    wait_until(lambda: xrdcp(cluster, url(area, "only"), "-").out == "only", 60)
    cluster.formed()
    wait_until(lambda: xrdfs(cluster, "locate", area / "both").out.count("Server") == 2)


def test_managers_cut_off_from_the_servers(cluster, area):
    """For longer than pings take. Afterwards the servers log in again by themselves."""
    area.put("file", b"content", "s2")
    for node in cluster.servers:
        node.place.cut()
    wait_until(lambda: not cluster.m1.children() and not cluster.m2.children(), 60)
    for node in cluster.servers:
        node.place.heal()
    cluster.formed()
    assert xrdcp(cluster, url(area, "file"), "-").ok().out == "content"


def test_one_of_two_copies_vanished(cluster, area):
    """A client redirected to a server that has lost the file is redirected to the other one."""
    area.put("file", b"still there", "s1", "s2")
    assert xrdfs(cluster, "locate", area / "file").ok().out.count("Server") == 2
    area.local("s1", "file").unlink()
    for _ in range(4):
        assert xrdcp(cluster, url(area, "file"), "-").ok().out == "still there"


def test_files_are_created_through_the_redirector_of_each_manager(cluster, area):
    """A manager asks the redirector of another one to retry when the answer takes long. No file is placed for that request: the client could
    not come to it, and others would wait for it."""
    for manager in (cluster.m1, cluster.m2):
        for number in range(3):
            with Steps(cluster, **MAKING) as steps:
                steps("open", "posc", url(area, f"{manager.name}-{number}", f"{manager.address}:1094"))
                steps("write", 0, MIB)
                steps("close")


def test_server_killed_in_the_middle_of_a_write(cluster, area):
    """Acknowledged data on the lost server is unavailable, and the client receives an error. It can
    write elsewhere immediately. It can use the same name again when the server is back and has
    removed the partial file, which was to persist on close only. No client ever reads that one."""
    content = pattern(4 * MIB)
    with Steps(cluster, **MAKING) as steps:
        steps("open", "posc", url(area, "file"))
        lost = steps.server(cluster)
        steps("write", 0, 2 * MIB)
        lost.kill()
        steps.fails("write", 2 * MIB, 2 * MIB)
    names = ["file"]
    if {manager.maker for manager in cluster.of("manager")} == {"ours"}:
        # A real manager lets clients wait with each new file until the server is back.
        names.append("other")
        write_whole(cluster, url(area, "other"), content)
    lost.start()
    cluster.answering()
    wait_until(lambda: not area.local(lost.name, "file").exists(), 60)
    wait_until(lambda: xrdfs(cluster, "stat", area / "file").status == ShellCode.SERVER_ERROR, 60)
    write_whole(cluster, url(area, "file"), content)
    for name in names:
        assert digest(xrdcp(cluster, url(area, name), "-").ok().raw) == digest(content)


def test_same_files_at_another_address(cluster, area):
    """A node is replaced by one with the same name and disk at another address."""
    area.put("file", b"moved", "s1")
    assert xrdfs(cluster, "stat", area / "file").ok()
    node = cluster.s1
    node.stop()
    old = node.address
    node.place = cluster.places.make("s1-new")
    node.address = node.place.address
    cluster.places.name_hosts({"managers": [cluster.m1.address, cluster.m2.address]})
    assert node.address != old
    node.port = None
    node.start()
    cluster.formed()
    assert xrdcp(cluster, url(area, "file"), "-").ok().out == "moved"
    assert node.address in xrdfs(cluster, "locate", area / "file").ok().out
