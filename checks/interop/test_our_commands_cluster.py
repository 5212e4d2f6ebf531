"""`scalla ls` and the other commands at a manager: the files of all servers, each name once."""

import json
import os

import pytest

import clusters
from tools import scalla

PLAN = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
""")


@pytest.fixture(scope="module", params=["real", "ours"])
def running(request):
    with clusters.Cluster(PLAN, request.param) as cluster:
        yield cluster


@pytest.fixture
def area(running):
    """Files of which one server, the other, or both have a copy."""
    area = clusters.Area(running.complete())
    area.put("one", b"one", "s1")
    area.put("two", b"two!", "s2")
    area.put("both", b"copies", "s1", "s2")
    for server, name in (("s1", "sub"), ("s2", "sub"), ("s2", "other")):
        directory = area.local(server, name)
        directory.mkdir()
        clusters.peers.give(directory)
    area.put("sub/deep1", b"1", "s1")
    area.put("sub/deep2", b"22", "s2")
    yield area
    area.remove()


def lines(result):
    return result.ok().out.split("\n")[:-1]


def items(result):
    return [json.loads(line) for line in result.ok().out.split("\n")[:-1]]


def ports(cluster):
    return {cluster.s1.port, cluster.s2.port}


def test_listings_are_complete_and_have_each_name_once(area):
    here = area.url("").rstrip("/")
    assert lines(scalla("ls", here)) == ["both", "one", "other", "sub", "two"]
    assert lines(scalla("ls", area.url("sub"))) == ["deep1", "deep2"]
    assert lines(scalla("ls", "-d", area.url("*o*e*"))) == [area.url("one"), area.url("other")]
    names = ["both", "one", "other", "sub", "sub/deep1", "sub/deep2", "two"]
    assert sorted(lines(scalla("find", here))) == sorted([here, *map(area.url, names)])
    assert lines(scalla("tree", area.url("sub")))[1:3] == ["├── deep1", "└── deep2"]
    (sum_,) = items(scalla("du", "-s", "--json", here))
    assert (sum_["bytes"], sum_["files"]) == (3 + 4 + 6 + 1 + 2, 5)
    scalla("ls", area.url("nope")).fails(1)


def test_locate_and_space(area):
    cluster = area.cluster
    found = items(scalla("locate", "--json", area.url("both")))
    assert {int(item["server"].rpartition(":")[2]) for item in found} == ports(cluster)
    (found,) = items(scalla("locate", "--json", area.url("one")))
    assert int(found["server"].rpartition(":")[2]) == cluster.s1.port
    every = items(scalla("locate", "--all", "--json", area.url("one")))
    assert {int(item["server"].rpartition(":")[2]): item["present"] for item in every} == {cluster.s1.port: True, cluster.s2.port: False}
    rows = items(scalla("space", "--json", area.url("")))
    assert {int(row["server"].rpartition(":")[2]) for row in rows} == ports(cluster)
    assert len(lines(scalla("space", area.url("")))) == 4


def test_changes_are_made_at_each_copy(area):
    scalla("chmod", "600", area.url("both")).ok()
    assert all(area.local(server, "both").stat().st_mode & 0o777 == 0o600 for server in ("s1", "s2"))
    scalla("truncate", "-s", "2", area.url("both")).ok()
    assert all(area.local(server, "both").read_bytes() == b"co" for server in ("s1", "s2"))
    scalla("mv", area.url("both"), area.url("moved")).ok()
    assert area.holders("both") == [] and area.holders("moved") == ["s1", "s2"]
    scalla("rm", area.url("moved"), area.url("one")).ok().silent()
    assert area.holders("moved") == area.holders("one") == []
    assert scalla("cat", area.url("two")).ok().raw == b"two!"
    scalla("rmdir", area.url("sub")).fails(1)
    scalla("rm", "-r", area.url("sub")).ok().silent()
    assert area.holders("sub") == []
    scalla("rmdir", area.url("other")).ok()
    assert lines(scalla("ls", area.url(""))) == ["two"]
    scalla("rm", "-r", area.url("").rstrip("/")).ok()
    assert not any(os.path.lexists(area.local(server)) for server in ("s1", "s2"))


def everywhere(area, name):
    return [area.local(server, name).is_dir() for server in ("s1", "s2")]


def test_a_directory_is_created_at_all_servers(area):
    """It exists on each server to which a file in it may go, with the same permissions. An existing
    directory is still an error."""
    scalla("mkdir", "-m", "700", area.url("new")).ok().silent()
    assert everywhere(area, "new") == [True, True]
    assert all(area.local(server, "new").stat().st_mode & 0o777 == 0o700 for server in ("s1", "s2"))
    scalla("mkdir", area.url("new")).fails(1, "exists")
    # Only one server has the parent directory; the entries of the other exist there already, too.
    scalla("mkdir", area.url("other/in")).ok()
    assert everywhere(area, "other/in") == [False, True]
    scalla("mkdir", area.url("other")).fails(1, "exists")
    scalla("mkdir", "-p", area.url("other/in"), area.url("deep/er")).ok()
    assert everywhere(area, "other/in") == everywhere(area, "deep/er") == [True, True]
    scalla("mkdir", area.url("nowhere/in")).fails(1, "no such file")
    scalla("rm", "-r", area.url("new")).ok()
    assert everywhere(area, "new") == [False, False]
    scalla("rmdir", area.url("deep/er"), area.url("deep")).ok()
    assert everywhere(area, "deep") == [False, False]


def test_a_directory_that_one_server_cannot_create(area):
    """The others have it, and the failure is reported."""
    scalla("mkdir", area.url("here")).ok()
    area.local("s1", "here").rmdir()
    (area.local("s1", "here")).write_bytes(b"a file")
    scalla("mkdir", "-p", area.url("here/in")).fails(1, "here/in")
    assert area.local("s2", "here/in").is_dir()


def test_copies_are_complete_too(area, tmp_path):
    scalla("cp", "-r", area.url("sub"), tmp_path / "sub").ok()
    assert sorted(os.listdir(tmp_path / "sub")) == ["deep1", "deep2"]


def test_a_directory_synced_with_one_of_the_cluster(area, tmp_path):
    """Files of the other server alone must not look removed."""
    for name in ("deep1", "deep2", "old"):
        (tmp_path / name).write_bytes(b"old")
    scalla("sync", "--delete", "--checksum", "adler32", area.url("sub"), tmp_path).ok()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"deep1": b"1", "deep2": b"22"}


def test_a_lost_server_is_reported_or_omitted(area):
    """The manager may still know it: then its files are reported missing."""
    area.cluster.s2.kill()
    try:
        result = scalla("ls", area.url(""), XRD_CONNECTIONWINDOW="3", XRD_CONNECTIONRETRY="1")
        assert set(result.out.split()) == {"both", "one", "sub"} and (result.status == 0 or "no connection" in result.err)
    finally:
        area.cluster.s2.start()
