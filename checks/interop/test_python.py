"""The Python client 6.2.1, whose library is also used by ROOT: each call of File, FileSystem and
CopyProcess.

A shorter round with the client 5.5.3 of the distribution is at the end."""

import os
import queue

import pytest
from XRootD import client
from XRootD.client.flags import AccessMode, DirListFlags, MkDirFlags, OpenFlags, PrepareFlags, QueryCode, StatInfoFlags

import peers
from codes import ErrorCode
from tools import data, pattern, run

SIZE = 10_000


def good(answer):
    """Returns the response of a call that must succeed."""
    status, response = answer
    assert status.ok, status.message
    return response


def bad(answer, code):
    """Asserts that a call fails with an error code of the server."""
    status = answer[0]
    assert not status.ok
    assert status.errno == code, status.message


@pytest.fixture
def opened(area):
    """A file of the recorded pattern, open for reading."""
    area.put("file", pattern(SIZE))
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.READ))
        yield file


@pytest.fixture
def written(area):
    """A new file, open for update."""
    with client.File() as file:
        good(file.open(area.url("new"), OpenFlags.NEW | OpenFlags.UPDATE, AccessMode.UR | AccessMode.UW | AccessMode.GR))
        yield file


@pytest.fixture
def filesystem(server):
    return client.FileSystem(f"root://{server.host}")


def test_open_to_read(area):
    area.put("file", b"content")
    with client.File() as file:
        assert not file.is_open()
        good(file.open(area.url("file"), OpenFlags.READ))
        assert file.is_open()
        assert file.get_property("DataServer").endswith(f":{area.server.port}")
        good(file.close())
        assert not file.is_open()


def test_open_of_a_missing_file(area):
    with client.File() as file:
        bad(file.open(area.url("nope"), OpenFlags.READ), ErrorCode.NOT_FOUND)


def test_open_of_a_directory(area):
    area.mkdir("folder")
    with client.File() as file:
        bad(file.open(area.url("folder"), OpenFlags.READ), ErrorCode.IS_DIRECTORY)


def test_open_new(area):
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.NEW, AccessMode.UR | AccessMode.UW | AccessMode.GR | AccessMode.OR))
        good(file.write(b"x"))
        good(file.close())
        bad(file.open(area.url("file"), OpenFlags.NEW), ErrorCode.IT_EXISTS)
    assert area.get("file") == b"x"
    assert os.stat(area.local / "file").st_mode & 0o777 == 0o644


def test_open_delete(area):
    area.put("file", b"long old content")
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.DELETE))
        assert area.get("file") == b""
        good(file.write(b"new"))
    assert area.get("file") == b"new"


def test_open_update(area):
    area.put("file", b"old content")
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.UPDATE))
        good(file.write(b"new", 0))
        assert good(file.read(0, 20)) == b"new content"
    assert area.get("file") == b"new content"


def test_open_update_of_a_missing_file(area):
    with client.File() as file:
        bad(file.open(area.url("nope"), OpenFlags.UPDATE), ErrorCode.NOT_FOUND)


def test_open_write(area):
    area.put("file", b"old content")
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.WRITE))
        good(file.write(b"new", 0))
    assert area.get("file") == b"new content"


def test_open_makes_parents(area):
    with client.File() as file:
        good(file.open(area.url("a/b/file"), OpenFlags.NEW | OpenFlags.MAKEPATH))
    assert area.get("a/b/file") == b""


@pytest.mark.parametrize("flag", ["FORCE", "NOWAIT", "REFRESH", "REPLICA", "SEQIO"])
def test_open_with_hints(area, flag):
    area.put("file", b"content")
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.READ | getattr(OpenFlags, flag)))
        assert good(file.read()) == b"content"


def test_open_posc(area):
    with client.File() as file:
        good(file.open(area.url("file"), OpenFlags.NEW | OpenFlags.POSC))
        good(file.write(b"content"))
        assert good(file.stat(force=True)).flags & StatInfoFlags.POSC_PENDING
        good(file.close())
    assert area.get("file") == b"content"
    stat = good(client.FileSystem(f"root://{area.server.host}").stat(area / "file"))
    assert not stat.flags & StatInfoFlags.POSC_PENDING


def test_second_writer_is_locked_out(area):
    area.put("file", b"content")
    other = area.server.url(area / "file").replace("root://", "root://other@")
    with client.File() as reader, client.File() as writer, client.File() as forced:
        good(reader.open(area.url("file"), OpenFlags.READ))
        bad(writer.open(other, OpenFlags.UPDATE), ErrorCode.FILE_LOCKED)
        good(forced.open(other, OpenFlags.UPDATE | OpenFlags.FORCE))


def test_read(opened):
    assert good(opened.read()) == pattern(SIZE)
    assert good(opened.read(100, 200)) == pattern(SIZE)[100:300]
    assert good(opened.read(SIZE - 10, 100)) == pattern(SIZE)[-10:]
    assert good(opened.read(SIZE, 100)) == b""
    assert good(opened.read(SIZE + 5000, 100)) == b""
    assert good(opened.read(0, 1)) == pattern(1)


def test_read_of_a_large_file(area):
    content = data(20_000_001)
    area.put("large", content)
    with client.File() as file:
        good(file.open(area.url("large"), OpenFlags.READ))
        assert good(file.read()) == content
        assert good(file.read(4095, 10_000_000)) == content[4095:10_004_095]


def test_readline_and_iteration(area):
    lines = [b"first\n", b"second\n", b"\n", b"x" * 5000 + b"\n", b"last without end"]
    area.put("text", b"".join(lines))
    with client.File() as file:
        good(file.open(area.url("text"), OpenFlags.READ))
        assert file.readline() == "first\n"
        assert file.readline() == "second\n"
    with client.File() as file:
        good(file.open(area.url("text"), OpenFlags.READ))
        assert [line.encode() for line in file] == lines
    with client.File() as file:
        good(file.open(area.url("text"), OpenFlags.READ))
        assert [line.encode() for line in file.readlines()] == lines


def test_readchunks(opened):
    chunks = list(opened.readchunks(offset=5, chunksize=3000))
    assert [len(chunk) for chunk in chunks] == [3000, 3000, 3000, 995]
    assert b"".join(chunks) == pattern(SIZE)[5:]


def test_write_and_sync(area, written):
    good(written.write(b"0123456789"))
    good(written.write(b"ABC", offset=3))
    good(written.write(b"tail", offset=20))
    good(written.write(b"shortened", offset=0, size=2))
    good(written.sync())
    assert area.get("new") == b"sh2ABC6789" + bytes(10) + b"tail"


def test_truncate(area, written):
    good(written.write(b"0123456789"))
    good(written.truncate(4))
    good(written.sync())
    assert area.get("new") == b"0123"
    good(written.truncate(8))
    assert good(written.read(0, 100)) == b"0123" + bytes(4)


def test_large_writes(area):
    content = data(20_000_001)
    with client.File() as file:
        good(file.open(area.url("new"), OpenFlags.NEW))
        for offset in range(0, len(content), 1_234_567):
            good(file.write(content[offset:offset + 1_234_567], offset))
        good(file.close())
    assert area.get("new") == content


def test_vector_read(opened):
    wanted = [(0, 10), (4000, 200), (SIZE - 5, 5), (17, 1), (100, 5000)]
    info = good(opened.vector_read(wanted))
    assert info.size == sum(length for _, length in wanted)
    assert [(chunk.offset, chunk.length, chunk.buffer) for chunk in info.chunks] == [
        (offset, length, pattern(SIZE)[offset:offset + length]) for offset, length in wanted]


def test_vector_read_past_the_end(opened):
    assert not opened.vector_read([(SIZE - 5, 10)])[0].ok


def test_stat(opened):
    for force in (False, True):
        stat = good(opened.stat(force=force))
        assert stat.size == SIZE
        assert stat.flags == StatInfoFlags.IS_READABLE | StatInfoFlags.IS_WRITABLE
        assert int(stat.id) > 0


def test_fcntl_and_visa(opened):
    """Plug-ins of the file do not exist, which is a clean refusal."""
    bad(opened.fcntl("nothing"), ErrorCode.UNSUPPORTED)
    bad(opened.visa(), ErrorCode.UNSUPPORTED)


def test_file_attributes(area, written):
    good(written.write(b"x"))
    assert all(status["ok"] for _, status in good(written.set_xattr([("a", "1"), ("b", "two words")])))
    read = good(written.get_xattr(["a", "b", "c"]))
    assert [(name, value) for name, value, status in read if status["ok"]] == [("a", "1"), ("b", "two words")]
    assert sorted((name, value) for name, value, _ in good(written.list_xattr())) == [("a", "1"), ("b", "two words")]
    assert [status["ok"] for _, status in good(written.del_xattr(["a", "c"]))] == [True, False]
    assert [name for name, _, _ in good(written.list_xattr())] == ["b"]


def test_properties(opened):
    assert opened.set_property("ReadRecovery", "false")
    assert opened.get_property("ReadRecovery") == "false"
    assert opened.get_property("LastURL")


def test_asynchronous_calls(opened):
    """Many reads in flight, answered in any order."""
    answers = queue.Queue()
    for number in range(200):
        status = opened.read(number * 7, 50, callback=lambda status, response, hosts, number=number: answers.put((number, status.ok, response)))
        assert status.ok
    for _ in range(200):
        number, ok, response = answers.get(timeout=30)
        assert ok and response == pattern(SIZE)[number * 7:number * 7 + 50]


def test_clone(ours, area_on):
    """Ranges of one file copied into another by the server."""
    area = area_on(ours)
    area.put("source", pattern(SIZE))
    with client.File() as source, client.File() as target:
        good(source.open(area.url("source"), OpenFlags.READ))
        good(target.open(area.url("target"), OpenFlags.NEW | OpenFlags.UPDATE))
        ranges = [(0, 4096), (4096, 0)]
        good(target.clone([dict(src_file=source, src_offset=at, src_length=4096, dest_offset=to) for at, to in ranges]))
        assert good(target.read(0, 8192)) == pattern(SIZE)[4096:8192] + pattern(SIZE)[:4096]


def test_ping_and_protocol(filesystem):
    assert filesystem.ping()[0].ok
    answer = good(filesystem.protocol())
    assert answer.version >= 0x500
    assert answer.hostinfo & 1


def test_filesystem_stat(area, filesystem):
    path = area.put("file", pattern(SIZE))
    stat = good(filesystem.stat(path))
    assert (stat.size, stat.flags) == (SIZE, StatInfoFlags.IS_READABLE | StatInfoFlags.IS_WRITABLE)
    assert good(filesystem.stat(area.path)).flags & StatInfoFlags.IS_DIR
    bad(filesystem.stat(area / "nope"), ErrorCode.NOT_FOUND)


def test_statvfs(area, filesystem):
    answer = good(filesystem.statvfs(area.path))
    assert answer.nodes_rw == 1
    assert answer.free_rw > 0
    assert 0 <= answer.utilization_rw <= 100


@pytest.mark.parametrize("flags", [DirListFlags.NONE, DirListFlags.STAT, DirListFlags.LOCATE, DirListFlags.MERGE | DirListFlags.STAT, DirListFlags.ZIP])
def test_dirlist(area, filesystem, flags):
    for name in ("a", "b", "größe"):
        area.put(name, name.encode() * 10)
    area.mkdir("folder")
    listing = good(filesystem.dirlist(area.path, flags))
    assert sorted(entry.name for entry in listing) == ["a", "b", "folder", "größe"]
    if flags & DirListFlags.STAT:
        sizes = {entry.name: entry.statinfo.size for entry in listing}
        assert sizes["a"] == 10 and sizes["größe"] == len("größe".encode()) * 10


def test_dirlist_recursive(area, filesystem):
    area.put("top/sub/deep/file", b"x")
    area.put("top/other", b"x")
    listing = good(filesystem.dirlist(area / "top", DirListFlags.RECURSIVE | DirListFlags.STAT))
    assert {entry.name.strip("/").rsplit("/", 1)[-1] for entry in listing} == {"sub", "deep", "file", "other"}


def test_dirlist_of_a_missing_and_an_empty_directory(area, filesystem):
    bad(filesystem.dirlist(area / "nope"), ErrorCode.NOT_FOUND)
    area.mkdir("empty")
    for flags in (DirListFlags.NONE, DirListFlags.STAT):
        assert good(filesystem.dirlist(area / "empty", flags)).size == 0


def test_dirlist_of_many(area, filesystem):
    """Several frames."""
    for number in range(3000):
        (area.local / f"a-rather-long-name-of-a-file-{number}").touch()
    assert good(filesystem.dirlist(area.path)).size == 3000
    assert good(filesystem.dirlist(area.path, DirListFlags.STAT)).size == 3000


def test_locate(area, filesystem):
    path = area.put("file", b"x")
    for locate in (filesystem.locate, filesystem.deeplocate):
        (location,) = list(good(locate(path, OpenFlags.REFRESH)))
        assert location.address.endswith(f":{area.server.port}")
        assert location.is_server and not location.is_manager


def test_mkdir_rmdir(area, filesystem):
    assert filesystem.mkdir(area / "a", mode=AccessMode.UR | AccessMode.UW | AccessMode.UX)[0].ok
    assert os.stat(area.local / "a").st_mode & 0o777 == 0o700
    assert filesystem.mkdir(area / "x/y/z", MkDirFlags.MAKEPATH)[0].ok
    bad(filesystem.mkdir(area / "m/n"), ErrorCode.NOT_FOUND)
    assert filesystem.rmdir(area / "x/y/z")[0].ok
    assert not filesystem.rmdir(area / "x")[0].ok


def test_rm_mv_chmod_truncate(area, filesystem):
    path = area.put("file", pattern(SIZE))
    assert filesystem.truncate(path, 100)[0].ok
    assert area.get("file") == pattern(100)
    assert filesystem.chmod(path, AccessMode.UR | AccessMode.UW | AccessMode.GR)[0].ok
    assert os.stat(area.local / "file").st_mode & 0o777 == 0o640
    assert filesystem.mv(path, area / "moved")[0].ok
    assert area.get("moved") == pattern(100)
    assert filesystem.rm(area / "moved")[0].ok
    bad(filesystem.rm(area / "moved"), ErrorCode.NOT_FOUND)


def test_queries(area, filesystem):
    path = area.put("file", b"123456789")
    assert good(filesystem.query(QueryCode.CHECKSUM, path)).rstrip(b"\0").split() == [b"adler32", b"091e01de"]
    assert good(filesystem.query(QueryCode.CONFIG, "readv_iov_max")).strip() == b"1024"
    assert b"oss.free=" in good(filesystem.query(QueryCode.SPACE, area.path))
    assert b"oss.used=9&" in good(filesystem.query(QueryCode.XATTR, path))
    assert good(filesystem.query(QueryCode.STATS, "a")).startswith(b"<statistics")
    assert filesystem.query(QueryCode.CHECKSUMCANCEL, path)[0].ok
    bad(filesystem.query(QueryCode.OPAQUE, "x"), ErrorCode.UNSUPPORTED)
    bad(filesystem.query(QueryCode.OPAQUEFILE, path), ErrorCode.UNSUPPORTED)


def test_prepare(area, filesystem):
    path = area.put("file", b"x")
    request = good(filesystem.prepare([path], PrepareFlags.STAGE)).rstrip(b"\0")
    assert request
    good(filesystem.prepare([path], PrepareFlags.STAGE | PrepareFlags.FRESH | PrepareFlags.WRITEMODE | PrepareFlags.COLOCATE, priority=3))
    good(filesystem.prepare([path], PrepareFlags.EVICT))


def test_sendinfo(filesystem):
    assert filesystem.sendinfo("something to remember")[0].ok


def test_filesystem_attributes(area, filesystem):
    path = area.put("file", b"x")
    assert all(status["ok"] for _, status in good(filesystem.set_xattr(path, [("a", "1"), ("b", "")])))
    assert [(name, value) for name, value, status in good(filesystem.get_xattr(path, ["a", "nope"])) if status["ok"]] == [("a", "1")]
    assert sorted(name for name, _, _ in good(filesystem.list_xattr(path))) == ["a", "b"]
    assert [status["ok"] for _, status in good(filesystem.del_xattr(path, ["a"]))] == [True]


def test_filesystem_copy_and_cat(area, filesystem, tmp_path, capfd):
    area.put("file", b"to be shown")
    assert filesystem.copy(area.url("file"), str(tmp_path / "out"))[0].ok
    assert (tmp_path / "out").read_bytes() == b"to be shown"
    filesystem.cat(area / "file")
    assert "to be shown" in capfd.readouterr().out


class Progress(client.utils.CopyProgressHandler):
    """Records the progress of a copy."""

    def __init__(self, stop=False):
        self.calls = []
        self.stop = stop

    def begin(self, job, total, source, target):
        self.calls.append(("begin", job, total))

    def update(self, job, processed, total):
        self.calls.append(("update", processed, total))

    def end(self, job, results):
        self.calls.append(("end", job, results["status"].ok))

    def should_cancel(self, job):
        return self.stop


def test_copy_process(area, tmp_path):
    """Upload and download of several jobs with progress."""
    content = data(20_000_001)
    (tmp_path / "source").write_bytes(content)
    process = client.CopyProcess()
    for number in range(3):
        process.add_job(str(tmp_path / "source"), area.url(f"sub/{number}"), mkdir=True, posc=number == 1, chunksize=1 << 20, checksummode="end2end", checksumtype="adler32")
    assert process.prepare().ok
    progress = Progress()
    status, results = process.run(progress)
    assert status.ok, status.message
    assert all(result["status"].ok for result in results)
    for number in range(3):
        assert area.get(f"sub/{number}") == content
    assert [call for call in progress.calls if call[0] == "begin"] == [("begin", number, 3) for number in (1, 2, 3)]
    assert [call for call in progress.calls if call[0] == "end"] == [("end", number, True) for number in (1, 2, 3)]
    assert max(call[1] for call in progress.calls if call[0] == "update") == len(content)
    process = client.CopyProcess()
    process.add_job(area.url("sub/1"), str(tmp_path / "back"), force=True)
    process.parallel(2)
    process.add_job(area.url("sub/2"), str(tmp_path / "back2"))
    assert process.prepare().ok
    assert process.run()[0].ok
    assert (tmp_path / "back").read_bytes() == content and (tmp_path / "back2").read_bytes() == content


def test_copy_process_cancelled(area, tmp_path):
    """A cancelled copy leaves no complete file."""
    (tmp_path / "source").write_bytes(data(50_000_000))
    process = client.CopyProcess()
    process.add_job(str(tmp_path / "source"), area.url("target"), posc=True, chunksize=1 << 16)
    assert process.prepare().ok
    status, _ = process.run(Progress(stop=True))
    assert not status.ok


def test_client_of_the_distribution(area):
    """The Python client 5.5.3, in a process of its own."""
    area.put("file", pattern(SIZE))
    run(["/usr/bin/python3", peers.REPOSITORY / "checks/interop" / "python5.py", f"root://{area.server.host}", area.path]).ok()
    assert area.get("made/by-5") == pattern(100_000)
