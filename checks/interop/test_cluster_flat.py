"""One manager and three servers, in all mixes of real daemons and ours: operations of clients at
the manager.

The tests must also pass for the all-real cluster."""

import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

import clusters
import peers
import raw
import tools
from codes import ErrorCode, ShellCode
from tools import wait_until, xrdcp, xrdfs

FLAT = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
    s3 server man
""")
MIXES = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "by-command-line": dict(rest="plain"),
    "our-servers-under-real": dict(man="real", rest="ours"),
    "real-servers-under-ours": dict(man="ours", rest="real"),
    "both-under-real": dict(man="real", s1="ours", s2="real", s3="ours"),
    "both-under-ours": dict(man="ours", s1="real", s2="ours", s3="real"),
}


@pytest.fixture(scope="module", params=clusters.parameters("flat", FLAT, MIXES))
def running(request):
    with clusters.Cluster(FLAT, request.param) as cluster:
        yield cluster.answering()


@pytest.fixture
def cluster(running):
    """The cluster, complete."""
    return running.complete()


@pytest.fixture
def area(cluster):
    return clusters.Area(cluster)


# Location.

@pytest.mark.parametrize("options", [(), ("-r",), ("-d",), ("-h",), ("-r", "-d"), ("-d", "-h")], ids=lambda options: "".join(options) or "plain")
def test_locate(cluster, area, options):
    """The servers with the file, and only those."""
    path = area.put("file", b"here", "s1", "s3")
    found = xrdfs(cluster.man, "locate", *options, path).ok()
    assert sorted(cluster.named(found.out)) == ["s1", "s3"], found
    assert found.out.count("Server ReadWrite") == 2, found


def test_locate_all_servers(cluster):
    found = xrdfs(cluster.man, "locate", "*").ok()
    assert sorted(cluster.named(found.out)) == ["s1", "s2", "s3"], found
    assert sorted(cluster.named(xrdfs(cluster.man, "locate", "-d", "*").ok().out)) == ["s1", "s2", "s3"]


def test_missing_file(cluster, area):
    for _ in range(2):
        xrdfs(cluster.man, "locate", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
        xrdfs(cluster.man, "stat", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdcp(area.url("nope"), "-").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)


def test_file_placed_by_hand_after_it_was_missed(cluster, area):
    """A refresh finds a file that was not announced."""
    xrdfs(cluster.man, "stat", area / "late").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    path = area.put("late", b"1234567", "s2")
    assert cluster.named(xrdfs(cluster.man, "locate", "-r", path).ok().out) == ["s2"]
    assert "Size:   7" in xrdfs(cluster.man, "stat", path).ok().out


def test_concurrent_queries_for_one_file(cluster, area):
    """An unknown file, requested by many clients at the same time."""
    path = area.put("wanted", b"w" * 10, "s2")
    connections = [cluster.man.connect() for _ in range(20)]
    streams = [connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode()) for connection in connections]
    for connection, stream in zip(connections, streams):
        assert cluster.name_of(clusters.redirected(connection, stream, path)) == "s2"
        connection.close_socket()


@pytest.mark.parametrize("version", [0x290, 0x300, 0x400, 0x520], ids=hex)
@pytest.mark.parametrize("capability", [0, 2, 4, 5])
def test_clients_of_all_ages(cluster, area, version, capability):
    """Clients before version 3 receive no deferred answer, because they cannot decode it."""
    path = area.put("file", b"old and new", "s3")
    with cluster.man.connect(login=False) as connection:
        connection.hello(version=version)
        connection.login(capability=capability)
        stream = connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode())
        assert cluster.name_of(clusters.redirected(connection, stream, path, deferred=capability >= 3)) == "s3"


# Reading, writing, creating.

def test_upload_and_download(cluster, area, source, tmp_path):
    xrdcp(source, area.url("sub/file")).ok()
    assert area.get("sub/file") == source.read_bytes()
    xrdcp(area.url("sub/file"), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert cluster.named(xrdfs(cluster.man, "locate", area / "sub/file").ok().out) == area.holders("sub/file")


def test_existing_file_is_kept_without_force(cluster, area, source):
    area.put("file", b"precious", "s2")
    xrdcp(source, area.url("file")).fails(ShellCode.CLIENT_ERROR, "file exists")
    assert area.get("file") == b"precious"
    xrdcp("-f", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes() and area.holders("file") == ["s2"]


def test_creations_are_spread(cluster, area, source):
    """By chance if the manager is ours. The probability that one of the servers gets none is one in
    a million."""
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda number: xrdcp(source, area.url(f"file{number}")), range(36)):
            done.ok()
    used = {name for number in range(36) for name in area.holders(f"file{number}")}
    assert used == {"s1", "s2", "s3"}


def test_creation_at_a_server_is_announced(cluster, area, source):
    """The manager knows that the file is missing, and learns of the file that a client then creates
    directly at a server."""
    xrdfs(cluster.man, "stat", area / "file").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdcp(source, cluster.s3.url(area / "file")).ok()
    wait_until(lambda: cluster.man.locate(area / "file"))
    assert cluster.named(xrdfs(cluster.man, "locate", area / "file").ok().out) == ["s3"]


def test_upload_that_persists_on_close(cluster, area, source):
    xrdcp("--posc", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    assert "Size:   300000" in xrdfs(cluster.man, "stat", area / "file").ok().out


def test_checksum(cluster, area, source):
    xrdcp("--cksum", "adler32:source", source, area.url("file")).ok()
    sum_there = xrdfs(cluster.man, "query", "checksum", area / "file").ok().out.split()
    sum_direct = xrdfs(cluster[area.holders("file")[0]], "query", "checksum", area / "file").ok().out.split()
    assert sum_there == sum_direct and sum_there[0] == "adler32"


def test_attributes_mode_and_size(cluster, area):
    path = area.put("file", b"0123456789", "s2")
    xrdfs(cluster.man, "chmod", path, "rwxr-x---").ok()
    assert area.local("s2", "file").stat().st_mode & 0o777 == 0o750
    xrdfs(cluster.man, "truncate", path, "4").ok()
    assert area.get("file") == b"0123"
    xrdfs(cluster.man, "xattr", path, "set", "key=value").ok()
    assert "value" in xrdfs(cluster.man, "xattr", path, "get", "key").ok().out
    assert xrdfs(cluster.man, "cat", path).ok().out == "0123"


# Names.

def test_deletion(cluster, area):
    path = area.put("file", b"short-lived", "s2")
    xrdfs(cluster.man, "rm", path).ok()
    assert area.holders("file") == []
    wait_until(lambda: xrdfs(cluster.man, "stat", path).status == ShellCode.SERVER_ERROR)
    xrdfs(cluster.man, "locate", path).fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdfs(cluster.man, "rm", path).fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)


def test_deletion_at_a_server_is_announced(cluster, area):
    path = area.put("file", b"two copies", "s1", "s2")
    assert sorted(cluster.named(xrdfs(cluster.man, "locate", path).ok().out)) == ["s1", "s2"]
    xrdfs(cluster.s1, "rm", path).ok()
    wait_until(lambda: cluster.named(xrdfs(cluster.man, "locate", path).ok().out) == ["s2"])
    assert xrdfs(cluster.man, "cat", path).ok().out == "two copies"


def test_rename(cluster, area):
    old = area.put("old", b"content", "s3")
    xrdfs(cluster.man, "mv", old, area / "new").ok()
    assert area.holders("old") == [] and area.holders("new") == ["s3"]
    wait_until(lambda: cluster.man.locate(area / "new"))
    assert xrdfs(cluster.man, "cat", area / "new").ok().out == "content"
    wait_until(lambda: xrdfs(cluster.man, "stat", old).status == ShellCode.SERVER_ERROR)


def test_directories(cluster, area):
    area.directory("s1", "s2", "s3")
    xrdfs(cluster.man, "mkdir", area / "made").ok()
    assert area.holders("made")
    assert "IsDir" in xrdfs(cluster.man, "stat", area / "made").ok().out
    xrdfs(cluster.man, "rmdir", area / "made").ok()
    assert area.holders("made") == []


def test_listing_has_each_name_once(cluster, area):
    area.put("everywhere", b"x", "s1", "s2", "s3")
    for name in ("s1", "s2", "s3"):
        area.put(f"on-{name}", b"x", name)
    listed = xrdfs(cluster.man, "ls", area.path).ok().out.split()
    assert listed == sorted(area / name for name in ("everywhere", "on-s1", "on-s2", "on-s3"))
    long = xrdfs(cluster.man, "ls", "-l", area.path).ok().out.splitlines()
    assert sorted(line.split()[-1] for line in long) == listed
    with_addresses = xrdfs(cluster.man, "ls", "-u", area.path).ok().out.split()
    assert sum("everywhere" in line for line in with_addresses) == 3


def test_listing_of_a_missing_directory(cluster, area):
    xrdfs(cluster.man, "ls", area / "nope").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)


# Space, preparation, maps.

def test_space(cluster):
    def space(node):
        return dict(word.split("=") for word in xrdfs(node, "query", "space", "/").ok().out.strip().split("&"))

    def ratio(figure):
        return int(space(cluster.man)[figure]) / int(space(cluster.s1)[figure])

    # All servers are on one file system here, which counts for each.
    assert abs(ratio("oss.space") - 3) < 0.05
    # Other tests use space meanwhile, and the manager learns of that later.
    wait_until(lambda: abs(ratio("oss.free") - 3) < 0.2, 60)
    assert "Total:" in xrdfs(cluster.man, "spaceinfo", "/").ok().out
    lines = xrdfs(cluster.man, "statvfs", "/").ok().out.splitlines()
    assert lines[1].split() == "Nodes with RW space: 3".split()


def test_prepare(cluster, area):
    path = area.put("file", b"x", "s1")
    for options in ((), ("-s",), ("-w",), ("-f",), ("-p", "2"), ("-s", "-c")):
        xrdfs(cluster.man, "prepare", *options, path).ok()


@pytest.mark.parametrize("list_", [None, "all", "m", "s"])
def test_map(cluster, list_):
    options = ["--list", list_] if list_ else []
    done = tools.run([clusters.XRDMAPC, *options, cluster.man.host]).ok()
    assert sorted(set(cluster.named(done.out))) == (["man"] if list_ == "m" else ["man", "s1", "s2", "s3"]), done


def test_map_with_a_file(cluster, area):
    path = area.put("file", b"x", "s1", "s3")
    done = tools.run([clusters.XRDMAPC, "--verify", cluster.man.host, path]).ok()
    marks = {cluster.named(line)[0]: line[:6].split()[0] for line in done.out.splitlines() if cluster.named(line)}
    assert (marks["s1"], marks["s2"], marks["s3"]) == (">+", "-", ">+"), done


def test_role(cluster):
    assert xrdfs(cluster.man, "query", "config", "role").ok().out.strip() == "manager"
    assert xrdfs(cluster.s1, "query", "config", "role").ok().out.strip() == "server"


# Failures.

def test_file_vanished_behind_the_managers_back(cluster, area):
    """The manager redirects the client to the former location, and the client returns with that
    reason. There is no loop and no endless wait."""
    path = area.put("file", b"x", "s2")
    xrdfs(cluster.man, "stat", path).ok()
    area.local("s2", "file").unlink()
    if cluster.man.maker == "real":
        # A client that returns before the manager has processed the notice of the server is
        # redirected to the same server, which can reach the client's limit of redirects under load.
        wait_until(lambda: ErrorCode.NOT_FOUND.shown in xrdcp(area.url("file"), "-").err)
    xrdcp(area.url("file"), "-").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    xrdfs(cluster.man, "stat", path).fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
    path = area.put("file", b"back", "s3")
    assert cluster.named(xrdfs(cluster.man, "locate", "-r", path).ok().out) == ["s3"]
    assert xrdfs(cluster.man, "cat", path).ok().out == "back"


def test_server_is_restarted(cluster, area):
    path = area.put("file", b"before and after", "s2")
    xrdfs(cluster.man, "stat", path).ok()
    cluster.s2.restart()
    cluster.complete()
    assert xrdfs(cluster.man, "cat", path).ok().out == "before and after"


def test_server_stops_in_good_order(cluster, area):
    path = area.put("file", b"two copies", "s1", "s2")
    xrdfs(cluster.man, "stat", path).ok()
    cluster.s1.stop()
    for _ in range(4):
        assert xrdfs(cluster.man, "cat", path).ok().out == "two copies"
    cluster.s1.start()
    cluster.complete()
    wait_until(lambda: sorted(cluster.named(xrdfs(cluster.man, "locate", path).out)) == ["s1", "s2"])


def test_manager_is_restarted(cluster, area, source):
    """Clients wait for it, nodes rejoin, and everything is found again."""
    path = area.put("file", b"before and after", "s3")
    xrdfs(cluster.man, "stat", path).ok()
    cluster.man.restart()
    if len({server.maker for server in cluster.servers}) > 1:
        # Real nodes rejoin after 9 s, ours immediately. One server is enough to serve by this
        # configuration.
        cluster.complete()
    assert xrdfs(cluster.man, "cat", path).ok().out == "before and after"
    cluster.complete()
    xrdcp(source, area.url("new")).ok()
    assert area.get("new") == source.read_bytes()


# Clients of both generations.

@pytest.mark.parametrize("python", clusters.PYTHONS, ids=["newest", "5.5.3"])
def test_python_client(cluster, area, python):
    area.put("there", tools.pattern(10_000), "s2")
    done = tools.run([python, peers.REPOSITORY / "checks/interop" / "python_cluster.py", f"root://{cluster.man.host}", area.path])
    assert done.ok().out.strip() == "done"
    assert area.holders("made-by-python") == []
