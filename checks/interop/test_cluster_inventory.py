"""Servers of ours with `scalla.inventory complete`, which promises that files are created only
through them.

The tests check which events suspend the promise, and that managers query again then."""

import itertools
import subprocess

import pytest

import clusters
from tools import wait_until, xrdcp, xrdfs

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster():
    with clusters.Cluster(clusters.PAIR, "ours", settings="scalla.inventory complete\n") as cluster:
        yield cluster.answering()


@pytest.fixture
def area(cluster):
    area = clusters.Area(cluster)
    for name in ("s1", "s2"):
        area.put("first", b"", name)
    wait_until(lambda: hides(area), 60)
    return area


def stat(area, name):
    return xrdfs(area.cluster.man, "stat", area / name).status == 0


def hides(area):
    """Reports whether the manager answers for unreported names without a query: a file put on a
    server's disk is not found."""
    name = f"by-hand-{next(NUMBERS)}"
    area.put(name, b"", "s1")
    return not stat(area, name)


def test_files_created_by_clients_are_found(area):
    """For each operation that creates a name, in each parent directory."""
    for name in ("file", "deep/er/file"):
        xrdcp("/etc/hostname", area.url(name)).ok()
    wait_until(lambda: stat(area, "file") and stat(area, "deep/er/file") and stat(area, "deep/er"), 60)
    server = area.cluster.s1
    xrdfs(server, "mkdir", "-p", area / "made/below").ok()
    wait_until(lambda: stat(area, "made/below") and stat(area, "made"), 60)
    area.put("made/below/by-hand", b"", "s1")
    xrdfs(server, "mv", area / "made/below/by-hand", area / "moved/file").ok()
    wait_until(lambda: stat(area, "moved/file") and stat(area, "moved"), 60)
    xrdfs(server, "mv", area / "moved", area / "renamed").ok()
    wait_until(lambda: stat(area, "renamed/file"), 60)
    # The server lists all names again some time after a directory was renamed.
    wait_until(lambda: hides(area), 60)
    assert stat(area, "renamed/file") and not stat(area, "none")


def test_a_disk_that_is_mounted_is_found(area, small_disk):
    """Its files were not created through the server."""
    below = area.local("s1", "disk")
    below.mkdir()
    (small_disk / "file").write_text("there")
    assert not stat(area, "disk/file")
    subprocess.run(["mount", "--bind", small_disk, below], check=True)
    try:
        wait_until(lambda: stat(area, "disk/file"), 60)
        wait_until(lambda: hides(area), 60)
        assert stat(area, "disk/file")
    finally:
        subprocess.run(["umount", "-l", below], check=True)


def test_a_restart_lists_files_put_on_the_disk(area):
    hidden = []

    def hides_one():
        # A disk that another program mounts meanwhile suspends the promise.
        hidden.append(f"while-it-ran-{next(NUMBERS)}")
        area.put(hidden[-1], b"", "s1")
        return not stat(area, hidden[-1])

    wait_until(hides_one, 60)
    area.cluster.s1.restart()
    wait_until(lambda: stat(area, hidden[-1]), 60)
    wait_until(lambda: hides(area), 60)
    assert stat(area, hidden[-1])
