"""Invalid frames sent to our manager, which has two good servers meanwhile: clients must be served
in any case, and the peer gets a defined answer."""

import random
import re
import selectors
import socket
import struct
import threading

import pytest

import clusters
import cms
import peers
from codes import CmsError, ErrorCode, ShellCode
from tools import wait_until, xrdcp, xrdfs


# `REDIRECTORS_PER_PEER_MAX` of the tree, and the number of logins beyond it in a test.
REDIRECTORS_PER_HOST = 256
EVICTED = 44
# Slots for children, and the maximum number that are taken by the servers, or reserved for children
# that earlier tests disconnected.
SLOTS = 64
RESERVED = 14


@pytest.fixture(scope="module", params=clusters.parameters("hostile", clusters.PAIR, {
    mix: clusters.SIDES[mix] for mix in ("ours", "real-servers-under-ours")}))
def running(request):
    with clusters.Cluster(clusters.PAIR, request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    yield running.complete()
    # After each test the manager is the same process, and serves.
    assert running.man.alive(), running.man.output()[-3000:]
    served(running)


def served(cluster):
    area = clusters.Area(cluster)
    area.put("file", b"served", "s1")
    assert xrdfs(cluster.man, "cat", area / "file").ok().out == "served"


# Frames.

def replies(link):
    """Returns the codes that a peer receives until its connection is closed, or until the first
    request after its login. "closed" stands for the close."""
    codes = []
    try:
        while len(codes) < 2:
            codes.append(link.frame().code)
    except cms.Closed:
        codes.append("closed")
    return codes


# The connection is closed without a reply.
CLOSED = ["closed"]
# The manager sends its own login, because nodes expect it before anything else, and closes.
REFUSED = [cms.LOGIN, "closed"]
# The node is accepted and asked for its load. Invalid optional fields of the login are ignored.
ACCEPTED = [cms.LOGIN, cms.USAGE]
# The data port in these logins.
CLAIMED_PORT = 1094
LOGINS = {
    "nothing": (b"", CLOSED),
    "one byte": (b"\0", CLOSED),
    "half a header": (b"\0" * 7, CLOSED),
    "an empty login": (b"\0" * 8, CLOSED),
    "zeros": (b"\0" * 4096, CLOSED),
    "ones": (b"\xff" * 4096, CLOSED),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CLOSED),
    "text": (b"login server 1094\n", CLOSED),
    "a payload that is too long": (cms.header(0, cms.LOGIN, 0, 65535), CLOSED),
    "a payload that does not arrive": (cms.header(1, cms.LOGIN, 0, 10), CLOSED),
    "a ping": (cms.frame(cms.PING), CLOSED),
    "an unknown code": (cms.frame(200, b"x" * 100), CLOSED),
    "a frame without payload": (cms.frame(cms.LOGIN, b""), CLOSED),
    "half a record": (cms.frame(cms.LOGIN, cms.login()[:20]), CLOSED),
    "paths longer than a frame": (cms.frame(cms.LOGIN, cms.login(paths="w /" + "x" * 5000)), CLOSED),
    "a string in place of a number": (cms.frame(cms.LOGIN, cms.u16(3) + cms.text("a string where a number is due")), CLOSED),
    "no role": (cms.frame(cms.LOGIN, cms.login(mode=0)), REFUSED),
    "no id": (cms.frame(cms.LOGIN, cms.login(sid=None)), REFUSED),
    "an unknown right for a path": (cms.frame(cms.LOGIN, cms.login(sid="s-right@nowhere nowhere", paths="q /")), ACCEPTED),
    "a path with NUL": (cms.frame(cms.LOGIN, cms.login(sid="s-nul@nowhere nowhere", paths="w \0/etc\0")), ACCEPTED),
    "invalid interfaces": (cms.frame(cms.LOGIN, cms.login(sid="s-net@nowhere nowhere", interfaces="[::" * 100)), ACCEPTED),
}


@pytest.mark.parametrize("what", LOGINS)
def test_invalid_logins(cluster, what):
    """The reply that a waiting peer receives. An accepted peer is a child for as long as it is
    connected."""
    login, expected = LOGINS[what]
    with cms.Link(cluster.man) as link:
        link.send(login)
        assert replies(link) == expected
        assert (CLAIMED_PORT in cluster.man.children()) == (expected is ACCEPTED)
    wait_until(lambda: CLAIMED_PORT not in cluster.man.children())


@pytest.mark.parametrize("what", [what for what, (_, expected) in LOGINS.items() if expected is not ACCEPTED])
def test_invalid_logins_that_end(cluster, what):
    """A peer that sends nothing more is disconnected as well."""
    login, expected = LOGINS[what]
    with cms.Link(cluster.man) as link:
        link.send(login)
        link.socket.shutdown(socket.SHUT_WR)
        assert replies(link) == expected


@pytest.mark.parametrize("what, reason", [
    ("no role", "the login names no role"), ("no id", "its login has no id"), ("a payload that is too long", "more than the 4096 it may have"),
])
def test_refused_logins_are_logged(cluster, what, reason):
    with cms.Link(cluster.man) as link:
        link.send(LOGINS[what][0])
        wait_until(lambda: reason in cluster.man.output())


def test_silent_connections_are_closed(cluster):
    """The header of a login has a short deadline, and so has its body."""
    with cms.Link(cluster.man) as silent, cms.Link(cluster.man) as half:
        half.send(cms.header(0, cms.LOGIN, 0, 100))
        assert silent.closed()
        assert half.closed()


def test_login_cut_at_every_byte(cluster):
    whole = cms.frame(cms.LOGIN, cms.login(sid="s-cut@nowhere nowhere"))
    links = []
    for size in range(len(whole)):
        link = cms.Link(cluster.man)
        link.send(whole[:size])
        links.append(link)
    served(cluster)
    for link in links:
        assert link.closed()
        link.socket.close()


def test_login_byte_by_byte(cluster):
    with cms.Link(cluster.man) as link:
        for byte in cms.frame(cms.LOGIN, cms.login(sid="s-slow@nowhere nowhere")):
            link.send(bytes([byte]))
        assert link.frame().code == cms.LOGIN


@pytest.mark.parametrize("version", [2, 4, 99, 65535])
def test_login_from_another_time(cluster, version):
    """Versions from the past and the future are answered with 3. Extra bytes of the record are
    ignored."""
    with cms.Child(cluster.man, sid=f"s-v{version}@nowhere nowhere", version=version, more=cms.u32(7) + cms.text("what is this") * 5) as child:
        assert child.reply.data[:3] == cms.u16(3)


def test_cancelled_prepare_from_a_redirector(cluster):
    """The manager continues to answer the redirector."""
    area = clusters.Area(cluster)
    area.put("file", b"found", "s1")
    with cms.Redirector(cluster.man) as redirector:
        assert redirector.ask(cms.PREPDEL, cms.text("tester") + cms.text("some-id")).code == cms.DATA
        found = redirector.select(area / "file")
        assert found.code == cms.REDIRECT and struct.unpack(">I", found.data[:4])[0] == cluster.s1.port, found


def test_status_before_the_login(cluster):
    """A node may send a status before its login. The manager accepts the login."""
    with cms.Link(cluster.man) as link:
        link.send(cms.status(cms.RESUME, 1094) + cms.frame(cms.LOGIN, cms.login(sid="s-early@nowhere nowhere")))
        assert link.frame().code == cms.LOGIN


def test_unknown_codes_are_skipped(cluster):
    with cms.Child(cluster.man, sid="s-codes@nowhere nowhere") as child:
        for code in [*range(28, 224), *range(227, 256)]:
            child.send(cms.frame(code, b"\xff" * 100, stream=9))
        alive(child)


def alive(child):
    """The parent still sends pings: with an interval of 3 s one arrives soon."""
    assert child.frame().code in (cms.PING, cms.STATE, cms.USAGE)


def test_requests_that_are_not_for_a_parent(cluster):
    """All requests that a node must not send to its parent, and payloads that cannot be parsed."""
    with cms.Child(cluster.man, sid="s-wrong@nowhere nowhere") as child:
        for code in range(28):
            if code not in (cms.DISC, cms.LOGIN, cms.XAUTH, cms.PREPDEL, cms.STATUS):
                child.send(cms.frame(code, b"\xff" * 50, stream=3))
                child.send(cms.frame(code, b"", stream=3))
                child.send(cms.frame(code, b"\0\x05abc", stream=3))
        alive(child)


def test_frames_too_large(cluster):
    """More than 16384 bytes end the connection."""
    with cms.Child(cluster.man, sid="s-large@nowhere nowhere") as child:
        child.send(cms.header(0, cms.HAVE, cms.RAW | cms.ONLINE, 20000) + b"/" * 20000)
        assert child.closed()


def test_every_byte_of_frames_is_random(cluster):
    """Ten thousand frames of noise from a node, and from a redirector. They may be ignored, or the
    connection closed."""
    dice = random.Random(1)
    for kind in (lambda: cms.Child(cluster.man, sid="s-noise@nowhere nowhere"), lambda: cms.Redirector(cluster.man)):
        with kind() as link:
            link.socket.settimeout(2)
            sent = 0
            try:
                while sent < 10_000:
                    code = dice.choice([code for code in range(256) if code != cms.PREPDEL])
                    link.send(cms.frame(code, dice.randbytes(dice.choice([0, 1, 3, 20, 200])), dice.getrandbits(32), dice.getrandbits(8)))
                    sent += 1
            except OSError:
                pass
    served(cluster)


# Nodes that send wrong answers or none.

def test_node_that_claims_every_file(cluster):
    """The node claims every file, and no process listens on its port. Clients return and are
    redirected to the server with the file. The node has an address of its own: clients name a
    failed server by its host alone. With a shared host the manager could not distinguish its
    servers, and might select the same one until all of them count as tried."""
    port = peers.free_port()
    stop = threading.Event()
    with cms.Child(cluster.man, port=port, source="127.0.0.2", sid="s-liar@nowhere nowhere") as liar:
        liar.socket.settimeout(0.1)

        def lie():
            while not stop.is_set():
                try:
                    heard = liar.frame()
                except TimeoutError:
                    continue
                except (cms.Closed, OSError):
                    return
                if heard.code == cms.STATE:
                    liar.send(cms.frame(cms.HAVE, heard.data, heard.stream, cms.RAW | cms.ONLINE))
                elif heard.code == cms.PING:
                    liar.send(cms.frame(cms.PONG))

        thread = threading.Thread(target=lie)
        thread.start()
        try:
            wait_until(lambda: port in cluster.man.children())
            area = clusters.Area(cluster)
            area.put("true", b"true", "s2")
            found = xrdcp(area.url("true"), "-", XRD_CONNECTIONWINDOW="2", XRD_CONNECTIONRETRY="1", XRD_STREAMERRORWINDOW="0")
            assert found.out == "true", found
            # A missing file gives an error, not a loop.
            assert xrdcp(area.url("false"), "-", XRD_CONNECTIONWINDOW="2", XRD_CONNECTIONRETRY="1", XRD_STREAMERRORWINDOW="0").status != 0
        finally:
            stop.set()
            thread.join()
    wait_until(lambda: port not in cluster.man.children())


def test_node_that_never_answers(cluster):
    """It answers neither queries nor pings. Files of others are found nevertheless, and it is
    dropped after three silent periods."""
    with cms.Child(cluster.man, sid="s-mute@nowhere nowhere", port=9) as mute:
        wait_until(lambda: 9 in cluster.man.children())
        area = clusters.Area(cluster)
        area.put("file", b"found", "s1")
        assert xrdfs(cluster.man, "cat", area / "file").ok().out == "found"
        xrdfs(cluster.man, "stat", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
        assert mute.closed()


def test_node_that_reads_nothing(cluster):
    """Messages to it must not accumulate or delay others."""
    deaf_port = 9
    with cms.Child(cluster.man, sid="s-deaf@nowhere nowhere", port=deaf_port) as deaf:
        wait_until(lambda: deaf_port in cluster.man.children())
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        with cms.Redirector(cluster.man) as redirector:
            for number in range(3000):
                redirector.send(cms.frame(cms.SELECT, cms.text("t") + cms.u32(8) + cms.text(f"/deaf/{number}/" + "x" * 900), 0))
        served(cluster)
        # It disconnects cleanly without reading the rest: through the small buffer that would take
        # a minute.
        deaf.send(cms.frame(cms.DISC))
        wait_until(lambda: deaf_port not in cluster.man.children())
        deaf.socket.close()


def test_unsolicited_haves(cluster):
    """A hundred thousand of them: they use no memory, and the queries of others are answered
    meanwhile."""
    before = cluster.man.memory()
    with cms.Child(cluster.man, sid="s-talker@nowhere nowhere", port=9) as talker:
        talker.send(b"".join(cms.have(f"/talk/{number}", 0) for number in range(100_000)))
        talker.send(b"".join(cms.gone(f"/talk/{number}") for number in range(100_000)))
        served(cluster)
    assert cluster.man.memory() - before < 64 << 20


# Floods.

def test_flood_of_logins(cluster):
    """Hundreds of nodes at the same time, more than there are slots. Nodes without a slot wait. The
    good servers stay, and are the only children when the others have disconnected."""
    links = [cms.Link(cluster.man) for _ in range(300)]
    for number, link in enumerate(links):
        link.send(cms.frame(cms.LOGIN, cms.login(sid=f"s-flood{number}@nowhere nowhere", port=2000 + number)))
    accepted = set()
    with selectors.DefaultSelector() as selector:
        for link in links:
            selector.register(link.socket, selectors.EVENT_READ, link)

        def most_slots_taken():
            for key, _ in selector.select(0.1):
                assert key.data.frame().code == cms.LOGIN
                accepted.add(key.data)
                selector.unregister(key.fileobj)
            return len(accepted) >= SLOTS - RESERVED

        wait_until(most_slots_taken)
        served(cluster)
        most_slots_taken()
    assert len(accepted) <= SLOTS - 2
    for link in links:
        link.socket.close()
    good = {cluster.s1.port, cluster.s2.port}
    wait_until(lambda: cluster.man.children() == good, 60)


def test_flood_of_connections(cluster):
    """Connections opened and closed without a byte."""
    for _ in range(1000):
        cms.Link(cluster.man).socket.close()
    served(cluster)


def test_same_identity_many_times(cluster):
    """The id of one node on many connections: at most one is accepted, and its slot is free again
    when they are closed."""
    links = []
    for _ in range(20):
        link = cms.Link(cluster.man)
        link.send(cms.frame(cms.LOGIN, cms.login(sid="s-same@nowhere nowhere", port=9)) + cms.status(cms.RESUME, 9))
        links.append(link)
    wait_until(lambda: 9 in cluster.man.children())
    for link in links:
        link.socket.close()
    wait_until(lambda: 9 not in cluster.man.children())
    with cms.Child(cluster.man, sid="s-same@nowhere nowhere", port=9):
        wait_until(lambda: 9 in cluster.man.children())


def test_unauthenticated_hosts_change_no_names(cluster):
    """Commands at the cluster port are refused and logged with their host, unless `ofs.forward`
    allows them."""
    area = clusters.Area(cluster)
    area.put("theirs", b"kept", "s1")
    path, ident = str(area / "theirs"), cms.text("stranger")
    orders = {
        cms.RM: cms.text(path), cms.RMDIR: cms.text(path), cms.MV: cms.text(path) + cms.text(path + "-moved"),
        cms.CHMOD: cms.text("000") + cms.text(path), cms.TRUNC: cms.text("0") + cms.text(path),
        cms.MKDIR: cms.text("755") + cms.text(path + "-made"), cms.MKPATH: cms.text("755") + cms.text(path + "-made"),
    }
    with cms.Redirector(cluster.man) as redirector:
        for code, arguments in orders.items():
            assert redirector.ask(code, ident + arguments).code == cms.ERROR, code
    for name in ("rm", "rmdir", "mv", "chmod", "trunc", "mkdir"):
        refused = re.compile(rf" orders {name} /\S*theirs\S* for stranger: refused")
        wait_until(lambda: refused.search(cluster.man.output()))
    assert xrdfs(cluster.man, "cat", path).ok().out == "kept"


def test_one_host_does_not_take_all_places_of_redirectors(cluster):
    """Beyond the limit of a host, each login evicts the redirector that has been silent for the
    longest time: exactly the first ones are disconnected, and all others are served."""
    links = [cms.Redirector(cluster.man) for _ in range(REDIRECTORS_PER_HOST + EVICTED)]
    for link in links[:EVICTED]:
        assert link.closed()
    for link in links[EVICTED:]:
        assert link.ask(cms.STATS, b"").code == cms.DATA
    wait_until(lambda: "a redirector of 127.0.0.1 is disconnected, because 127.0.0.1 logs in as one" in cluster.man.output())
    for link in links:
        link.socket.close()


def test_path_too_long(cluster):
    with cms.Redirector(cluster.man) as redirector:
        answer = redirector.ask(cms.SELECT, cms.text("t") + cms.u32(8) + cms.text("/" + "x" * 1900))
        assert answer.code in (cms.ERROR, cms.WAIT), answer
        answer = redirector.ask(cms.SELECT, cms.text("t") + cms.u32(8) + struct.pack(">H", 9000) + b"/short")
        assert answer.code == cms.ERROR and answer.data[:4] == struct.pack(">I", CmsError.EINVAL), answer
