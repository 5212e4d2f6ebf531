"""A server of ours with two managers, one of which behaves incorrectly.

In any case it serves its files and belongs to the good manager, and nothing outside of its
directory changes."""

import random

import pytest

import clusters
import cms
import peers
from tools import wait_until, xrdfs

PLAN = clusters.Plan("""
    man manager
    s1 server man
""")


@pytest.fixture
def cluster():
    with clusters.Cluster(PLAN, "plain") as cluster:
        yield cluster


def reply(**how):
    """Returns the answer to a login of a manager that accepts the node."""
    record = dict(sid="m-strange@nowhere nowhere", mode=0, port=0, own_port=0, paths=None, environment=None)
    return cms.frame(cms.LOGIN, cms.login(**{**record, **how}))


def taken_in(then):
    """Behaves correctly first."""

    def behave(link, _):
        link.send(reply())
        then(link)

    return behave


def noise(link):
    dice = random.Random(7)
    for _ in range(3000):
        code = dice.choice([code for code in range(256) if code not in (cms.DISC, cms.TRY)])
        link.send(cms.frame(code, dice.randbytes(dice.choice([0, 1, 3, 20, 200])), dice.getrandbits(32), dice.getrandbits(8)))


def every_code(link):
    for code in range(28):
        if code not in (cms.DISC, cms.TRY):
            for payload in (b"\xff" * 50, b"", b"\0\x05abc", b"\xa0", b"/" * 3000):
                link.send(cms.frame(code, payload, stream=3))


def questions(link):
    """Sends more queries than there are files, without reading the answers."""
    for number in range(50_000):
        path = f"/asked/{number}"
        link.send(cms.frame(cms.STATE, path.encode() + b"\0", cms.checksum(path), cms.RAW))


def orders(link):
    """Sends commands to change names outside of the served directory; the last of them is valid."""
    for path in ("/../../../etc/outside", "//..//..//outside", "/a/../../outside", "relative", "/\0/x", "/" + "x" * 5000):
        packed = cms.text("tester")
        link.send(cms.frame(cms.MKDIR, packed + cms.text("755") + cms.text(path), 1))
        link.send(cms.frame(cms.RM, packed + cms.text(path), 1))
        link.send(cms.frame(cms.RMDIR, packed + cms.text(path), 1))
        link.send(cms.frame(cms.TRUNC, packed + cms.text("0") + cms.text(path), 1))
        link.send(cms.frame(cms.MV, packed + cms.text("/kept") + cms.text(path), 1))
    link.send(cms.frame(cms.MKDIR, cms.text("tester") + cms.text("755") + cms.text("/ordered"), 1))


def sent_on(*hosts):
    return lambda link, _: link.send(cms.frame(cms.TRY, " ".join(hosts).encode() + b"\0"))


STRANGE = {
    "says nothing": lambda link, _: None,
    "closes": lambda link, _: link.socket.close(),
    "is no manager": lambda link, _: link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100),
    "answers with zeros": lambda link, _: link.send(b"\0" * 65536),
    "answers with ones": lambda link, _: link.send(b"\xff" * 65536),
    "is from the future": lambda link, _: link.send(reply(version=65535, more=cms.u32(7) + cms.text("what is this") * 5)),
    "has a long name": lambda link, _: link.send(reply(sid="m-" + "x" * 3000 + "@y z")),
    "cuts its answer": lambda link, _: link.send(reply()[:40]),
    "promises too much": lambda link, _: link.send(cms.header(0, cms.LOGIN, 0, 65535) + b"\0" * 70_000),
    "says noise": taken_in(noise),
    "asks everything wrongly": taken_in(every_code),
    "asks without end": taken_in(questions),
    "orders what is not there": taken_in(orders),
    "frames too large": taken_in(lambda link: link.send(cms.header(1, cms.STATE, cms.RAW, 60_000) + b"/" * 60_000)),
    "takes in and lets go": taken_in(lambda link: link.send(cms.frame(cms.DISC))),
    "suspends and resumes": taken_in(lambda link: link.send(b"".join(cms.status(bits) for bits in [4, 8, 12, 0, 255] * 500))),
    "names nobody": sent_on(),
    "names blanks": sent_on(" " * 16_000),
    "names many": sent_on(*(f"10.255.255.{number}:1" for number in range(200))),
    "names nonsense": sent_on("[::", ":", "x:y", "a b", "\xff", "localhost:99999"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_one_of_two_managers_misbehaves(cluster, what):
    area = clusters.Area(cluster)
    path = area.put("file", b"served", "s1")
    peers.place(cluster.s1.tree / "kept", b"kept")
    with cms.Parent(STRANGE[what]) as strange:
        server = cluster.s1
        server.kill()
        command = server.command

        def with_another():
            return [*command(), "--manager", f"localhost:{strange.port}"]

        server.command = with_another
        server.start()
        wait_until(lambda: strange.visits > 0)
        cluster.formed()
        assert xrdfs(cluster.man, "cat", path).ok().out == "served"
        assert xrdfs(server, "cat", path).ok().out == "served"
        assert server.alive()
        assert server.memory() < 200 << 20
        if what.startswith("orders"):
            wait_until((server.tree / "ordered").is_dir)
    assert (cluster.s1.tree / "kept").read_bytes() == b"kept"
    assert not [found for found in cluster.work.rglob("outside")]
    # It continues without that manager.
    late = area.put("late", b"late", "s1")
    assert xrdfs(cluster.man, "cat", late).ok().out == "late"


def test_sent_to_itself_and_in_a_ring(cluster):
    """Managers that name each other, and the node itself: it retries with a backoff, and serves."""
    path = clusters.Area(cluster).put("file", b"served", "s1")
    with cms.Parent(lambda link, _: None) as last:
        ring = {}

        def pass_on(name):
            def behave(link, _):
                link.send(cms.frame(cms.TRY, f"localhost:{ring[name]} localhost:{cluster.s1.port}\0".encode()))
            return behave

        with cms.Parent(pass_on("second")) as first, cms.Parent(pass_on("first")) as second:
            ring.update(first=first.port, second=second.port)
            server = cluster.s1
            server.kill()
            manager = ["--manager", f"localhost:{first.port}", "--manager", f"localhost:{last.port}"]
            command = server.command()
            at = command.index("--manager")
            server.command = lambda: [*command[:at], *manager, *command[at + 2:]]
            server.start()
            wait_until(lambda: first.visits + second.visits > 3)
            before = first.visits + second.visits
            for _ in range(3):
                assert xrdfs(server, "cat", path).ok().out == "served"
            # No storm: the backoff grows to nearly a second, and there are eight hops in a ring.
            assert first.visits + second.visits - before < 1000
            assert "looking for a parent" in server.scalla("status", "--here").ok().out
