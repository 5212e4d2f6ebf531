"""A cluster at its first start, in which one real `xrootd` joins late.

It started before its `cmsd`, and retries only after 10 s."""

import pytest

import clusters
import peers
from codes import ErrorCode
from tools import xrdfs

# The number of servers is not configured.
TIMING = "cms.delay startup 1 lookup 1 qdl 1 suspend 1 service 1\ncms.conwait 1\ncms.ping 3\ncms.space min 1m 2m\n"
EARLY = ["ours", "real"]


@pytest.mark.parametrize("early", EARLY)
def test_a_server_that_joins_late_is_waited_for(early):
    cluster = clusters.Cluster(clusters.PAIR, dict(man="ours", s1=early, s2="real"), timing=TIMING)
    try:
        cluster.write_configuration()
        for name in ("s1", "s2"):
            peers.place(cluster[name].tree / f"on-{name}", name.encode())
        cluster.s2.start_xrootd()
        cluster.s1.start()
        cluster.man.start()
        cluster.s2.start_cmsd()
        there = xrdfs(cluster.man, "cat", "/on-s1")
        assert there.ok().out == "s1"
        late = xrdfs(cluster.man, "cat", "/on-s2")
        assert late.ok().out == "s2"
        assert ErrorCode.NOT_FOUND.shown in xrdfs(cluster.man, "stat", "/nowhere").err
    finally:
        cluster.remove()
