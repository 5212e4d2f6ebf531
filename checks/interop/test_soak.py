"""A short run of `make soak`."""

import clusters
import soak

SECONDS = 20


def test_nothing_breaks_while_nodes_are_killed():
    with clusters.Cluster(soak.PLAN, "ours") as cluster:
        run = soak.Soak(cluster, SECONDS, quiet=(0.5, 3))
        assert run.run(), run.broken
        assert run.kills and sum(run.done.values())
