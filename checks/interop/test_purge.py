"""Purges: files with a copy on tape leave a full disk, and come back when clients open them.

The tape is that of the tests of staging, and the disk a small file system of its own. Attributes are
set as XRootD's tools set them."""

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
import time

import pytest

import peers
import raw
from test_residency import names, tape  # noqa: F401
from tools import data, scalla, wait_until, xrdcp, xrdfs

PIECE = 512 * 1024
# A policy by which all files of the small disk go.
ALL = "* 8388607 8388608"
COPY_TIME = "user.XrdFrm.Cpy"
COPY_RECORD = "user.scalla.copied"
PIN = "user.XrdFrm.Pin"
FOREVER = struct.pack(">qB15x", 0, 1)


def content(name):
    return name.encode() * (PIECE // len(name))


@pytest.fixture
def purged(tape, begin, small_disk):  # noqa: F811
    """Starts a server whose disk holds 8 MiB: `purged(policy)`."""
    peers.give(small_disk)

    def start(policy="* 2m 3900k hold 0"):
        more = f"frm.purge.policy {policy}\nfrm.purge.waittime 1d\nfrm.xfr.copymax 8\n"
        return begin(peers.Linked(settings=tape.copies_in(more=more), export="/ stage purge", tree=small_disk))

    return start


@pytest.fixture
def purged_space(tape, begin, small_disk):  # noqa: F811
    """Starts a server whose files lie in a space on a disk of 8 MiB: `purged_space(policy)`."""
    peers.give(small_disk)

    def start(policy="* 2m 3900k hold 0"):
        spaces = f"oss.space hot {small_disk}\noss.space hot assign /\n"
        policy = policy.replace("*", "hot")
        more = f"{spaces}frm.purge.policy {policy}\nfrm.purge.waittime 1d\nfrm.xfr.copymax 8\n"
        return begin(peers.Linked(settings=tape.copies_in(more=more), export="/ stage purge"))

    return start


def data_files(disk):
    """Returns the data files on a disk with the partition of a space, without the empty ones that a crash may leave."""

    def size(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            # A purge removes it meanwhile.
            return 0

    return {path for path in disk.rglob("*%") if size(path) > 0}


def residency(server, *words):
    """Runs the command. A server that has just started serves clients a moment before administrators."""

    def run():
        done = scalla("residency", "--admin-path", server.work / "admin", *words)
        return None if "no server is running" in done.all else done

    return wait_until(run)


def stage_files(server, tape, all_names, oldest=1_000_000_000):  # noqa: F811
    """Stages files; the first one has the oldest access."""
    for number, name in enumerate(all_names):
        tape.put(name, content(name))
        os.utime(tape.files / name, (oldest, oldest))
    request = xrdfs(server, "prepare", "-s", *(f"/{name}" for name in all_names)).ok()
    assert request
    wait_until(lambda: set(all_names) <= set(names(server.tree)))
    for number, name in enumerate(all_names):
        # The last access is not before the last modification, and the files did not come in this order.
        set_copied(server.tree / name, f"/{name}", oldest)
        set_access(server.tree / name, oldest + number)


def set_copied(path, name, modified):
    """Gives a file this modification time, and the attributes of a copy of it under this name."""
    os.utime(path, (modified, modified))
    status = path.stat()
    identity = name.encode() + b"\0" + struct.pack(">QQqI", status.st_ino, status.st_size, modified, 0)
    os.setxattr(path, COPY_TIME, struct.pack(">q16x", modified))
    os.setxattr(path, COPY_RECORD, b"1 " + hashlib.sha256(identity).hexdigest().encode())


def set_access(path, seconds):
    os.utime(path, ns=(seconds * 1_000_000_000, path.stat().st_mtime_ns))


def test_the_oldest_files_with_a_copy_leave_a_full_disk(tape, purged, tmp_path):  # noqa: F811
    server = purged()
    kept = ["pinned", "local", "handle", "changed", "bare"]
    go = [f"file{number}" for number in range(8)]
    stage_files(server, tape, kept[:4] + go)
    tree = server.tree
    # Written by a client, and never copied.
    source = tmp_path / "new"
    source.write_bytes(content("new!"))
    xrdcp(source, server.url("/new")).ok()
    assert os.getxattr(tree / "new", COPY_TIME) == struct.pack(">q16x", 1)
    set_access(tree / "new", 1)
    os.utime(tree / "new", (1, 1))
    os.setxattr(tree / "pinned", PIN, FOREVER)
    modified = int((tree / "changed").stat().st_mtime)
    os.utime(tree / "changed", (1, modified - 1))
    # A file without any attribute is not ours to remove.
    (tree / "bare").write_bytes(b"")
    peers.give(tree / "bare")
    # It goes too: its mode says nothing about the directory.
    (tree / "file0").chmod(0o444)
    with open(tree / "local", "rb"), raw.Connection(server) as connection:
        handle = connection.open("/handle")
        for name in ("local", "handle"):
            set_access(tree / name, 2)
        examined = residency(server, "purge", "--dry-run").ok().out
        for name, reason in (
            ("pinned", "it is pinned"), ("local", "it is open"), ("handle", "it is open"),
            ("new", "no copy of this version"), ("changed", "no copy of this version"),
            ("bare", "no attribute with the time of its copy"), ("file0", "may go"),
        ):
            (line,) = (line for line in examined.splitlines() if line.endswith(f"/{name}"))
            assert reason in line, examined
        assert set(go) <= set(names(tree)), "an examination removes nothing"
        assert "removed 5 files" in residency(server, "purge", "--wait", "--timeout", "60s").all
        left = set(names(tree))
        # The open files were among the oldest, and are replaced by any file of the same age.
        assert {*kept, "new"} <= left and not left & set(go[:4]) and len(left & set(go)) == 3, left
        assert connection.read(handle, 0, PIECE) == content("handle")
    # A purged file is staged at its next open.
    target = tmp_path / "target"
    runs = len(tape.runs())
    xrdcp(server.url("/file0"), target).ok()
    assert target.read_bytes() == content("file0") and len(tape.runs()) == runs + 1
    assert (tree / "file0").exists()


def test_files_in_a_space_are_staged_there_and_purged(tape, purged_space, small_disk, tmp_path):  # noqa: F811
    server = purged_space()
    all_names = [f"file{number}" for number in range(13)]
    stage_files(server, tape, all_names)
    for name in all_names:
        data_file = (server.tree / name).readlink()
        assert data_file.is_relative_to(small_disk) and data_file.name.endswith("%")
        assert os.getxattr(data_file, "user.XrdFrm.Pfn") == bytes(server.tree / name) + b"\0"
    residency(server, "purge").ok()
    wait_until(lambda: "removed 5 files" in residency(server, "status").ok().out)
    left = names(server.tree)
    assert left == sorted(all_names[5:]), left
    assert {(server.tree / name).readlink() for name in left} == data_files(small_disk)
    assert len(list(small_disk.rglob("*%"))) == len(left), "no empty data is left"
    xrdcp(server.url("/file0"), tmp_path / "target").ok()
    assert (tmp_path / "target").read_bytes() == content("file0")
    assert (server.tree / "file0").readlink().is_relative_to(small_disk)


def test_a_disk_without_room_for_attributes_is_purged(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 0")
    all_names = ["file0", "file1", "file2"]
    stage_files(server, tape, all_names)
    # Attributes take the room of inodes on this file system. XFS sets none if it is full.
    full = server.tree / "full"
    full.write_bytes(b"")
    status = os.statvfs(server.tree)
    inodes = status.f_files - status.f_ffree + 1
    subprocess.run(["mount", "-o", f"remount,nr_inodes={inodes}", server.tree], check=True)
    number = 0
    for size in (512, 64, 8, 1):
        try:
            while True:
                os.setxattr(full, f"user.{number}", b"x" * size)
                number += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC
    with pytest.raises(OSError):
        os.setxattr(server.tree / "file0", "user.scalla.incoming", b"1")
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == ["full"])


def test_pins_of_the_command_keep_files_until_they_end(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 0")
    tape.put("file", data(1000))
    tape.put("other", data(1000))
    xrdfs(server, "prepare", "-s", "/file", "/other").ok()
    wait_until(lambda: names(server.tree) == ["file", "other"])
    assert "pinned" in residency(server, "pin", "/file").ok().out
    assert os.getxattr(server.tree / "file", PIN)[:9] == FOREVER[:9]
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == ["file"])
    assert "not pinned" in residency(server, "unpin", "/file").ok().out
    residency(server, "pin", "--idle", "1d", "/file").ok()
    assert "idle for 86400 s" in residency(server, "purge", "--dry-run", "/file").ok().out
    residency(server, "pin", "--for", "1d", "/file").ok()
    assert "pinned until" in residency(server, "purge", "--dry-run", "/").ok().out
    residency(server, "unpin", "/file").ok()
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == [])
    missing = residency(server, "pin", "/file")
    assert missing.status != 0 and "no such file" in missing.all
    status = residency(server, "status", "--json").ok().out
    assert '"purged_files":1' in status.replace(" ", "")


def test_a_file_stays_for_its_hold_time(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 1h")
    tape.put("file", data(1000))
    tape.put("old", data(1000))
    xrdfs(server, "prepare", "-s", "/file", "/old").ok()
    wait_until(lambda: names(server.tree) == ["file", "old"])
    for path in server.tree.iterdir():
        set_copied(path, f"/{path.name}", 10_000)
    set_access(server.tree / "file", int((server.tree / "file").stat().st_ctime))
    assert "hold time" in residency(server, "purge", "--dry-run", "/file").ok().out
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == ["file"])


def test_an_open_counts_for_the_hold_time(tape, purged, tmp_path):  # noqa: F811
    """Most file systems do not record a read that follows an access of the same day."""
    server = purged(f"{ALL} hold 1h")
    tape.put("file", data(1000))
    xrdfs(server, "prepare", "-s", "/file").ok()
    wait_until(lambda: names(server.tree) == ["file"])
    set_copied(server.tree / "file", "/file", 10_000)
    set_access(server.tree / "file", int(time.time()) - 7200)
    assert "may go" in residency(server, "purge", "--dry-run", "/file").ok().out
    xrdcp(server.url("/file"), tmp_path / "target").ok()
    assert "hold time" in residency(server, "purge", "--dry-run", "/file").ok().out


def test_an_administrator_stages_and_releases_files(tape, purged, tmp_path):  # noqa: F811
    server = purged(f"{ALL} hold 1d")
    tape.put("file", data(1000))
    tape.put("other", data(1000))
    staged = residency(server, "stage", "/file", "/other").ok()
    assert staged.out == "will be staged  /file\nwill be staged  /other\n"
    wait_until(lambda: names(server.tree) == ["file", "other"])
    assert residency(server, "stage", "/file").ok().out == "is on disk already  /file\n"
    residency(server, "pin", "/other").ok()
    done = residency(server, "release", "/file", "/other", "/missing")
    assert done.status == 1 and done.out == "was removed from disk (1000 bytes)  /file\n"
    assert "/other stays: it is pinned" in done.err and "/missing: no such file" in done.err
    assert names(server.tree) == ["other"]
    xrdcp(server.url("/file"), tmp_path / "target").ok()
    assert (tmp_path / "target").read_bytes() == data(1000)
    refused = residency(server, "--json", "migrate", "/other")
    assert refused.status == 1 and "not on an export with mig" in json.loads(refused.out)[0]["error"]


def test_an_administrator_waits_for_transfers(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 1d")
    tape.put("file", data(1000))
    done = residency(server, "stage", "--wait", "/file", "/missing")
    assert done.status == 1 and "is on disk  /file\n" in done.out and names(server.tree) == ["file"]
    assert "/missing: no such file in mass storage" in done.err
    # It is on disk, so nothing is waited for.
    (answer,) = json.loads(residency(server, "--json", "stage", "--wait", "/file").ok().out)
    assert (answer["path"], answer["state"]) == ("/file", "done")
    tape.put("held", data(1000))
    with tape.flag("hold"):
        late = residency(server, "stage", "--wait", "--timeout", "1s", "/held")
        assert late.status == 1 and "/held: it has not ended within the time limit" in late.err
    wait_until(lambda: names(server.tree) == ["file", "held"])


def test_an_administrator_repeats_a_transfer_that_failed(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 1d")
    assert xrdfs(server, "cat", "/file").status != 0
    tape.put("file", b"late")
    assert xrdfs(server, "cat", "/file").status != 0, "it is refused for hours"
    residency(server, "stage", "/file").ok()
    wait_until(lambda: names(server.tree) == ["file"])


@pytest.mark.parametrize("fixture", ["purged", "purged_space"])
def test_a_crash_during_purges_loses_nothing(tape, request, fixture, small_disk, tmp_path):  # noqa: F811
    server = request.getfixturevalue(fixture)(f"{ALL} hold 0")
    all_names = [f"file{number}" for number in range(10)]
    stage_files(server, tape, all_names)
    source = tmp_path / "new"
    source.write_bytes(content("new!"))
    xrdcp(source, server.url("/new")).ok()
    for _ in range(4):
        residency(server, "purge").ok()
        # The server is killed at an unknown point of the purge.
        server.kill()
        left = {name for name in names(server.tree) if not name.startswith(".scalla-")}
        assert "new" in left
        for name in left - {"new"}:
            assert (server.tree / name).read_bytes() == content(name)
        server.start()
        xrdfs(server, "prepare", "-s", *(f"/{name}" for name in all_names)).ok()
    server.kill()
    assert (server.tree / "new").read_bytes() == content("new!")
    server.start()
    # What a crash has left is removed.
    wait_until(lambda: not any(name.startswith(".scalla-") for name in names(server.tree)))
    target = tmp_path / "target"
    if fixture == "purged_space":
        # All data has a name, and each name has data.
        wait_until(lambda: {(server.tree / name).readlink() for name in names(server.tree)} == data_files(small_disk))
    for name in all_names:
        xrdcp("--force", server.url(f"/{name}"), target).ok()
        assert target.read_bytes() == content(name)


def test_a_file_under_another_name_is_not_purged(tape, begin, small_disk):  # noqa: F811
    """The export staged only, when a client renamed a file. Local tools do the same."""
    peers.give(small_disk)
    settings = tape.copies_in(more=f"frm.purge.policy {ALL} hold 0\nfrm.purge.waittime 1d\n")
    server = begin(peers.Linked(settings=settings, export="/ stage", tree=small_disk))
    for name in ("old", "local", "file"):
        tape.put(name, content(name))
    xrdfs(server, "prepare", "-s", "/old", "/local", "/file").ok()
    wait_until(lambda: names(server.tree) == ["file", "local", "old"])
    xrdfs(server, "mv", "/old", "/new").ok()
    server.stop()
    (server.tree / "local").rename(server.tree / "moved")
    server.export = "/ stage purge"
    server.start()
    for name in ("new", "moved"):
        assert "stays" in residency(server, "purge", "--dry-run", f"/{name}").ok().out
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == ["moved", "new"])
    for name in ("new", "moved"):
        assert xrdfs(server, "stat", f"/{name}").ok()


def test_what_a_crash_left_is_removed_without_staging_too(begin, small_disk):
    peers.give(small_disk)
    server = begin(peers.Linked(settings=f"frm.purge.policy {ALL} hold 0\n", export="/ purge", tree=small_disk))
    server.kill()
    left = server.tree / f".scalla-incoming-{hashlib.sha256(b'purge/f').hexdigest()[:32]}"
    left.write_bytes(b"old")
    os.setxattr(left, "user.scalla.incoming", b"1")
    peers.give(left)
    server.start()
    wait_until(lambda: not left.exists())


HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lease_of_another_program_delays_its_file_only(begin):
    server = begin(peers.Linked(settings="", export="/"))
    for name in ("leased", "other"):
        (server.tree / name).write_bytes(b"content")
        peers.give(server.tree / name)
    arguments = [sys.executable, "-c", HOLDER, server.tree / "leased"]
    with raw.Connection(server) as connection:
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"held\n"
            # More opens than there are threads of the disk. The client is to repeat each of them.
            opening = [connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/leased") for _ in range(200)]
            handle = connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/other")
            frames = {}
            while len(frames) <= len(opening):
                frame = connection.answer()
                if frame.status != raw.WAITRESP:
                    frames[frame.stream] = frame
            assert {frames[stream].status for stream in opening} == {raw.WAIT}
            assert frames[handle].status == raw.OK
            holder.stdin.close()
        connection.open("/leased")


def test_a_file_of_the_administrator_stops_purges(tape, purged):  # noqa: F811
    server = purged(f"{ALL} hold 0")
    stage_files(server, tape, ["file"])
    stop = server.work / "admin" / "frm" / "STOPPURGE"
    stop.write_bytes(b"")
    refused = residency(server, "purge")
    assert refused.status != 0 and f"nothing is purged, because {stop} exists" in refused.all
    assert f"because {stop} exists" in residency(server, "status").ok().out
    stop.unlink()
    residency(server, "purge").ok()
    wait_until(lambda: names(server.tree) == [])


def test_nothing_is_purged_without_the_option(tape, begin):  # noqa: F811
    server = begin(peers.Linked(settings=tape.copies_in(more=f"frm.purge.policy {ALL} hold 0\n"), export="/ stage"))
    refused = residency(server, "purge")
    assert refused.status != 0 and "no export of this server is purged" in refused.all


def test_the_queue_is_listed(tape, begin):  # noqa: F811
    tape.put("file", data(1000))
    server = begin(peers.Linked(settings=tape.copies_in(), export="/ stage"))
    assert residency(server, "queue").ok().out == "none\n"
    with tape.flag("hold"):
        xrdfs(server, "prepare", "-s", "/file").ok()
        wait_until(lambda: tape.runs())
        lines = [line.split() for line in residency(server, "queue").ok().out.splitlines()]
        assert lines[0] == ["STATE", "TRIES", "WAY", "CLIENT", "PATH"]
        assert [line[:3] + line[4:] for line in lines[1:]] == [["running", "1", "in", "/file"]]
        assert '"state":"running"' in residency(server, "queue", "--json").ok().out.replace(" ", "")
    wait_until(lambda: residency(server, "queue").ok().out == "none\n")
