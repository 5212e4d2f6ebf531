"""Clusters of proxies: a proxy manager that sends clients to proxies of one origin, ours and the real ones
beside each other."""

import contextlib
import re
import socket
import threading

import pytest

import clusters
import peers
import raw
from between import Between
from codes import ErrorCode
from origins import CONTENT
from tools import data, wait_until, xrdcp, xrdfs

PLAN = clusters.Plan("""
    man manager
    p1 server man
    p2 server man
""")

class ProxyCluster(clusters.Cluster):
    """All nodes are those of a cluster of proxies."""

    def __init__(self, origin, makers, **how):
        super().__init__(PLAN, makers, **how)
        self.origin = origin

    def write_configuration(self):
        super().write_configuration()
        text = re.sub(r"^all\.role (?=server|manager)", "all.role proxy ", self.configuration.read_text(), flags=re.M)
        text = re.sub(r"^all\.manager ", "all.manager proxy ", text, flags=re.M)
        text = re.sub(r"^oss\.localroot .*\n", "", text, flags=re.M)
        # Real managers need it too.
        self.configuration.write_text(f"{text}pss.origin {self.origin}\n")


@pytest.fixture(scope="module")
def origin():
    with peers.Ours() as server:
        (server.tree / "d").mkdir()
        peers.give(server.tree / "d")
        peers.place(server.tree / "d/f", CONTENT)
        yield server


@pytest.fixture(scope="module", params=list(clusters.SIDES), ids=list(clusters.SIDES))
def cluster(origin, request):
    side = clusters.SIDES[request.param]
    servers = side.get("servers", side.get("rest"))
    chosen = {"man": side.get("managers", side.get("rest")), "p1": servers, "p2": servers}
    with ProxyCluster(f"127.0.0.1:{origin.port}", chosen) as made:
        yield made


def test_clients_are_sent_to_proxies(cluster, origin, tmp_path):
    manager = cluster.man
    xrdcp("-f", manager.url("/d/f"), tmp_path / "f").ok()
    assert (tmp_path / "f").read_bytes() == CONTENT
    content = data(500_000)
    (tmp_path / "new").write_bytes(content)
    xrdcp("-f", tmp_path / "new", manager.url("/d/new")).ok()
    assert (origin.tree / "d/new").read_bytes() == content
    xrdfs(manager, "rm", "/d/new").ok()
    assert not (origin.tree / "d/new").exists()
    # Real managers have clients go from proxy to proxy for a file that none has.
    missing = xrdcp(manager.url("/d/none"), tmp_path / "none")
    assert missing.status in ((54,) if manager.maker == "ours" else (53, 54)), missing.err


def test_each_proxy_serves_when_the_other_has_ended(cluster, tmp_path):
    for gone in cluster.servers:
        gone.kill()
        try:
            wait_until(lambda: xrdcp("-f", cluster.man.url("/d/f"), tmp_path / "f").status == 0, seconds=clusters.FORM_SECONDS)
            assert (tmp_path / "f").read_bytes() == CONTENT
        finally:
            gone.start()
            cluster.formed()


class Cable(Between):
    """The way of one proxy to the origin, which can be cut and mended."""

    def cut(self):
        self.close()

    def mend(self):
        self.sockets.clear()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, daemon=True).start()


class CabledCluster(ProxyCluster):
    """Each proxy has its own way to the origin."""

    def __init__(self, origin, cables, makers):
        super().__init__(f"127.0.0.1:{origin.port}", makers)
        self.cables = cables

    def write_configuration(self):
        super().write_configuration()
        lines = [f"if named {name}\npss.origin {cable.host}\nfi\n" for name, cable in self.cables.items()]
        with self.configuration.open("a") as file:
            file.writelines(lines)


@pytest.fixture(scope="module", params=["ours", "our-servers-under-real"])
def cabled(origin, request):
    with Cable(origin) as first, Cable(origin) as second:
        side = clusters.SIDES[request.param]
        chosen = {"man": side.get("managers", side.get("rest")), "p1": "ours", "p2": "ours"}
        with CabledCluster(origin, {"p1": first, "p2": second}, chosen) as made:
            yield made


def chosen(manager):
    """Returns the port of the proxy to which the manager sends a client."""
    return clusters.opened(manager, "/d/f")[1]


@contextlib.contextmanager
def cut(*cables):
    for cable in cables:
        cable.cut()
    try:
        yield
    finally:
        for cable in cables:
            cable.mend()


def test_a_proxy_that_does_not_reach_its_origin_gets_no_clients(cabled, origin, tmp_path):
    manager = cabled.man
    (tmp_path / "new").write_bytes(CONTENT)
    for broken, other in (cabled.servers, cabled.servers[::-1]):
        # The other one may still have to notice that its way was mended.
        wait_until(lambda: {chosen(manager) for _ in range(10)} == {broken.port, other.port})
        with cut(cabled.cables[broken.name]), raw.Connection(broken) as connection:
            # A client that has come before returns to the manager after this code.
            assert connection.error(raw.STAT, bytes(16), b"/d/f") == ErrorCode.SERVER_ERROR
            wait_until(lambda: {chosen(manager) for _ in range(10)} == {other.port})
            # The real manager holds each creation back until all servers had time to answer.
            for number in range(1 if manager.maker == "real" else 3):
                xrdcp("-f", manager.url("/d/f"), tmp_path / "f").ok()
                xrdcp("-f", tmp_path / "new", manager.url(f"/d/new{number}")).ok()
                xrdfs(manager, "rm", f"/d/new{number}").ok()
        assert not list(origin.tree.glob("d/new*"))


def test_a_proxy_without_clients_notices_that_its_origin_is_away(cabled):
    manager = cabled.man
    for broken, other in (cabled.servers, cabled.servers[::-1]):
        # The other one may still have to notice that its way was mended.
        wait_until(lambda: {chosen(manager) for _ in range(10)} == {broken.port, other.port})
        with cut(cabled.cables[broken.name]):
            wait_until(lambda: {chosen(manager) for _ in range(20)} == {other.port})


def test_an_origin_that_no_proxy_reaches_is_not_a_missing_file(cabled, tmp_path):
    manager = cabled.man
    with cut(*cabled.cables.values()):
        for _ in range(3):
            answer = xrdfs(manager, "stat", "/d/f", XRD_REQUESTTIMEOUT="20")
            assert answer.status != 0 and "3011" not in answer.all and "no such file" not in answer.all.lower(), answer
        if manager.maker != "real":
            # An upload ends with an error, too.
            (tmp_path / "f").write_bytes(CONTENT)
            upload = xrdcp("-f", tmp_path / "f", manager.url("/d/new"))
            assert upload.status not in (0, 124), upload
    wait_until(lambda: xrdcp("-f", manager.url("/d/f"), tmp_path / "f").status == 0)
    assert (tmp_path / "f").read_bytes() == CONTENT
