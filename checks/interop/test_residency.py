"""Staging of missing files: a directory is the tape, and a shell script of the site copies from it.

The real server leaves staging to daemons of its own, so these tests are about ours only. Its clients are
the real ones."""

import contextlib
import os
import re
import sqlite3
import struct
import subprocess
import zlib

import pytest

import peers
import raw
import tapes
from tapes import is_running, names
from tools import XRDCP, data, wait_until, xrdcp, xrdfs

# Copies $1 to $2 in two steps. Between them it waits as long as there is a file `hold` beside it.
COPY = """\
#!/bin/sh
cd "${0%/*}"
echo "$1" >> runs
[ -e broken ] && { echo "no drive is free"; exit 5; }
[ -e "$1" ] || exit 2
head -c 1000 "$1" > "$2"
while [ -e hold ]; do sleep 0.05; done
cat "$1" > "$2"
"""
# Never ends, and neither does a process that it starts.
HANG = """\
#!/bin/sh
sleep 600 &
echo $! $$ >> "${0%/*}/runs"
sleep 600
"""


@pytest.fixture
def tape():
    with tapes.tape(copy=COPY, hang=HANG) as tape:
        yield tape


@pytest.fixture
def stage(begin):
    """Starts a server that stages all missing files: `stage(settings)`."""
    return lambda settings: begin(peers.Linked(settings=settings, export="/ stage"))


def test_a_missing_file_comes_from_tape(tape, stage, tmp_path):
    content = data(3_000_000)
    tape.put("store/deep/file", content)
    server = stage(tape.copies_in())
    target = tmp_path / "target"
    xrdcp(server.url("/store/deep/file"), target).ok()
    assert target.read_bytes() == content
    assert tape.runs() == [str(tape.files / "store/deep/file")]
    local = server.tree / "store/deep/file"
    assert local.read_bytes() == content and names(local.parent) == ["file"]
    # The time of the copy is that of the file, so a real purge daemon counts it as migrated.
    assert os.getxattr(local, "user.XrdFrm.Cpy") == struct.pack(">q16x", int(local.stat().st_mtime))
    xrdcp("--force", server.url("/store/deep/file"), target).ok()
    assert len(tape.runs()) == 1


# Copies $2 to $3, and writes its first argument.
STAGE = """\
#!/bin/sh
echo "$1 $2" >> "${0%/*}/runs"
[ -e "$2" ] || exit 2
cat "$2" > "$3"
"""


def test_the_program_of_stagecmd_brings_files(stage, tmp_path):
    with tapes.tape(stage=STAGE) as tape:
        content = data(100_000)
        tape.put("d/file", content)
        server = stage(f"oss.remoteroot {tape.files}\noss.stagecmd sync {tape.directory}/stage \\$x\noss.xfr 4\n")
        xrdcp(server.url("/d/file"), tmp_path / "target").ok()
        assert (tmp_path / "target").read_bytes() == content
        assert names(server.tree / "d") == ["file"]
        xrdcp(server.url("/none"), tmp_path / "target").fails(54, "[3011]")
        assert tape.runs() == [f"$x {tape.files}/d/file", f"$x {tape.files}/none"]


# Makes files whose name has `new` in it, and copies others.
MAKE = """\
#!/bin/sh
echo "$1" >> "${0%/*}/runs"
case $1 in *new*) echo made > "$2";; *) [ -e "$1" ] || exit 2; cat "$1" > "$2";; esac
"""


@pytest.mark.parametrize("server_class", [peers.Linked, peers.Theirs])
def test_the_program_of_stagecmd_makes_new_files(begin, tmp_path, server_class):
    """`xrdcp --force` replaces a file that is there, and `xrdcp` does not."""
    with tapes.tape(make=MAKE) as tape:
        tape.put("old", b"old")
        settings = f"oss.remoteroot {tape.files}\noss.stagecmd creates {tape.directory}/make\n"
        # The real server estimates the time that clients wait.
        server = begin(server_class(settings=settings + ("oss.xfr 1 900m 1\n" if server_class is peers.Theirs else ""), export="/ stage"))
        source = tmp_path / "source"
        source.write_bytes(b"content")
        xrdcp(source, server.url("/new-one")).fails(54, "[3018] Unable to create /new-one; file exists")
        assert (server.tree / "new-one").read_bytes() == b"made\n"
        xrdcp("--force", source, server.url("/new-two")).ok()
        assert (server.tree / "new-two").read_bytes() == b"content"
        xrdcp("--force", source, server.url("/old")).ok()
        assert (server.tree / "old").read_bytes() == b"content" and tape.content("old") == b"old"
        assert tape.runs() == [f"{tape.files}/{name}" for name in ("new-one", "new-two", "old")]
        if server_class is peers.Linked:
            # The real one runs the program until the client gives up.
            xrdcp("--force", source, server.url("/none")).fails(54, "[3011] Unable to create /none; no such file")
            assert names(server.tree) == ["new-one", "new-two", "old"]


# Knows the checksum of each file: the content of the file `sum` beside it.
SUMS = """\
#!/bin/sh
[ -e "$2" ] || { echo 2; exit; }
echo 0
echo "$(stat -c '%A %h %u %g %X %Z %Y %s %o %b' "$2") adler32:$(cat "${0%/*}/sum")"
"""


def test_a_staged_file_has_the_checksum_of_mass_storage(stage, tmp_path):
    with tapes.tape(copy=COPY, sums=SUMS) as tape:
        content = data(3_000_000)
        wrong, right = ("%08x" % zlib.adler32(each) for each in (content[1:], content))
        tape.put("file", content)
        (tape.directory / "sum").write_text(wrong)
        server = stage(tape.copies_in(more=f"oss.rsscmd {tape.directory}/sums\noss.xfr deny 0\nxrootd.chksum adler32\n"))
        words = f"the file on disk has the adler32 checksum {right}, but the one in mass storage {wrong}"
        xrdcp(server.url("/file"), tmp_path / "target").fails(54, words)
        assert names(server.tree) == [] and len(tape.runs()) == 2, "the same difference twice is final"
        (tape.directory / "sum").write_text(right)
        xrdcp("--cksum", f"adler32:{right}", server.url("/file"), tmp_path / "target").ok()
        assert (tmp_path / "target").read_bytes() == content
        # The stored checksum has XRootD's form, and is the one that clients get.
        stored = os.getxattr(server.tree / "file", "user.XrdCks.adler32")
        assert stored[:8] == b"adler32\0" and stored[32:36].hex() == right
        assert right in xrdfs(server, "query", "checksum", "/file").ok().out


def test_a_file_that_is_not_on_tape_does_not_exist(tape, stage, tmp_path):
    server = stage(tape.copies_in())
    for _ in range(2):
        xrdcp(server.url("/none"), tmp_path / "target").fails(54, "[3011]", "no such file or directory")
    # The second client was refused without a copy.
    assert len(tape.runs()) == 1 and names(server.tree) == []
    # What clients create is not staged.
    source = tmp_path / "source"
    source.write_bytes(b"new")
    xrdcp(source, server.url("/none")).ok()
    assert (server.tree / "none").read_bytes() == b"new"


def test_clients_of_one_file_wait_for_one_copy(tape, stage):
    content = data(5000)
    tape.put("file", content)
    server = stage(tape.copies_in())
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw.Connection(server)) for _ in range(100)]
        with tape.flag("hold"):
            opens = [connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/file") for connection in connections]
            # Each client is told to wait, and can do so for longer than for other answers.
            assert {connection.frame().status for connection in connections} == {raw.WAITRESP}
            wait_until(lambda: names(server.tree))
            assert not (server.tree / "file").exists()
        for connection, stream in zip(connections, opens):
            # The open is to be repeated at once.
            frame = connection.answer()
            assert (frame.stream, frame.status, frame.body[:4]) == (stream, raw.WAIT, bytes(4))
            assert connection.read(connection.open("/file"), 0, 6000) == content
    assert len(tape.runs()) == 1


def test_a_file_on_disk_is_opened_at_once_also_for_update(tape, stage):
    """A client that is told to wait has to open the file again, and must find a handle then."""
    tape.put("file", b"old")
    server = stage(tape.copies_in())
    with raw.Connection(server) as connection:
        update = raw.O_UPDT
        first = connection.start(raw.OPEN, struct.pack(">HH", 0, update), b"/file")
        assert connection.frame().status == raw.WAITRESP
        again = connection.answer()
        assert (again.stream, again.status, again.body[:4]) == (first, raw.WAIT, bytes(4))
        for _ in range(3):
            stream = connection.start(raw.OPEN, struct.pack(">HH", 0, update), b"/file")
            frame = connection.frame()
            assert (frame.stream, frame.status) == (stream, raw.OK)
            connection.close(frame.body[:4])
    assert len(tape.runs()) == 1


def test_half_a_file_is_never_served(tape, stage, tmp_path):
    """The server is killed in the middle of a copy. Its program goes on, and nobody else writes the file then."""
    content = data(200_000)
    tape.put("file", content)
    server = stage(tape.copies_in())
    target = tmp_path / "target"
    with contextlib.ExitStack() as stack:
        stack.enter_context(tape.flag("hold"))
        client = subprocess.Popen([XRDCP, "--nopbar", server.url("/file"), target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(client.wait)
        stack.callback(client.kill)
        wait_until(lambda: [path for path in server.tree.iterdir() if path.stat().st_size == 1000])
        # Clients see neither the name of the temporary file nor that of the file.
        (name,) = names(server.tree)
        assert xrdfs(server, "ls", "/").ok().out == ""
        xrdfs(server, "stat", f"/{name}").fails(54, "no such file")
        xrdfs(server, "rm", f"/{name}").fails(54)
        server.restart()
        wait_until(lambda: "still runs" in server.output() or len(tape.runs()) > 1)
        assert names(server.tree) == [name] and len(tape.runs()) == 1
    # The request was not lost.
    wait_until(lambda: (server.tree / "file").exists())
    assert (server.tree / "file").read_bytes() == content and names(server.tree) == ["file"]
    xrdcp("--force", server.url("/file"), target).ok()
    assert target.read_bytes() == content and len(tape.runs()) == 2


def test_a_failing_program_is_named_with_its_reason(tape, stage, tmp_path):
    (tape.directory / "broken").touch()
    server = stage(tape.copies_in())
    failed = xrdcp(server.url("/file"), tmp_path / "target").fails(54, "Unable to open /file; staging failed")
    assert "staging failed: copy failed with status 5: no drive is free" in failed.all
    assert len(tape.runs()) == 3, "it was tried again"
    xrdcp(server.url("/file"), tmp_path / "target").fails(54, "no drive is free")
    assert len(tape.runs()) == 3 and names(server.tree) == []


def test_prepared_files_survive_an_outage(tape, stage):
    """All tries that a client waits for fail. The request is tried again, and a new one is refused with the reason."""
    tape.put("file", data(100))
    broken = tape.directory / "broken"
    broken.touch()
    server = stage(tape.copies_in())
    request = xrdfs(server, "prepare", "-s", "/file").ok().out.strip()
    wait_until(lambda: len(tape.runs()) >= 3, 60)
    assert xrdfs(server, "query", "prepare", request, "/file").ok().out.split()[3] == "1"
    broken.unlink()
    # A restart makes all of them ready.
    server.restart()
    wait_until(lambda: (server.tree / "file").exists())
    request = xrdfs(server, "prepare", "-s", "/none").ok().out.strip()
    # The client had its id before the file failed.
    wait_until(lambda: "/none: no such file in mass storage" in xrdfs(server, "query", "prepare", request, "/none").ok().out)
    first = xrdfs(server, "query", "prepare", request, "/none").ok().out.splitlines()[0].split()
    assert (first[0], first[2:4]) == (request, ["0", "0"]), first
    xrdfs(server, "prepare", "-s", "/file", "/none").fails(54, "/none: no such file in mass storage")


def test_a_failed_file_is_shown_for_the_time_of_the_configuration(tape, stage):
    server = stage(tape.copies_in(more="xrootd.prep keep 1\n"))
    request = xrdfs(server, "prepare", "-s", "/none").ok().out.strip()
    wait_until(lambda: "No information found" in xrdfs(server, "query", "prepare", request, "/none").ok().out)
    assert tape.runs() == [f"{tape.files}/none"]


def test_a_program_that_hangs_is_ended_with_its_group(tape, stage, tmp_path):
    server = stage(tape.copies_in("hang $SRC $DST", before="timeout 1"))
    xrdcp(server.url("/file"), tmp_path / "target").fails(54, "hang was ended by its time limit of 1 s")
    processes = " ".join(tape.runs()).split()
    assert len(processes) == 6
    wait_until(lambda: not any(map(is_running, processes)))
    assert names(server.tree) == []


def test_a_program_that_outlives_the_server_keeps_its_limits(tape, stage):
    """The server is killed while three programs hang. One has a cancelled request, one is over its time."""
    hang = "hang $SRC $DST"
    server = stage(tape.copies_in(hang, before="timeout 10", more="frm.xfr.copymax 3\n"))
    cancelled = xrdfs(server, "prepare", "-s", "/cancelled").ok().out.strip()
    wait_until(lambda: len(tape.runs()) == 1)
    (programs,) = (line.split() for line in tape.runs())
    server.restart()
    wait_until(lambda: "still runs" in server.output())
    assert all(map(is_running, programs))
    xrdfs(server, "prepare", "-a", cancelled).ok()
    wait_until(lambda: not any(map(is_running, programs)))
    # Nothing is left of the copy.
    wait_until(lambda: names(server.tree) == [])
    xrdfs(server, "prepare", "-s", "/late").ok()
    wait_until(lambda: len(tape.runs()) == 2)
    programs = tape.runs()[1].split()
    server.restart()
    wait_until(lambda: not any(map(is_running, programs)))
    wait_until(lambda: "the time limit ends the copy program of an earlier run" in server.output())
    # The request was not lost.
    wait_until(lambda: len(tape.runs()) == 3)


def test_a_client_that_left_costs_no_copy(tape, stage):
    tape.put("file", data(100))
    tape.put("first", data(100))
    server = stage(tape.copies_in(more="frm.xfr.copymax 1\n"))
    with tape.flag("hold"):
        xrdfs(server, "prepare", "-s", "/first").ok()
        wait_until(lambda: tape.runs())
        queue = sqlite3.connect(f"file:{server.work}/admin/frm/queue.sqlite?mode=ro", uri=True)
        entries = lambda: queue.execute("SELECT count(*) FROM entries").fetchone()[0]
        with raw.Connection(server) as connection:
            connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/file")
            assert connection.frame().status == raw.WAITRESP
            # The answer does not wait for the record.
            wait_until(lambda: entries() == 2)
        wait_until(lambda: entries() == 1)
        queue.close()
    wait_until(lambda: names(server.tree) == ["first"])
    assert len(tape.runs()) == 1


def test_an_orderly_end_of_the_server_ends_copies(tape, stage):
    tape.put("file", data(100))
    server = stage(tape.copies_in("hang $SRC $DST"))
    request = xrdfs(server, "prepare", "-s", "/file").ok().out.strip()
    wait_until(lambda: tape.runs())
    programs = tape.runs()[0].split()
    assert server.stop() == 0
    assert not any(map(is_running, programs))
    server.start()
    assert xrdfs(server, "query", "prepare", request, "/file").ok().out.split()[3] == "1"
    wait_until(lambda: len(tape.runs()) == 2)


def test_a_file_on_tape_is_offline(tape, stage):
    tape.put("file", data(1234))
    (tape.files / "directory").mkdir()
    server = stage(tape.copies_in(more=f"oss.rsscmd {tape.directory}/status\n"))
    offline = xrdfs(server, "stat", "/file").ok().out
    assert re.search(r"Size: +1234\b", offline) and "Offline" in offline
    assert "IsDir" in xrdfs(server, "stat", "/directory").ok().out
    xrdfs(server, "stat", "/none").fails(54, "no such file")
    assert tape.runs() == []
    xrdfs(server, "cat", "/file").ok()
    assert "Offline" not in xrdfs(server, "stat", "/file").ok().out


def test_one_program_answers_all_questions_about_the_tape_line_by_line(tape, stage):
    program = tape.directory / "answers"
    program.write_text(
        "#!/bin/sh\necho start >> \"${0%/*}/starts\"\n"
        "while read -r verb name; do \"${0%/*}/status\" \"$verb\" \"$name\" | head -n 2; done\n"
    )
    program.chmod(0o755)
    tape.put("a file", data(1234))
    server = stage(tape.copies_in(more=f"oss.rsscmd |{program}\n"))
    for _ in range(5):
        offline = xrdfs(server, "stat", "/a file").ok().out
        assert re.search(r"Size: +1234\b", offline) and "Offline" in offline
        xrdfs(server, "stat", "/none").fails(54, "no such file")
    starts = tape.directory / "starts"
    assert len(starts.read_text().split()) == 1
    # The size that a copy must have comes from a process of its own.
    xrdfs(server, "cat", "/a file").ok()
    assert len(starts.read_text().split()) == 2


def test_prepared_files_come_without_an_open(tape, stage):
    for name in ("a", "b", "c"):
        tape.put(name, data(100))
    server = stage(tape.copies_in())
    with tape.flag("hold"):
        request = xrdfs(server, "prepare", "-s", "-p", "1", "/a", "/b").ok().out.strip()
        other = xrdfs(server, "prepare", "-s", "/b", "/c").ok().out.strip()
        queued = xrdfs(server, "query", "prepare", request, "/a", "/b").ok().out.split()
        assert queued[0] == request and queued[2:4] == ["1", "2"], queued
        wait_until(lambda: len(tape.runs()) == 2)
        # The copy of a ends, that of b is wanted by the other request as well.
        xrdfs(server, "prepare", "-a", request).ok()
        wait_until(lambda: len(tape.runs()) == 3)
        assert "No information found" in xrdfs(server, "query", "prepare", request, "/a").ok().out
        # A request is durable before its id is returned.
        server.restart()
        assert xrdfs(server, "query", "prepare", other, "/b").ok().out.split()[3] == "2"
    wait_until(lambda: names(server.tree) == ["b", "c"])
    wait_until(lambda: "No information found" in xrdfs(server, "query", "prepare", other, "/b").ok().out)


def test_wrong_settings_stop_the_start(tape):
    refusal = peers.refused_start(peers.Ours(settings=tape.copies_in("none $SRC $DST", more="all.export / stage\n")))
    assert f"files cannot be staged: cannot run {tape.directory}/none: no such file or directory" in refusal
    url = f"frm.xfr.copycmd url {tape.directory}/copy $SRC $DST\noss.remoteroot {tape.files}\nall.export / stage\n"
    refusal = peers.refused_start(peers.Ours(settings=url))
    assert "makes paths of the remote names: set frm.xfr.copycmd in for them" in refusal
    # Opaque data of one client would be arguments of a copy for all.
    refusal = peers.refused_start(peers.Ours(settings=tape.copies_in("copy $SRC $DST $CGI", more="all.export / stage\n")))
    assert "files cannot be staged: frm.xfr.copycmd: $CGI has no value here" in refusal
