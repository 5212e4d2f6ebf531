"""`scalla cp` with one server of each kind: the results must be those of `xrdcp`, and more."""

import json
import os
import signal
import struct
import subprocess

import pytest

import hollow
import peers
import raw
import tools
from codes import Exit
from tools import data, scalla

MIB = 1024 * 1024
SIZES = [0, 1, 4095, 4097, 2 * MIB - 1, 2 * MIB + 1, 33 * MIB + 5]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("more", [[], ["--no-verify"]], ids=["pages", "plain"])
def test_upload_and_download(area, local, tmp_path, size, more):
    source = local(size=size)
    scalla("cp", *more, source, area.url("file")).ok().silent()
    assert area.get("file") == source.read_bytes()
    scalla("cp", *more, area.url("file"), tmp_path / "back").ok().silent()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["back", "source"]


def test_small_chunks(area, local, tmp_path):
    """Many requests in flight, none of a whole number of pages."""
    source = local(size=3 * MIB + 17)
    small = dict(XRD_CPCHUNKSIZE="70001", XRD_CPPARALLELCHUNKS="16")
    sums = ["--checksum", "adler32", "--checksum", "md5", "--checksum", "crc32c"]
    scalla("cp", *sums, source, area.url("file"), **small).ok()
    assert area.get("file") == source.read_bytes()
    scalla("cp", *sums, area.url("file"), tmp_path / "back", **small).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_from_server_to_server(area, area_on, local, ours, theirs):
    there = area_on(theirs if area.server is ours else ours)
    source = local(size=5 * MIB + 3)
    area.put("file", source.read_bytes())
    scalla("cp", "--checksum", "adler32", area.url("file"), there.url("new/file")).ok()
    assert there.get("new/file") == source.read_bytes()


def test_standard_input_and_output(area):
    content = data(5 * MIB + 1)
    scalla("cp", "-", area.url("file"), input=content).ok()
    assert area.get("file") == content
    result = scalla("cp", area.url("file"), "-").ok()
    assert result.raw == content
    scalla("cp", area.url("file"), "/dev/null").ok()


def test_existing_target_is_kept_without_force(area, local, tmp_path):
    area.put("file", b"precious")
    source = local()
    scalla("cp", source, area.url("file")).fails(1, "exists", "--force")
    assert area.get("file") == b"precious"
    scalla("cp", area.url("file"), source).fails(1, "exists", "--force")
    scalla("cp", "-f", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    area.put("other", b"less")
    scalla("cp", "--force", area.url("other"), source).ok()
    assert source.read_bytes() == b"less"


def test_failures_name_the_file_and_leave_nothing(area, local, tmp_path):
    scalla("cp", area.url("nope"), tmp_path / "out").fails(1, area.url("nope"), "no such file")
    area.mkdir("folder")
    scalla("cp", area.url("folder"), tmp_path / "out").fails(1, "folder")
    scalla("cp", tmp_path / "nope", area.url("file")).fails(1, "nope", "no such file")
    scalla("cp", area.url("x"), tmp_path / "no" / "out").fails(1)
    assert os.listdir(tmp_path) == [] and os.listdir(area.local) == ["folder"]


def test_unreachable_server(tmp_path):
    port = peers.free_port()
    scalla("cp", f"root://localhost:{port}//a", tmp_path / "out", XRD_CONNECTIONRETRY="1", XRD_CONNECTIONWINDOW="2").fails(
        1, f"localhost:{port}", "no connection", "check that the server runs")
    assert os.listdir(tmp_path) == []


def test_checksums(area, local, tmp_path):
    source = local(size=3 * MIB)
    good = scalla("cp", "--checksum", "adler32:print", source, area.url("file")).ok().err.split()
    assert good[0] == "adler32:" and good[2] == area.url("file") and good[3] == str(3 * MIB)
    scalla("cp", "--checksum", f"adler32:{good[1]}", area.url("file"), tmp_path / "back").ok()
    bad = scalla("cp", "--checksum", "adler32:12345678", area.url("file"), tmp_path / "bad")
    bad.fails(1, "adler32", "12345678", good[1])
    scalla("cp", "--checksum", "md5:" + 32 * "0", source, area.url("bad")).fails(1, "md5")
    assert sorted(os.listdir(tmp_path)) == ["back", "source"] and os.listdir(area.local) == ["file"]
    told = scalla("cp", "--json", "--checksum", "crc32c:source", area.url("file"), "/dev/null").ok().out.splitlines()
    first, last = map(json.loads, told)
    assert first["checksums"][0]["of"] == area.url("file") and first["size"] == 3 * MIB
    assert (last["copied"], last["failed"], last["bytes"]) == (1, 0, 3 * MIB)


def test_wrong_checksum_at_the_server(area, local, tmp_path):
    """The file was damaged on the server's disk after its checksum was computed."""
    source = local()
    scalla("cp", "--checksum", "adler32", source, area.url("file")).ok()
    stat = os.stat(area.local / "file")
    content = bytearray(source.read_bytes())
    content[50_000] ^= 1
    (area.local / "file").write_bytes(content)
    os.utime(area.local / "file", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    scalla("cp", "--checksum", "adler32", area.url("file"), tmp_path / "out").fails(1, "damaged")
    assert not (tmp_path / "out").exists()


def test_resume_of_a_download(area, local, tmp_path):
    source = local(size=9 * MIB + 1)
    area.put("file", source.read_bytes())
    (tmp_path / ".out.part").write_bytes(source.read_bytes()[: 4 * MIB + 7])
    told = scalla("cp", "--continue", "--json", "--checksum", "adler32", area.url("file"), tmp_path / "out").ok()
    assert json.loads(told.out.splitlines()[0])["copied"] == 5 * MIB - 6
    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    (tmp_path / ".out2.part").write_bytes(b"x" * 1000)
    scalla("cp", "-c", area.url("file"), tmp_path / "out2").fails(1, "cannot be continued", "not those of the source")
    assert not (tmp_path / "out2").exists()


def test_resume_of_an_upload(area, local, tmp_path):
    source = local(size=9 * MIB + 1)
    area.put("file", source.read_bytes()[: 4 * MIB + 7])
    scalla("cp", "--continue", "--checksum", "adler32", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    told = scalla("cp", "--continue", "--json", source, area.url("file")).ok()
    assert json.loads(told.out.splitlines()[0])["copied"] == 0
    area.put("other", b"y" * (9 * MIB + 1))
    scalla("cp", "--continue", source, area.url("other")).fails(1, "cannot be continued")


def test_files_that_are_not_part_of_the_source_are_not_continued(area, local, tmp_path):
    """However small it is. Zeros may represent writes that did not arrive."""
    source = local(size=MIB)
    area.put("file", source.read_bytes())
    (tmp_path / "mine").write_bytes(b"precious")
    area.put("theirs", b"precious" * 1000)
    scalla("cp", "-c", area.url("file"), tmp_path / "mine").fails(1, "cannot be continued", "not those of the source")
    scalla("cp", "-c", source, area.url("theirs")).fails(1, "cannot be continued", "not those of the source")
    assert (tmp_path / "mine").read_bytes() == b"precious" and area.get("theirs") == b"precious" * 1000
    holey = bytes(65536) + source.read_bytes()[65536:200_000]
    (tmp_path / "part").write_bytes(holey)
    area.put("part", holey)
    scalla("cp", "-c", area.url("file"), tmp_path / "part").ok()
    scalla("cp", "-c", source, area.url("part")).ok()
    assert (tmp_path / "part").read_bytes() == area.get("part") == source.read_bytes()


def test_a_file_is_not_copied_onto_itself(area, local, tmp_path):
    source = local(size=1000)
    content = source.read_bytes()
    area.put("file", content)
    os.symlink(source, tmp_path / "link")
    for options in (["-f"], ["-f", "--in-place"], ["-c"]):
        scalla("cp", *options, source, tmp_path / "link").fails(1, "the same file")
        scalla("cp", *options, area.url("file"), area.url("file")).fails(1, "the same file")
    assert source.read_bytes() == area.get("file") == content


def test_a_file_is_not_copied_onto_itself_under_another_name(area):
    """Neither from its server nor from the file; no lock prevents it."""
    content = data(3 * MIB)
    area.put("file", content)
    os.link(area.local / "file", area.local / "link")
    for target in (area.url("file").replace("localhost", "127.0.0.1"), area.url("link")):
        assert target != area.url("file")
        scalla("cp", "--force", "--coerce", area.url("file"), target).fails(1, "the same file")
        assert area.get("file") == content
    area.put("other", data(5 * MIB, 1))
    scalla("cp", "--force", "--coerce", area.url("file"), area.url("other")).ok()
    scalla("cp", "--force", "--coerce", area.url("file"), area.url("new")).ok()
    assert area.get("other") == area.get("new") == content


def test_existing_directories(area, tmp_path):
    """With any permissions."""
    (tmp_path / "tree/empty").mkdir(parents=True)
    (tmp_path / "tree/file").write_bytes(b"x")
    for name in ("there", "there/empty"):
        area.local.joinpath(name).mkdir()
        area.local.joinpath(name).chmod(0o777)
    scalla("mkdir", "-p", area.url("there/empty")).ok().silent()
    scalla("sync", tmp_path / "tree", area.url("there")).ok().silent()
    scalla("cp", "-r", "-f", tmp_path / "tree/.", area.url("there/")).ok()
    assert area.get("there/file") == b"x"


def test_recursive_both_ways(area, local, tmp_path):
    names = ["a", "deep/b", "deep/er/c", "größe π"]
    for number, name in enumerate(names):
        local(f"tree/{name}", 1000 + number, number)
    (tmp_path / "tree" / "empty").mkdir()
    scalla("cp", "-r", tmp_path / "tree", area.url("")).ok()
    for number, name in enumerate(names):
        assert area.get(f"tree/{name}") == data(1000 + number, number)
    assert (area.local / "tree/empty").is_dir()
    (tmp_path / "back").mkdir()
    scalla("cp", "-r", area.url("tree"), tmp_path / "back").ok()
    scalla("cp", "-r", area.url("tree"), tmp_path / "anew").ok()
    for number, name in enumerate(names):
        assert (tmp_path / "back/tree" / name).read_bytes() == data(1000 + number, number)
        assert (tmp_path / "anew" / name).read_bytes() == data(1000 + number, number)
    assert (tmp_path / "anew/empty").is_dir()
    again = scalla("cp", "-r", "--json", area.url("tree"), tmp_path / "back").fails(1, "exists")
    assert json.loads(again.out.splitlines()[-1])["failed"] == len(names)


def test_wildcards_and_lists(area, tmp_path):
    for name in ["run1/x.root", "run2/x.root", "run2/y.root", "run2/z.txt", "other/x.root"]:
        area.put(name, name.encode())
    (tmp_path / "out").mkdir()
    scalla("cp", area.url("run2/*.root"), tmp_path / "out").ok()
    assert sorted(os.listdir(tmp_path / "out")) == ["x.root", "y.root"]
    scalla("cp", "-f", area.url("run[2-9]/x.*"), tmp_path / "out").ok()
    scalla("cp", area.url("nothing*"), tmp_path / "out").fails(1, "nothing matches")
    (tmp_path / "list").write_text(f"{area.url('run2/z.txt')}\n\n{area.url('run1/x.root')}\n")
    scalla("cp", "--from", tmp_path / "list", f"{tmp_path}/new/").ok()
    assert sorted(os.listdir(tmp_path / "new")) == ["x.root", "z.txt"]


def test_several_sources_need_a_directory(area, local, tmp_path):
    area.put("a", b"a")
    area.put("b", b"b")
    scalla("cp", area.url("a"), area.url("b"), tmp_path / "out").fails(1, "not a directory")
    scalla("cp", area.url("a"), area.url("b"), tmp_path).ok()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_times_and_holes_are_kept(area, tmp_path):
    path = area.local / "sparse"
    with open(path, "wb") as file:
        file.seek(20 * MIB)
        file.write(b"end of the hole")
        file.truncate(40 * MIB)
    path.chmod(0o640)
    peers.give(path)
    os.utime(path, (tools.AGED, tools.AGED))
    scalla("cp", "--preserve", area.url("sparse"), tmp_path / "sparse").ok()
    stat = os.stat(tmp_path / "sparse")
    assert (stat.st_mtime, stat.st_mode & 0o777, stat.st_size) == (tools.AGED, 0o640, 40 * MIB)
    assert stat.st_blocks * 512 < MIB
    scalla("cp", "--checksum", "adler32", tmp_path / "sparse", area.url("again")).ok()
    assert area.get("again") == path.read_bytes()
    assert os.stat(area.local / "again").st_blocks * 512 < MIB


def test_posc_and_names(area, local):
    source = local(size=3 * MIB)
    scalla("cp", "--posc", source, area.url("a&b=c%20#x y")).ok()
    assert area.get("a&b=c%20#x y") == source.read_bytes()


def test_full_disk(area):
    """The message reports it."""
    area.put("file", data(3 * MIB))
    scalla("cp", area.url("file"), "/dev/full").fails(1, "no space left", "free space")


@pytest.mark.parametrize("more", [[], ["--continue"]], ids=["plain", "continue"])
def test_an_interrupt_cleans_up(serve, area_on, tmp_path, more):
    area = area_on(serve())
    area.put("file", data(64 * MIB))
    small = dict(XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="1")
    command = [peers.program(), "cp", *more, area.url("file"), tmp_path / "out"]
    copying = subprocess.Popen([str(word) for word in command], env=peers.environment(**small), stderr=subprocess.PIPE)
    tools.wait_until(lambda: any(os.stat(entry).st_size for entry in os.scandir(tmp_path) if not entry.name.endswith(".note")))
    area.server.process.send_signal(signal.SIGSTOP)
    copying.send_signal(signal.SIGINT)
    _, error = copying.communicate(timeout=tools.PATIENCE_SECONDS)
    area.server.process.send_signal(signal.SIGCONT)
    assert copying.returncode == 130 and b"interrupted" in error
    if not more:
        assert os.listdir(tmp_path) == []
        return
    assert sorted(os.listdir(tmp_path)) == [".out.part", ".out.part.note"]
    scalla("cp", *more, area.url("file"), tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == area.get("file") and os.listdir(tmp_path) == ["out"]


def test_command_line(tmp_path):
    scalla("cp", tmp_path / "a").fails(Exit.USAGE, "where to is missing")
    scalla("cp").fails(Exit.USAGE, "PLACE")
    scalla("cp", "gopher://h//a", "b").fails(Exit.USAGE, "gopher")


class Turncoat(hollow.Manager):
    """A server where an open of `/target` returns the file `/source`, although the status of `/target`
    shows another file."""

    def __init__(self):
        super().__init__(flags=hollow.IS_SERVER)
        self.harm = []

    def _reply(self, code, body, path):
        is_target = path.startswith(b"/target")
        if code == raw.OPEN:
            options = struct.unpack(">2xH", body[:4])[0]
            if is_target and options & raw.O_DELETE:
                self.harm.append("an open that truncates")
            yield raw.OK, bytes(12) + b"7 5 48 99\0"
        elif code == raw.STAT:
            yield raw.OK, b"8 9 48 88\0" if is_target else b"7 5 48 99\0"
        elif code == raw.READ:
            yield raw.OK, b"hello"
        elif code == raw.CLOSE:
            yield raw.OK, b""
        elif code == raw.QUERY:
            yield raw.OK, b"1\nx\n\0"  # query config tpc tpcdlg
        else:
            if code in (raw.TRUNCATE, raw.WRITE, raw.RM):
                self.harm.append(f"request {code}")
            yield self._answer(code)


@pytest.mark.parametrize("options", [["-f"], ["-f", "--coerce"], ["-f", "-x"], ["-f", "--posc"], ["-f", "--tpc", "only"], ["-c"]], ids=" ".join)
def test_a_target_that_becomes_the_source_is_not_truncated(options):
    with Turncoat() as server:
        scalla("cp", *options, f"root://{server.host}//source", f"root://{server.host}//target").fails(1, "the same file")
        assert server.harm == []
