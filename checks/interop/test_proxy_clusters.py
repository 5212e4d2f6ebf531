"""Clusters of proxies: a proxy manager that sends clients to proxies of one origin, ours and the real ones
beside each other."""

import re

import pytest

import clusters
import peers
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
