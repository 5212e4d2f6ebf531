"""Changes of the name space that the redirector forwards to all servers, and exhausted space, in
mixes."""

import os

import pytest

import clusters
import raw
from codes import ErrorCode
from tools import data, wait_until, xrdcp, xrdfs

MIB = 1 << 20


@pytest.fixture(scope="module", params=clusters.parameters("forward", clusters.PAIR, clusters.SIDES))
def forwarding(request):
    cluster = clusters.Cluster(clusters.PAIR, request.param)
    operations = "ofs.forward 1way mkdir mv rm rmdir chmod trunc\n"
    if cluster.man.maker == "real":
        # A real redirector forwards only authorized requests; the table allows everything.
        table = cluster.work / "authdb"
        table.write_text("u * / a\n")
        operations += f"ofs.authorize 1\nacc.authdb {table}\n"
    cluster.settings = f"if named man\n{operations}fi\n"
    with cluster:
        yield cluster


@pytest.fixture
def area(forwarding):
    return clusters.Area(forwarding)


def test_forwarded(forwarding, area):
    man = forwarding.man
    area.directory("s1", "s2")
    both = ["s1", "s2"]
    xrdfs(man, "mkdir", area / "made").ok()
    wait_until(lambda: area.holders("made") == both)
    for name in both:
        area.put("made/file", b"0123456789", name)
    xrdfs(man, "chmod", area / "made/file", "rw-r-----").ok()
    wait_until(lambda: all(area.local(name, "made/file").stat().st_mode & 0o777 == 0o640 for name in both))
    xrdfs(man, "truncate", area / "made/file", "4").ok()
    wait_until(lambda: all(area.local(name, "made/file").stat().st_size == 4 for name in both))
    xrdfs(man, "mv", area / "made/file", area / "made/moved").ok()
    wait_until(lambda: area.holders("made/moved") == both and area.holders("made/file") == [])
    xrdfs(man, "rm", area / "made/moved").ok()
    wait_until(lambda: area.holders("made/moved") == [])
    xrdfs(man, "rmdir", area / "made").ok()
    wait_until(lambda: area.holders("made") == [])


@pytest.fixture(params=clusters.parameters("slow-mv", clusters.PAIR, {"ours": dict(rest="ours")}))
def slow(request):
    """A program renames files at the servers, and waits for something to be written to `gate` first."""
    cluster = clusters.Cluster(clusters.PAIR, request.param)
    cluster.gate = cluster.work / "gate"
    os.mkfifo(cluster.gate)
    program = cluster.work / "rename"
    program.write_text(f'#!/bin/sh\ncat {cluster.gate} >/dev/null\nmv "$2" "$3"\n')
    program.chmod(0o755)
    orders = "if named man\nofs.forward 1way mv\nfi\n"
    cluster.settings = f"{orders}if named s1\ncms.fsxeq mv {program}\nfi\n"
    with cluster:
        yield cluster


def test_a_file_that_is_being_renamed_has_its_new_name(slow):
    """No other file of that name is created anywhere while the server takes its time."""
    area = clusters.Area(slow)
    for number in range(4):
        old, new = area.put(f"old{number}", b"renamed", "s1"), area / f"new{number}"
        xrdfs(slow.man, "mv", old, new).ok()
        assert clusters.opened(slow.man, new, raw.O_NEW | raw.O_UPDT) == ("wait", 0)
        # Also where the manager would send a creator by itself.
        slow.gate.write_text("go on")
        wait_until(lambda: area.holders(f"new{number}") == ["s1"])
        assert clusters.opened(slow.man, new, raw.O_READ) == ("redirect", slow.s1.port)
    area.remove()


@pytest.fixture(params=clusters.parameters("space", clusters.PAIR, clusters.SIDES))
def tight(request, small_disk):
    """The disk of s1 is smaller than the free space that a server needs for new files."""
    timing = clusters.TIMING.replace("cms.space min 1m 2m", "cms.space min 20m 30m")
    with clusters.Cluster(clusters.PAIR, request.param, timing=timing, trees={"s1": small_disk}) as cluster:
        yield cluster


def test_new_files_go_where_there_is_space(tight, tmp_path):
    """Files on the small disk are read, and no new file is put there. Without the other server
    there is no space."""
    area = clusters.Area(tight)
    area.put("old", b"old", "s1")
    (tmp_path / "source").write_bytes(data(MIB))
    for number in range(4):
        xrdcp(tmp_path / "source", area.url(f"new{number}")).ok()
        assert area.holders(f"new{number}") == ["s2"]
    assert xrdfs(tight.man, "cat", area / "old").ok().out == "old"


def test_disk_that_fills_up_while_clients_write(small, tmp_path):
    """The client receives an error, no partial file that was to persist on close remains, and the
    other server is not affected."""
    area = clusters.Area(small)
    (tmp_path / "large").write_bytes(data(12 * MIB))
    told = set()
    # Each server gets every second file, by chance.
    for number in range(24):
        if told == {0, 54}:
            break
        done = xrdcp("--posc", tmp_path / "large", area.url(f"large{number}"))
        told.add(done.status)
        if done.status:
            assert ErrorCode.NO_SPACE.shown in done.all, done
            wait_until(lambda: area.holders(f"large{number}") == [])
        else:
            assert area.holders(f"large{number}") == ["s2"]
    assert told == {0, 54}


@pytest.fixture(params=clusters.parameters("space", clusters.PAIR, clusters.SIDES))
def small(request, small_disk):
    """The disk of s1 has room for a few files."""
    with clusters.Cluster(clusters.PAIR, request.param, trees={"s1": small_disk}) as cluster:
        yield cluster
