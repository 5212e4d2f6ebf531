"""A supervisor forgets a path before its manager does, because each counts `cms.fxhold` from its
own last query.

Later changes below it must be known at the manager immediately."""

import time

import clusters
import raw
from clusters import opened
from codes import ErrorCode
from tools import wait_until, xrdfs

PLAN = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
""")
# The shortest window in whole seconds.
WINDOW_SECONDS = 64
# The manager queries so late that it remembers for longer than the supervisor.
LATER_SECONDS = 45


def test_changes_of_paths_forgotten_by_a_supervisor_are_known_above_immediately():
    makers = clusters.mixed(PLAN, rest="ours")
    with clusters.Cluster(PLAN, makers, settings=f"cms.fxhold {WINDOW_SECONDS}\n") as cluster:
        area = clusters.Area(cluster.answering())
        made, removed = area / "made", area.put("removed", b"below", "s1")
        # Time itself is the condition here: the window cannot be shorter.
        began = time.monotonic()
        for node, seconds in (cluster.sup, 0), (cluster.man, LATER_SECONDS):
            wait_until(lambda: time.monotonic() >= began + seconds, LATER_SECONDS + 5)
            assert opened(node, made) == ("error", ErrorCode.NOT_FOUND)
            assert opened(node, removed)[0] == "redirect"
        wait_until(lambda: time.monotonic() > began + WINDOW_SECONDS + 1, WINDOW_SECONDS)
        assert opened(cluster.s1, made, raw.O_NEW | raw.O_UPDT | raw.O_MKPATH)[0] == "open"
        # The manager itself would query again in half a minute.
        wait_until(lambda: opened(cluster.man, made) == ("redirect", cluster.sup.port), 10)
        xrdfs(cluster.s1, "rm", removed).ok()
        wait_until(lambda: opened(cluster.man, removed) == ("error", ErrorCode.NOT_FOUND), 10)
