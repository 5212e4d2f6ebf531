"""A data server of ours is drained while clients read.

They continue at another server with the file. A client without another copy, or one that writes,
stays until it is done. There must be no wrong byte and no error."""

import json

import pytest

import clusters
import places
import tools
from clients import Steps, digest, start, url
from tools import pattern, wait_until

FLAT = clusters.Plan("""
    managers manager
    s1 server managers
    s2 server managers
""")
# The other copy is in another cell.
DEEP = clusters.Plan("""
    managers manager
    u1 supervisor managers
    s1 server u1
    s2 server managers
""")
MIXES = [(FLAT, dict(rest="ours")), (FLAT, dict(managers="ours", s1="ours", s2="real")), (DEEP, dict(rest="ours"))]
MIB = 1 << 20


@pytest.fixture(scope="module", params=MIXES, ids=["ours", "staying-real", "supervisor"])
def running(request):
    plan, makers = request.param
    with places.Network() as network, clusters.Cluster(plan, clusters.mixed(plan, **makers), places=network) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    for node in running.nodes.values():
        if node.maker == "ours":
            node.scalla("undrain").ok()
            node.scalla("resume").ok()
    return running.complete().answering()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


def open_files(node):
    told = tools.scalla("admin", "status", "--json", "--admin-path", node.cluster.work / "admin", "--instance", node.name)
    return json.loads(told.ok().out)["open_files"]


def at(steps, cluster):
    return steps.server(cluster).name


def begun(steps, cluster, area, name, content):
    """The client has the file open at the server that will be drained, and has read the first
    piece."""
    def opened_there():
        steps("open", "read", url(area, name))
        if at(steps, cluster) == "s1":
            return True
        steps("close")
        return False

    wait_until(opened_there, tools.PATIENCE_SECONDS)
    assert steps("read", 0, MIB) == digest(content[:MIB])


@pytest.mark.parametrize("python", [0, 1], ids=["newest", "5.5.3"])
@pytest.mark.parametrize("order", ["drain", "suspend", "by its manager"])
def test_a_reader_continues_elsewhere(cluster, area, python, order):
    content = pattern(4 * MIB)
    area.put("file", content, "s1", "s2")
    with Steps(cluster, clusters.PYTHONS[python]) as steps:
        begun(steps, cluster, area, "file", content)
        if order == "by its manager":
            cluster[cluster.s1.parents[0]].scalla("drain", cluster.s1.host).ok()
        else:
            cluster.s1.scalla(order).ok()

        def moved():
            assert steps("read", MIB, MIB) == digest(content[MIB:2 * MIB])
            return at(steps, cluster) == "s2"

        wait_until(moved, 60)
        ranges = [(2 * MIB, 1000), (3 * MIB, 5000)]
        wanted = b"".join(content[offset:offset + length] for offset, length in ranges)
        assert steps("readv", *(f"{offset},{length}" for offset, length in ranges)) == digest(wanted)
        wait_until(lambda: open_files(cluster.s1) == 0)
        assert steps("read", 3 * MIB, MIB) == digest(content[3 * MIB:])
        steps("close")
    if order == "by its manager":
        cluster[cluster.s1.parents[0]].scalla("undrain", cluster.s1.host).ok()


@pytest.mark.parametrize("python", [0, 1], ids=["newest", "5.5.3"])
def test_vector_reads_move_too(cluster, area, python):
    content = pattern(4 * MIB)
    area.put("file", content, "s1", "s2")
    with Steps(cluster, clusters.PYTHONS[python]) as steps:
        begun(steps, cluster, area, "file", content)
        cluster.s1.scalla("drain").ok()

        def moved():
            assert steps("readv", "10,1000", f"{MIB},2000") == digest(content[10:1010] + content[MIB:MIB + 2000])
            return at(steps, cluster) == "s2"

        wait_until(moved, 60)


def test_clients_without_another_copy_stay(cluster, area):
    """The only copy, another one of a different size, and a writer."""
    content = pattern(2 * MIB)
    area.put("only", content, "s1")
    area.put("other", content, "s1")
    area.put("other", content + b"more", "s2")
    area.put("written", content, "s1")
    area.put("both", content, "s1", "s2")
    with Steps(cluster) as only, Steps(cluster) as other, Steps(cluster) as writer, Steps(cluster) as leaving:
        begun(only, cluster, area, "only", content)
        begun(other, cluster, area, "other", content)
        begun(leaving, cluster, area, "both", content)
        writer("open", "update", url(area, "written"))
        cluster.s1.scalla("drain", "--wait", "1").fails(1, "4 files open (1 for writing), 4 clients")

        def reads_that_stay():
            for steps in (only, other):
                assert steps("read", MIB, MIB) == digest(content[MIB:])

        def moved():
            reads_that_stay()
            assert leaving("read", MIB, MIB) == digest(content[MIB:])
            return at(leaving, cluster) == "s2"

        # When a reader with another copy has moved, the server has looked for copies of the others.
        wait_until(moved, 60)
        reads_that_stay()
        writer("write", 0, MIB)
        assert (at(only, cluster), at(other, cluster), at(writer, cluster)) == ("s1", "s1", "s1")
        for steps in (only, other, writer, leaving):
            steps("close")
    cluster.s1.scalla("drain", "--wait", "1m").ok()
    assert open_files(cluster.s1) == 0


@pytest.mark.parametrize("way", [[], ["-S", "2"]], ids=["one stream", "three"])
@pytest.mark.parametrize("paged", ["0", "1"], ids=["read", "pgread"])
def test_a_slow_copy_continues_elsewhere(cluster, area, way, paged):
    """`xrdcp` with many reads in flight, whose output is read slowly."""
    content = pattern(96 * MIB)
    area.put("file", content, "s1", "s2")
    for _ in range(100):
        with start(cluster, tools.XRDCP, "--nopbar", *way, url(area, "file"), "-", XRD_CPUSEPGWRTRD=paged) as copy:
            out = copy.stdout.buffer
            try:
                assert out.read(MIB) == content[:MIB]
                if not open_files(cluster.s1):
                    continue
                cluster.s1.scalla("drain").ok()
                for position in range(MIB, len(content), MIB):
                    assert out.read(MIB) == content[position:position + MIB], f"at {position}"
                    if open_files(cluster.s1) == 0:
                        break
                else:
                    pytest.fail("it never moved")
                assert digest(out.read()) == digest(content[position + MIB:])
                assert copy.wait(tools.PATIENCE_SECONDS) == 0
                return
            finally:
                copy.kill()
    pytest.fail("never sent to the first server")
