"""A supervisor of ours whose last server is lost permanently, under real managers and ours.

Clients that are still redirected to it find the files of other servers."""

import pytest

import clusters
from test_cluster_trees import SUPERVISED
from tools import xrdcp, xrdfs

MIXES = {"real-manager": dict(man="real", rest="ours"), "ours": dict(rest="ours"),
         "real-servers-beside": dict(man="real", s3="real", rest="ours")}


@pytest.mark.parametrize("makers", clusters.parameters("deserted", SUPERVISED, MIXES))
def test_deserted_supervisor(makers):
    with clusters.Cluster(SUPERVISED, makers) as cluster:
        cluster.answering()
        area = clusters.Area(cluster)
        for number in range(4):
            area.put(f"file{number}", b"content", "s1", "s3")
            xrdfs(cluster.man, "stat", area / f"file{number}").ok()
        cluster.s1.kill()
        cluster.s2.kill()
        # The manager knows of copies below the supervisor, and has no reason to doubt them.
        for number in range(4):
            assert xrdcp(area.url(f"file{number}"), "-").ok().out == "content"
        # It accepts servers again.
        cluster.s2.start()
        cluster.formed()
        area.put("late", b"late", "s2")
        assert xrdcp(area.url("late"), "-").ok().out == "late"
