"""Selection of servers by load and space.

Load programs (`cms.perf pgm`) write the values of the test. The loads arrive at the manager, real
or ours, and its weights (`cms.sched`) decide."""

import itertools
import json
import re

import pytest

import clusters
import peers
import pressure
from tools import data, wait_until, xrdcp, xrdfs

MIB = 1 << 20
NUMBERS = itertools.count(1)
# The order of values in a program's line.
FIGURES = ("runq", "cpu", "mem", "pag", "net")
# The value to which each weight applies.
WEIGHTS = {"cpu": "cpu", "io": "net", "runq": "runq", "mem": "mem", "pag": "pag"}


class Loads(clusters.Cluster):
    """A cluster whose servers have the loads of the test, and whose manager has these weights."""

    def __init__(self, makers, sched, fuzz=0, **how):
        super().__init__(clusters.PAIR, makers, **how)
        program = self.work / "measure"
        # The last line is repeated, because a real manager's values of a new server are stale by
        # then.
        program.write_text('#!/bin/sh\nwhile cat "$1"; do sleep 0.5; done\n')
        program.chmod(0o755)
        self.settings = f"cms.ping 3 usage 1\ncms.sched {sched} fuzz {fuzz}\n"
        for server in self.servers:
            self.load(server.name)
            self.settings += f"if named {server.name}\ncms.perf int 5s pgm {program} {self.file(server.name)}\nfi\n"

    def file(self, name):
        return self.work / f"load-of-{name}"

    def load(self, name, **figures):
        """Sets the load of the server from now on; the default of each value is 10."""
        new = self.work / "new"
        new.write_text(" ".join(str(figures.get(figure, 10)) for figure in FIGURES) + "\n")
        peers.give(new)
        new.rename(self.file(name))


def new_file(area):
    """Creates a file. Returns its server."""
    name = f"new{next(NUMBERS)}"
    xrdcp("/etc/hostname", area.url(name)).ok()
    return area.holders(name)[0]


def goes_to(area, name, path):
    """All readers and new files go there, once the loads have arrived. Until then, with some loads
    stale, a few may go there by chance, so the first one does not count."""
    def used():
        return new_file(area) == name and xrdfs(area.cluster.man, "cat", area / path).ok().out == name

    wait_until(lambda: all(used() for _ in range(8)), 60)
    assert all(used() for _ in range(3))


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("makers", clusters.parameters("weights", clusters.PAIR, clusters.SIDES))
def test_weights_choose(makers, weight):
    """The busier server is avoided, by the value that alone has weight, until the other one is
    busy."""
    with Loads(makers, f"{weight} 100") as cluster:
        area = clusters.Area(cluster)
        for name in ("s1", "s2"):
            area.put("file", name.encode(), name)
        others = {figure: 90 for figure in FIGURES if figure != WEIGHTS[weight]}
        for spared, used in (("s1", "s2"), ("s2", "s1")):
            cluster.load(spared, **{WEIGHTS[weight]: 80})
            cluster.load(used, **others)
            goes_to(area, used, "file")
        if cluster.man.maker != "real":
            part = {"runq": "run_queue", "mem": "memory", "pag": "paging", "io": "net"}.get(weight, weight)

            def loads():
                told = json.loads(cluster.man.scalla("status", "--here", "--json").ok().out)["children"]
                return {cluster.name_of(child["address"].rpartition(":")[2]): child["load"][part] for child in told}

            # s1, which was avoided, is used for a while to compensate, even before it has reported
            # that it is idle.
            wait_until(lambda: loads() == {"s1": 10, "s2": 80}, 60)


@pytest.mark.parametrize("makers", clusters.parameters("weights", clusters.PAIR, clusters.SIDES))
def test_too_busy(makers):
    """A server above `maxload` gets no clients while another is below it, whatever the fuzz."""
    with Loads(makers, "cpu 100 maxload 50", fuzz=99) as cluster:
        area = clusters.Area(cluster)
        for name in ("s1", "s2"):
            area.put("file", name.encode(), name)
        cluster.load("s1", cpu=60)
        cluster.load("s2", cpu=40)
        goes_to(area, "s2", "file")


@pytest.mark.parametrize("makers", clusters.parameters("weights", clusters.PAIR, clusters.SIDES))
def test_affinity(makers):
    """All clients read a file at the same server of those that have it, whichever had more clients.
    Files are distributed by their paths."""
    with clusters.Cluster(clusters.PAIR, makers, settings="cms.sched affinity default strict\n") as cluster:
        area = clusters.Area(cluster)
        used = set()
        for number in range(12):
            for name in ("s1", "s2"):
                path = area.put(f"file{number}", name.encode(), name)
            found = {xrdfs(cluster.man, "cat", path).ok().out for _ in range(3)}
            assert len(found) == 1, found
            used |= found
        assert used == {"s1", "s2"}


@pytest.mark.parametrize("makers", clusters.parameters("weights", clusters.PAIR, clusters.SIDES))
def test_space_counts_for_new_files(makers, small_disk):
    """With equal load new files go to the emptier disk; readers go anywhere."""
    with Loads(makers, "cpu 1 space 100", trees={"s1": small_disk}) as cluster:
        area = clusters.Area(cluster)
        area.put("large", data(7 * MIB), "s1")
        for name in ("s1", "s2"):
            area.put("file", name.encode(), name)
        wait_until(lambda: [new_file(area) for _ in range(4)] == ["s2"] * 4, 60)
        read = {xrdfs(cluster.man, "cat", area / "file").ok().out for _ in range(4)}
        assert read == {"s1", "s2"}


@pytest.mark.parametrize("makers", clusters.parameters("weights", clusters.PAIR, clusters.SIDES))
def test_space_that_comes_and_goes(makers, small_disk):
    """A server whose disk becomes full gets no new files until there is room again. Its files are
    still read."""
    timing = clusters.TIMING.replace("cms.space min 1m 2m", "cms.space recalc 5 min 3m 5m")
    # A real server reports its space on a query, by default at each tenth ping: 30 s and more for
    # each step.
    timing = timing.replace("cms.ping 3", "cms.ping 3 usage 1")
    with clusters.Cluster(clusters.PAIR, makers, timing=timing, trees={"s1": small_disk}) as cluster:
        area = clusters.Area(cluster)
        wait_until(lambda: new_file(area) == "s1", 60)
        area.put("large", data(6 * MIB), "s1")
        # A server with room gets every second file by chance.
        wait_until(lambda: all(new_file(area) == "s2" for _ in range(16)), 60)
        assert len(xrdcp(area.url("large"), "-").ok().raw) == 6 * MIB
        area.local("s1", "large").unlink()
        wait_until(lambda: new_file(area) == "s1", 60)
        if cluster.s1.maker == "ours":
            said = cluster.s1.output()
            assert len(re.findall("too little space is free.*minimum_mb=3 enough_mb=5", said)) == 1, said
            assert said.count("there is space for new files again") == 1, said


def test_missing_files_cost_no_memory():
    """Two clients open missing files at a server as fast as it answers. Neither the server nor its
    manager grows."""
    report = pressure.Report()
    pressure.misses_at_a_server(report, seconds=3)
    assert not [what for what, unit in report.exceeded if unit == "MiB"]
