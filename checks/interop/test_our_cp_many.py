"""`scalla cp` from several servers in parallel, from server to server, and `scalla sync`."""

import json
import os
import signal
import subprocess
import zlib

import pytest

import clusters
import peers
import tools
from tools import data, scalla

MIB = 1024 * 1024
TPC = peers.SETTINGS + f"ofs.tpc ttl 10 20 pgm {peers.real('xrdcp')} --server\n"


@pytest.fixture
def copies(ours, theirs, serve):
    """Three servers with the same file of 40 MiB: ours, a real one, another of ours."""
    servers = [ours, theirs, serve()]
    content = data(40 * MIB + 5)
    for server in servers:
        peers.place(server.tree / "many", content)
    yield servers, content
    for server in servers:
        (server.tree / "many").unlink(missing_ok=True)


def many(servers):
    return f"root://{','.join(server.host for server in servers)}//many"


def shares(out):
    """Returns the bytes that each source sent, from the output of `--json`."""
    return {share["source"]: share for share in json.loads(out.splitlines()[0])["shares"]}


def test_all_sources_take_part(copies, tmp_path):
    servers, content = copies
    told = scalla("cp", "--json", "--checksum", "adler32", many(servers), tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == content
    given = shares(told.out)
    assert set(given) == {server.host for server in servers}
    assert all(share["bytes"] > 0 and share["failed"] is None for share in given.values())
    assert sum(share["bytes"] for share in given.values()) == len(content)


def test_to_standard_output_and_to_a_server(copies, area_on):
    servers, content = copies
    assert scalla("cp", many(servers), "-").ok().raw == content
    area = area_on(servers[0])
    scalla("cp", many(servers[1:]), area.url("file")).ok()
    assert area.get("file") == content


def test_a_missing_source_or_one_of_another_size_is_omitted(copies, tmp_path):
    servers, content = copies
    with open(servers[1].tree / "many", "ab") as file:
        file.write(b"more")
    (servers[2].tree / "many").unlink()
    told = scalla("cp", "--json", f"root://localhost:{peers.free_port()},{many(servers)[7:]}", tmp_path / "out",
                  XRD_CONNECTIONWINDOW="3").ok()
    assert (tmp_path / "out").read_bytes() == content
    assert set(shares(told.out)) == {servers[0].host}


def test_a_source_that_dies_costs_its_share_only(copies, tmp_path):
    servers, content = copies
    small = dict(XRD_CPCHUNKSIZE="65536")
    copying = subprocess.Popen([peers.program(), "cp", "--json", many(servers), tmp_path / "out"], stdout=subprocess.PIPE,
                               env=peers.environment(**small))
    # The output grows block by block.
    tools.wait_until(lambda: copying.poll() is not None or any(e.stat().st_blocks for e in os.scandir(tmp_path)))
    servers[2].kill()
    out, _ = copying.communicate(timeout=tools.PATIENCE_SECONDS)
    assert copying.returncode == 0 and (tmp_path / "out").read_bytes() == content
    given = shares(out)
    assert sum(share["bytes"] for share in given.values()) == len(content)


def test_a_hung_source_does_not_delay_the_end(copies, tmp_path):
    """Its blocks are requested elsewhere as soon as no other work is left."""
    servers, content = copies
    small = dict(XRD_CPCHUNKSIZE="65536")
    copying = subprocess.Popen([peers.program(), "cp", many(servers), tmp_path / "out"], env=peers.environment(**small))
    tools.wait_until(lambda: copying.poll() is not None or any(e.stat().st_blocks for e in os.scandir(tmp_path)))
    servers[2].process.send_signal(signal.SIGSTOP)
    try:
        assert copying.wait(tools.PATIENCE_SECONDS) == 0
    finally:
        servers[2].process.send_signal(signal.SIGCONT)
    assert (tmp_path / "out").read_bytes() == content


def damage(server, spots):
    """Flips a bit at each of these bytes. The time of the file and the server's metadata do not
    change."""
    path = server.tree / "many"
    stat = os.stat(path)
    with open(path, "r+b") as file:
        for spot in spots:
            file.seek(spot)
            byte = file.read(1)[0] ^ 1
            file.seek(spot)
            file.write(bytes([byte]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_another_file_of_the_same_size_is_omitted(copies, tmp_path):
    """Its pages are consistent, but differ from those of the others."""
    servers, content = copies
    (servers[1].tree / "many").write_bytes(data(len(content), seed=2))
    told = scalla("cp", "--json", many(servers), tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == content
    given = shares(told.out)
    assert given[servers[1].host]["bytes"] == 0 and "not that of the other" in given[servers[1].host]["failed"]
    assert all(given[server.host]["failed"] is None for server in (servers[0], servers[2]))


@pytest.mark.parametrize("to", ["local", "server"])
@pytest.mark.parametrize("liar", [0, 1, 2])
def test_data_of_a_corrupt_source_is_replaced(copies, area_on, tmp_path, liar, to):
    """One bit in each block, damaged after the checksums were computed: the server itself does not
    notice."""
    servers, content = copies
    expected = f"{zlib.adler32(content):08x}"
    assert expected in scalla("cp", "--checksum", "adler32:source", servers[liar].url("/many"), "/dev/null").ok().err
    damage(servers[liar], range(5 * 4096 + 1, len(content), 65536))
    area = area_on(servers[0])
    target = tmp_path / "out" if to == "local" else area.url("out")
    told = scalla("cp", "--json", "--checksum", f"adler32:{expected}", many(servers), target, XRD_CPCHUNKSIZE="1048576").ok()
    assert (tmp_path / "out" if to == "local" else area.local / "out").read_bytes() == content
    failed = {server.host: shares(told.out)[server.host]["failed"] for server in servers}
    assert [host for host, why in failed.items() if why] == [servers[liar].host], failed


def test_all_sources_are_corrupt(copies, tmp_path):
    servers, content = copies
    for number, server in enumerate(servers):
        damage(server, range((2 * number + 1) * 8192 + 1, len(content), 65536))
    scalla("cp", "--checksum", f"adler32:{zlib.adler32(content):08x}", many(servers), tmp_path / "out").fails(1, "adler32")
    assert os.listdir(tmp_path) == []


def test_no_source_is_left(copies, tmp_path):
    servers, _ = copies
    for server in servers:
        (server.tree / "many").unlink()
    scalla("cp", many(servers), tmp_path / "out").fails(1, "no such file")
    assert os.listdir(tmp_path) == []


def test_third_party(area_on):
    with peers.Theirs(settings=TPC) as source, peers.Theirs(settings=TPC) as target:
        here, there = area_on(source), area_on(target)
        # Both servers must see one host under one name: addresses are not resolved here.
        here.url, there.url = (lambda name, url=area.url: url(name).replace("localhost", "127.0.0.1") for area in (here, there))
        content = data(20 * MIB + 3)
        here.put("file", content)
        told = scalla("cp", "--tpc", "only", "--json", "--checksum", "adler32", here.url("file"), there.url("new")).ok()
        assert there.get("new") == content and json.loads(told.out.splitlines()[0])["third_party"]
        scalla("cp", "--tpc", "only", here.url("file"), there.url("new")).fails(1, "exists")
        # The name ends at the `&` in the messages between the servers, and another file has that
        # name.
        here.put("file&more", b"more")
        scalla("cp", "--tpc", "only", here.url("file&more"), there.url("more")).fails(1, "cannot name a source with `&`")
        assert not (there.local / "more").exists()
        scalla("cp", "--tpc", "first", here.url("file&more"), there.url("more")).ok()
        assert (there.local / "more").read_bytes() == b"more"
        # Messages between the servers are text.
        here.mkdir("bytes")
        here.put("bytes/more\udcff", b"bytes")
        scalla("cp", "-r", "--tpc", "only", here.url("bytes"), there.url("bytes")).fails(1, "is not UTF-8")
        scalla("cp", "-r", "-f", "--tpc", "first", here.url("bytes"), there.url("bytes")).ok()
        assert (there.local / "bytes" / "more\udcff").read_bytes() == b"bytes"
        scalla("cp", "--tpc", "only", here.url("nope"), there.url("other")).fails(1, "no such file")
        assert sorted(os.listdir(there.local)) == ["bytes", "more", "new"]


def test_third_party_where_a_server_cannot(area, area_on, theirs, tmp_path):
    """The real server is not configured for it here: the bytes pass through the client with
    `first`, not with `only`."""
    here, there = area_on(theirs), area
    here.put("file", b"content")
    scalla("cp", "--tpc", "only", here.url("file"), there.url("new")).fails(1)
    assert not (there.local / "new").exists()
    scalla("cp", "--tpc", "first", here.url("file"), there.url("new")).ok()
    assert there.get("new") == b"content"
    scalla("cp", "--tpc", "only", here.url("file"), tmp_path / "out").fails(1, "only when both")


@pytest.mark.parametrize("makers", ["ours", "real"])
def test_directories_distributed_over_a_cluster(makers, tmp_path):
    """A manager redirects a listing to one server. A directory contains the files of all servers,
    and no file is removed because it is elsewhere."""
    with clusters.Cluster(clusters.PAIR, makers) as cluster:
        cluster.complete()
        for node, names in ((cluster.s1, ["one", "deep/a"]), (cluster.s2, ["two", "deep/b"])):
            for name in names:
                path = node.tree / "set" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
                for made in (path, path.parent):
                    peers.give(made)
        expected = {name: name.encode() for name in ("one", "two", "deep/a", "deep/b")}
        scalla("cp", "-r", cluster.man.url("/set"), tmp_path / "copied").ok()
        scalla("sync", cluster.man.url("/set"), tmp_path / "synced").ok()
        scalla("sync", "--delete", cluster.man.url("/set"), tmp_path / "synced").ok()
        for directory in ("copied", "synced"):
            assert {name: content for name, content in tree(tmp_path / directory).items() if content is not None} == expected
        (tmp_path / "found").mkdir()
        scalla("cp", cluster.man.url("/set/*o*"), tmp_path / "found").ok()
        assert sorted(os.listdir(tmp_path / "found")) == ["one", "two"]
        scalla("cp", "-r", cluster.man.url("/none"), tmp_path / "x").fails(1, "none")


def tree(directory):
    """Returns names and contents of all files below, and the names of directories."""
    found = {}
    for path in sorted(directory.rglob("*")):
        found[str(path.relative_to(directory))] = path.read_bytes() if path.is_file() else None
    return found


@pytest.mark.parametrize("way", ["up", "down", "between"])
def test_sync(area, area_on, ours, theirs, tmp_path, way):
    other = area_on(theirs if area.server is ours else ours)
    local = tmp_path / "local"
    local.mkdir()
    (source, here), (target, there) = dict(
        up=((local, local), (area.url("t"), area.local / "t")),
        down=((area.url("t"), area.local / "t"), (local, local)),
        between=((area.url("t"), area.local / "t"), (other.url("t"), other.local / "t")),
    )[way]

    for name in ["a", "deep/b", "deep/er/c"]:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(name.encode() * 100)
        os.utime(here / name, (tools.AGED, tools.AGED))
    (here / "empty").mkdir()
    planned = scalla("sync", "--dry-run", source, target).ok().out.splitlines()
    assert len(planned) == 3 and all(line.startswith("copy ") and line.endswith(" B, new)") for line in planned)
    assert not there.exists() or not os.listdir(there)
    scalla("sync", source, target).ok()
    assert tree(there) == tree(here)
    # No work is left, by time and by checksum.
    assert scalla("sync", "-v", source, target).ok().out == ""
    assert scalla("sync", "-v", "--checksum", "adler32", source, target).ok().out == ""
    # The same size, not newer, another content: only the checksum differs.
    (here / "a").write_bytes(b"b" * 100)
    os.utime(here / "a", (tools.AGED - 100, tools.AGED - 100))
    (there / "surplus").mkdir()
    (there / "surplus" / "x").write_bytes(b"x")
    for path in [there / "surplus", there / "surplus" / "x"]:
        peers.give(path)
    assert scalla("sync", "-v", source, target).ok().out == ""
    scalla("sync", "--checksum", "adler32", source, target).ok()
    assert (there / "a").read_bytes() == b"b" * 100 and (there / "surplus" / "x").exists()
    scalla("sync", "--delete", source, target).ok()
    assert tree(there) == tree(here)
    scalla("sync", area.url("none"), tmp_path / "x").fails(1, "is not there")
    scalla("sync", tmp_path / "none", area.url("x")).fails(1, "is not there")
    scalla("sync", f"{source}/a", tmp_path / "x").fails(1, "ot a directory")
