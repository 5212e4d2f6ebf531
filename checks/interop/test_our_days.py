"""Failures of `scalla cp`: lost or silent servers, networks that corrupt data, full disks.

There must be no hang and no wrong file that looks complete, and each message names a remedy."""

import json
import os
import signal
import subprocess

import pytest

import clusters
import hollow
import peers
import places
import tools
from between import Between
from codes import Exit, ShellCode
from tools import data, scalla

MIB = 1 << 20
# Timeouts of seconds for a server that does not answer.
SHORT = dict(XRD_CONNECTIONWINDOW="4", XRD_CONNECTIONRETRY="1", XRD_STREAMTIMEOUT="4", XRD_STREAMERRORWINDOW="4",
             XRD_REQUESTTIMEOUT="30", XRD_TIMEOUTRESOLUTION="1")


def starting(*arguments, **environment):
    return subprocess.Popen([str(word) for word in [peers.program(), *arguments]], env=peers.environment(**environment),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("streams", ["1", "4", "15"])
def test_streams(area, tmp_path, streams):
    content = data(33 * MIB + 5)
    (tmp_path / "source").write_bytes(content)
    scalla("cp", "--streams", streams, "--checksum", "adler32", tmp_path / "source", area.url("file")).ok()
    assert area.get("file") == content
    scalla("cp", "--streams", streams, "--checksum", "adler32", area.url("file"), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content


@pytest.mark.parametrize("after", [0, 100, 3 * MIB], ids=["at once", "after the login", "in the data"])
def test_server_that_takes_connections_and_falls_silent(area, tmp_path, after):
    area.put("file", data(16 * MIB))
    with Between(area.server, mute_down=after) as between:
        path = area.path + "/file"
        scalla("cp", between.url(path), tmp_path / "out", **SHORT).fails(1, between.host, "check")
        scalla("cp", tmp_path / "nothing", between.url(path + "2"), **SHORT).fails(1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("after", [0, 200_000, 20 * MIB], ids=["before", "during", "at the end"])
def test_server_gone_under_an_upload(area, tmp_path, after):
    (tmp_path / "source").write_bytes(data(20 * MIB))
    with Between(area.server, cut_up=after) as between:
        result = scalla("cp", tmp_path / "source", between.url(area.path + "/file"), **SHORT)
    result.fails(1, between.host, "check")


@pytest.mark.parametrize("after", [0, 200_000, 20 * MIB], ids=["before", "during", "at the end"])
def test_server_gone_under_a_download(area, tmp_path, after):
    area.put("file", data(20 * MIB))
    with Between(area.server, cut_down=after) as between:
        result = scalla("cp", between.url(area.path + "/file"), tmp_path / "out", **SHORT)
    result.fails(1, between.host, "check")
    assert os.listdir(tmp_path) == []


def test_server_that_comes_back_is_waited_for(launch, tmp_path):
    server = launch()
    content = data(48 * MIB)
    (server.tree / "file").write_bytes(content)
    peers.give(server.tree / "file")
    copying = starting("cp", server.url("/file"), tmp_path / "out", XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="1")
    tools.wait_until(lambda: copying.poll() is not None or any(e.stat().st_blocks for e in os.scandir(tmp_path)))
    server.restart()
    _, error = copying.communicate(timeout=tools.PATIENCE_SECONDS)
    assert copying.returncode == 0, error
    assert (tmp_path / "out").read_bytes() == content


def test_servers_that_redirect_in_a_circle(tmp_path):
    ports = [peers.free_port(), peers.free_port()]
    servers = [peers.Ours(settings=f"xrootd.redirect localhost:{port} /\n") for port in reversed(ports)]
    for server, port in zip(servers, ports):
        server.port = port
    with servers[0], servers[1]:
        scalla("cp", servers[0].url("/file"), tmp_path / "out", **SHORT).fails(1, "circle", *(server.host for server in servers))


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_checksum_that_never_comes(later):
    """The server answers everything else. After seconds the client checks the server; a
    configured timeout applies to files."""
    unlimited = dict(XRD_REQUESTTIMEOUT="")
    with hollow.Debtor("1 4096 19 1700000000", later) as server:
        for words in (["checksum"], ["query", "checksum"]):
            program = [peers.program()] if len(words) == 1 else [peers.link("xrdfs"), server.host]
            target = f"root://{server.host}//dir" if len(words) == 1 else "/dir"
            done = tools.run([*program, *words, target], **unlimited)
            assert done.status == (Exit.FAILED if len(words) == 1 else ShellCode.SERVER_ERROR) and "directory" in done.err, done
    with hollow.Debtor(None, later) as server:
        scalla("checksum", f"root://{server.host}//gone", **unlimited).fails(1, "nothing here", server.host)
    with hollow.Debtor("1 4096 16 1700000000", later) as server:
        scalla("checksum", f"root://{server.host}//file", XRD_REQUESTTIMEOUT="7").fails(1, server.host, "no answer within", "XRD_REQUESTTIMEOUT")


def test_bits_flipped_on_the_way_down(area, tmp_path):
    """Page checksums detect it, and the page is read again. Without them the checksum of the file
    detects it."""
    content = data(20 * MIB)
    area.put("file", content)
    path = area.path + "/file"
    with Between(area.server, flip_down=[1_000_001, 9_000_001]) as between:
        scalla("cp", between.url(path), tmp_path / "out").ok()
        assert not between.flips["down"]
    assert (tmp_path / "out").read_bytes() == content
    with Between(area.server, flip_down=[1_000_001]) as between:
        plain = scalla("cp", "--no-verify", "--checksum", "adler32", between.url(path), tmp_path / "bad")
    plain.fails(1, "adler32", "damaged")
    assert os.listdir(tmp_path) == ["out"]


def test_bits_flipped_on_the_way_up(area, tmp_path):
    content = data(20 * MIB)
    (tmp_path / "source").write_bytes(content)
    with Between(area.server, flip_up=[1_000_001, 9_000_001]) as between:
        scalla("cp", tmp_path / "source", between.url(area.path + "/file")).ok()
        assert not between.flips["up"]
    assert area.get("file") == content
    with Between(area.server, flip_up=[1_000_001]) as between:
        plain = scalla("cp", "--no-verify", "--checksum", "adler32", tmp_path / "source", between.url(area.path + "/bad"))
    plain.fails(1, "adler32", "damaged")
    assert os.listdir(area.local) == ["file"]


def test_local_disk_full(area, small_disk):
    content = data(12 * MIB)
    area.put("file", content)
    area.put("small", content[:MIB])
    scalla("cp", area.url("file"), small_disk / "out").fails(1, "no space left", "free space")
    assert os.listdir(small_disk) == []
    scalla("cp", "--continue", area.url("file"), small_disk / "out").fails(1, "no space left")
    left = (small_disk / ".out.part").read_bytes()
    assert left == content[:len(left)]
    (small_disk / ".out.part").unlink()
    # One after another: beside the large one the small one may find no room either.
    scalla("cp", "-r", "--parallel", "1", area.url(""), f"{small_disk}/all").fails(1, "no space left")
    assert (small_disk / "all/small").read_bytes() == content[:MIB]


def test_second_interrupt_ends_at_once(serve, area_on, tmp_path):
    """The server does not answer, so the partial file cannot be removed."""
    area = area_on(serve())
    (tmp_path / "source").write_bytes(data(64 * MIB))
    copying = starting("cp", tmp_path / "source", area.url("file"), XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="1")
    tools.wait_until(lambda: (area.local / "file").exists() and (area.local / "file").stat().st_size)
    area.server.process.send_signal(signal.SIGSTOP)
    try:
        copying.send_signal(signal.SIGINT)
        # It reports the first interrupt.
        tools.wait_until(lambda: handles(copying, signal.SIGINT))
        copying.send_signal(signal.SIGINT)
        assert copying.wait(tools.PATIENCE_SECONDS) in (130, -signal.SIGINT)
    finally:
        area.server.process.send_signal(signal.SIGCONT)
        copying.communicate()


def handles(process, number):
    """Reports whether a signal has been received, not just sent."""
    try:
        status = open(f"/proc/{process.pid}/status").read()
    except FileNotFoundError:
        return True
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(mask >> (number - 1) & 1 for mask in pending)


@pytest.fixture
def three(ours, theirs, serve):
    """The same file of 40 MiB on three servers."""
    servers = [ours, theirs, serve()]
    content = data(40 * MIB + 5)
    for server in servers:
        (server.tree / "three").write_bytes(content)
        peers.give(server.tree / "three")
    yield servers, content
    for server in servers:
        (server.tree / "three").unlink(missing_ok=True)


def test_data_of_a_lost_source_is_not_read_again(three, tmp_path):
    servers, content = three
    ways = [Between(server) for server in servers]
    ways[2].cuts["down"] = 4 * MIB
    with ways[0], ways[1], ways[2]:
        hosts = ",".join(way.host for way in ways)
        scalla("cp", f"root://{hosts}//three", tmp_path / "out", XRD_CPCHUNKSIZE="65536", **SHORT).ok()
    assert (tmp_path / "out").read_bytes() == content
    assert ways[2].passed["down"] > 4 * MIB
    # Beyond the file itself: page checksums, samples, and a few blocks that were in flight or
    # requested twice.
    assert sum(way.passed["down"] for way in ways) < len(content) * 1.01 + 40 * 65536


def test_slow_source_among_fast_ones(three, tmp_path):
    servers, content = three
    with Between(servers[0]) as fast, Between(servers[1]) as other, Between(servers[2], pause=0.2) as slow:
        hosts = ",".join(way.host for way in (slow, fast, other))
        told = scalla("cp", "--json", f"root://{hosts}//three", tmp_path / "out", XRD_CPCHUNKSIZE="262144").ok()
        assert (tmp_path / "out").read_bytes() == content
        given = {share["source"]: share["bytes"] for share in json.loads(told.out.splitlines()[0])["shares"]}
        assert given.get(slow.host, 0) < min(given[fast.host], given[other.host]), given


@pytest.mark.skipif(os.geteuid() != 0, reason="needs network namespaces")
def test_dead_addresses_before_the_one_that_lives(tmp_path):
    """A name with unreachable addresses of both families before the right one; IPv6 is configured,
    but has no route."""
    plan = clusters.Plan("man manager\none server man")
    with places.Network() as network, clusters.Cluster(plan, "ours", places=network) as cluster:
        cluster.complete()
        places.ip("-n", network.name, "address", "add", "fd99::2/64", "dev", "bridge", "nodad")
        content = data(3 * MIB)
        (cluster.one.tree / "file").write_bytes(content)
        peers.give(cluster.one.tree / "file")
        dead = ["fd99::1", "10.213.0.77", "10.213.0.78"]
        network.name_hosts({"half": [*dead, cluster.man.address], "none": dead})

        def cp(host, target):
            command = [*network.prefix(), peers.program(), "cp", f"root://{host}:1094//file", target]
            return tools.run(command, **SHORT)

        cp("half", tmp_path / "out").ok()
        assert (tmp_path / "out").read_bytes() == content
        cp("none", tmp_path / "other").fails(1, "none:1094", "no connection", "check")


TPC = f"ofs.tpc ttl 90 120 pgm {peers.real('xrdcp')} --server\n"


@pytest.mark.parametrize("makers", ["ours", "real", dict(man="ours", one="real", two="ours")], ids=["ours", "theirs", "mixed"])
def test_third_party_copy_through_managers(makers):
    """The selected servers arrange it between themselves."""
    plan = clusters.Plan("man manager\none server man\ntwo server man")
    content = data(5 * MIB + 3)
    with clusters.Cluster(plan, makers, settings=TPC) as source, clusters.Cluster(plan, makers, settings=TPC) as target:
        source.complete()
        target.complete()
        path = source.two.tree / "file"
        path.write_bytes(content)
        peers.give(path)
        here, there = (cluster.man.url(name).replace("localhost", "127.0.0.1") for cluster, name in ((source, "/file"), (target, "/new")))
        scalla("cp", "--tpc", "only", "--posc", "--checksum", "adler32", here, there).ok()
        copies = [node.tree / "new" for node in target.servers if (node.tree / "new").exists()]
        assert [path.read_bytes() for path in copies] == [content]


def test_a_copy_has_a_timeout(area, tmp_path):
    """`XRD_CPTIMEOUT`: a copy that takes longer is stopped, and no file is left."""
    area.put("file", data(20 * MIB))
    (tmp_path / "source").write_bytes(data(20 * MIB))
    slowly = dict(XRD_CPTIMEOUT="2", XRD_CPCHUNKSIZE="65536")
    scalla("cp", "--rate", "1m", area.url("file"), tmp_path / "out", **slowly).fails(1, "no answer within 2 s")
    scalla("cp", "--rate", "1m", tmp_path / "source", area.url("new"), **slowly).fails(1, "no answer within 2 s")
    assert os.listdir(tmp_path) == ["source"] and os.listdir(area.local) == ["file"]
    scalla("cp", area.url("file"), tmp_path / "out", XRD_CPTIMEOUT="300").ok()
