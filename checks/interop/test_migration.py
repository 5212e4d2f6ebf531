"""Migration to mass storage: a directory is the tape, and a shell script of the site copies to it.

The real server leaves migration to a daemon of its own, so these tests are about ours only. Its clients are
the real ones."""

import os
import signal
import sqlite3
import struct
import subprocess
import time
from pathlib import Path

import pytest

import peers
import tapes
from test_purge import residency
from tools import scalla, wait_until, xrdcp, xrdfs

# Copies $1 to $2. Before, it waits as long as there is a file `hold` beside it.
COPY = """\
#!/bin/sh
cd "${0%/*}"
cat "$1" > new.$$
echo "$$ $1" >> runs
while [ -e hold ]; do sleep 0.05; done
[ -e broken ] && { echo "no drive is free"; exit 5; }
mkdir -p "${2%/*}"
mv new.$$ "$2"
"""


@pytest.fixture
def tape():
    with tapes.tape(copy=COPY) as tape:
        yield tape


@pytest.fixture
def migrate(begin, tape):
    """Starts a server that migrates all files a short time after their last change."""

    def start(more=""):
        settings = (
            f"oss.remoteroot {tape.files}\nfrm.xfr.copycmd out {tape.directory}/copy $SRC $DST\n"
            f"frm.xfr.migr.idlehold 0\nfrm.xfr.migr.waittime 1s\n{more}"
        )
        return begin(peers.Linked(settings=settings, export="/ mig"))

    return start


def copied(server, name):
    """Returns the time of the copy of a file, or 1 if there is none."""
    output = os.getxattr(server.tree / name, "user.XrdFrm.Cpy")
    (time,) = struct.unpack(">q16x", output)
    return time


def marked(server, name):
    return "user.XrdFrm.Cpy" in os.listxattr(server.tree / name)


def is_migrated(server, name):
    return copied(server, name) == int((server.tree / name).stat().st_mtime)


def upload(server, tmp_path, name, content):
    source = tmp_path / "source"
    source.write_bytes(content)
    xrdcp("--force", source, server.url(f"/{name}")).ok()


def test_new_and_changed_files_are_migrated(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("hold"):
        upload(server, tmp_path, "d/file", b"first")
        assert copied(server, "d/file") == 1
        wait_until(lambda: tape.runs())
        assert copied(server, "d/file") == 1
    wait_until(lambda: is_migrated(server, "d/file"))
    assert tape.content("d/file") == b"first"
    upload(server, tmp_path, "d/file", b"other")
    assert not is_migrated(server, "d/file")
    wait_until(lambda: is_migrated(server, "d/file"))
    assert tape.content("d/file") == b"other" and len(tape.runs()) == 2
    # Clients do not reach the attribute.
    assert "Cpy" not in xrdfs(server, "xattr", "/d/file", "list").out


def test_a_file_that_is_changed_during_its_copy_is_migrated_again(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("hold"):
        upload(server, tmp_path, "file", b"first")
        wait_until(lambda: tape.runs())
        upload(server, tmp_path, "file", b"other")
    wait_until(lambda: is_migrated(server, "file"))
    assert tape.content("file") == b"other" and len(tape.runs()) == 2


def test_a_renamed_file_is_migrated_under_its_new_name(tape, migrate, tmp_path):
    server = migrate()
    upload(server, tmp_path, "d/old", b"content")
    wait_until(lambda: is_migrated(server, "d/old"))
    xrdfs(server, "mv", "/d", "/e").fails(54, "rename its files one by one")
    xrdfs(server, "mv", "/d/old", "/d/new").ok()
    wait_until(lambda: is_migrated(server, "d/new"))
    assert tape.content("d/new") == b"content" and len(tape.runs()) == 2
    # Another one is renamed while it is copied.
    with tape.flag("hold"):
        upload(server, tmp_path, "d/a", b"more")
        wait_until(lambda: len(tape.runs()) == 3)
        xrdfs(server, "mv", "/d/a", "/d/b").ok()
    wait_until(lambda: is_migrated(server, "d/b"))
    assert tape.content("d/b") == b"more"


def test_a_file_on_tape_is_not_created_where_that_is_checked(tape, begin, tmp_path):
    settings = (
        f"oss.remoteroot {tape.files}\nfrm.xfr.copycmd out {tape.directory}/copy $SRC $DST\n"
        f"oss.rsscmd {tape.directory}/status\nfrm.xfr.migr.idlehold 1h\n"
    )
    server = begin(peers.Linked(settings=settings, export="/ mig check"))
    tape.put("d/file", b"on tape")
    source = tmp_path / "source"
    source.write_bytes(b"new")
    xrdcp(source, server.url("/d/file")).fails(54, "[3018]")
    assert not (server.tree / "d").exists()
    xrdcp(source, server.url("/d/other")).ok()
    xrdcp("--force", source, server.url("/d/file")).ok()
    assert (server.tree / "d/file").read_bytes() == b"new"
    # The client itself looks for files on disk before.
    xrdcp(source, server.url("/d/other")).fails(50, "file exists")


def test_an_administrator_migrates_a_file_at_once(tape, begin, tmp_path):
    settings = (
        f"oss.remoteroot {tape.files}\nfrm.xfr.copycmd out {tape.directory}/copy $SRC $DST\n"
        "frm.xfr.migr.idlehold 1h\nfrm.xfr.migr.waittime 1h\n"
    )
    server = begin(peers.Linked(settings=settings, export="/ mig"))
    upload(server, tmp_path, "file", b"content")

    def order():
        # A file that was changed a moment ago is left alone.
        done = scalla("residency", "--admin-path", server.work / "admin", "migrate", "/file")
        return done.status == 0 and is_migrated(server, "file")

    wait_until(order)
    assert tape.content("file") == b"content" and len(tape.runs()) == 1


def test_a_failing_program_is_tried_again_with_its_reason(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("broken"):
        upload(server, tmp_path, "file", b"content")
        wait_until(lambda: len(tape.runs()) == 2)
        assert copied(server, "file") == 1 and tape.content("file") is None
        wait_until(lambda: "no drive is free" in server.output())
        assert len(tape.runs()) == 3
    queue = sqlite3.connect(f"file:{server.work}/admin/frm/queue.sqlite?mode=ro", uri=True)
    (row,) = queue.execute("SELECT direction, state, tries, text FROM entries").fetchall()
    queue.close()
    assert row[:3] == (1, 3, 3) and "copy failed with status 5: no drive is free" in row[3]


def test_a_copy_of_another_size_does_not_count(tape, migrate, tmp_path):
    server = migrate(f"oss.rsscmd {tape.directory}/status\n")
    (tape.directory / "copy").write_text('#!/bin/sh\necho "$$ $1" >> "${0%/*}/runs"\nhead -c 3 "$1" > "$2"\n')
    upload(server, tmp_path, "file", b"content")
    wait_until(lambda: "has 3 bytes, but the file 7" in server.output())
    assert copied(server, "file") == 1 and len(tape.runs()) == 3


def test_a_kill_during_a_copy_loses_nothing(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("hold"):
        upload(server, tmp_path, "file", b"content")
        wait_until(lambda: tape.runs())
        server.restart()
        # The program of the first run still runs, and there is no second one beside it.
        ((process, _),) = (run.split() for run in tape.runs())
        assert Path(f"/proc/{process}").exists() and copied(server, "file") == 1
        os.kill(int(process), signal.SIGKILL)
        wait_until(lambda: len(tape.runs()) == 2)
    wait_until(lambda: is_migrated(server, "file"))
    assert tape.content("file") == b"content"


def test_a_file_without_the_attribute_is_migrated(tape, migrate, tmp_path):
    """A server that is killed between the creation and the attribute leaves such a file."""
    server = migrate()
    upload(server, tmp_path, "d/file", b"content")
    wait_until(lambda: is_migrated(server, "d/file"))
    (server.tree / "d/local").write_bytes(b"without the server")
    peers.give(server.tree / "d/local")
    wait_until(lambda: tape.content("d/local") == b"without the server")
    wait_until(lambda: marked(server, "d/local") and is_migrated(server, "d/local"))


def test_a_program_that_changes_the_status_of_a_file_has_copied_it(tape, migrate, tmp_path):
    """Archivers reset the access time, which changes the status change time."""
    (tape.directory / "copy").write_text(COPY + 'touch -a "$1"\nchmod 640 "$1"\n')
    server = migrate()
    upload(server, tmp_path, "file", b"content")
    wait_until(lambda: is_migrated(server, "file"))
    assert len(tape.runs()) == 1


def test_a_file_that_is_changed_during_each_copy_is_not_copied_without_end(tape, migrate, tmp_path):
    (tape.directory / "copy").write_text(COPY + 'touch "$1"\n')
    server = migrate()
    upload(server, tmp_path, "file", b"content")
    wait_until(lambda: "cannot migrate a file" in server.output(), seconds=60)
    wait_until(lambda: "it was changed during its copy" in server.output())
    assert not is_migrated(server, "file") and len(tape.runs()) <= 3


def test_times_that_are_odd_do_not_keep_a_file_from_tape(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("hold"):
        for name in ("future", "old"):
            upload(server, tmp_path, name, b"content")
        os.utime(server.tree / "future", (time.time() + 400 * 86_400,) * 2)
        os.utime(server.tree / "old", (0, 0))
    wait_until(lambda: is_migrated(server, "future"))
    assert tape.content("future") == b"content"
    wait_until(lambda: "cannot be migrated" in server.output() and "/old" in server.output())
    assert copied(server, "old") == 1


def test_a_file_without_write_permission_is_migrated_and_renamed(tape, migrate, tmp_path):
    server = migrate()
    with tape.flag("hold"):
        upload(server, tmp_path, "file", b"content")
        (server.tree / "file").chmod(0o444)
    wait_until(lambda: is_migrated(server, "file"))
    with tape.flag("hold"):
        xrdfs(server, "mv", "/file", "/moved").ok()
        assert copied(server, "moved") == 1
    wait_until(lambda: is_migrated(server, "moved"))
    assert tape.content("moved") == b"content"
    assert (server.tree / "moved").stat().st_mode & 0o777 == 0o444


def test_a_rename_that_is_refused_keeps_the_copy(tape, migrate, tmp_path):
    server = migrate()
    upload(server, tmp_path, "file", b"content")
    upload(server, tmp_path, "d/other", b"content")
    (server.tree / "link").symlink_to("file")
    for name in ("file", "d/other"):
        wait_until(lambda name=name: is_migrated(server, name))
    runs = len(tape.runs())
    xrdfs(server, "mv", "/file", "/d").fails(54, "is a directory")
    assert is_migrated(server, "file")
    # The target of a link keeps its name.
    xrdfs(server, "mv", "/link", "/link2").ok()
    assert is_migrated(server, "file") and len(tape.runs()) == runs


def test_a_rename_on_a_path_that_only_stages_resets_the_copy(tape, begin, tmp_path):
    """Otherwise the file would count as copied once its path is migrated or purged."""
    settings = f"oss.remoteroot {tape.files}\nfrm.xfr.copycmd in {tape.directory}/copy $SRC $DST\n"
    server = begin(peers.Linked(settings=settings, export="/ stage"))
    (tape.files / "old").write_bytes(b"content")
    xrdcp(server.url("//old"), tmp_path / "read").ok()
    assert is_migrated(server, "old")
    xrdfs(server, "mv", "/old", "/new").ok()
    assert copied(server, "new") == 1


def test_files_that_local_programs_renamed_or_copied_get_a_copy_under_their_name(begin, tape):
    settings = (
        f"oss.remoteroot {tape.files}\nfrm.xfr.copycmd out {tape.directory}/copy $SRC $DST\n"
        "frm.xfr.migr.idlehold 0\nfrm.xfr.migr.waittime 1s\nfrm.purge.policy * 1 2 hold 0\n"
    )
    server = begin(peers.Linked(settings=settings, export="/ mig purge"))
    for name in ("kept", "old", "linked", "real"):
        path = server.tree / name
        path.write_bytes(name.encode() * 100)
        peers.give(path)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    wait_until(lambda: all(tape.content(name) for name in ("kept", "old", "linked", "real")))
    wait_until(lambda: all(copied(server, name) == 1_000_000_000 for name in ("kept", "old", "linked", "real")))
    # XRootD's programs leave no record, and a file with two names would be copied again and again.
    os.removexattr(server.tree / "real", "user.scalla.copied")
    os.rename(server.tree / "real", server.tree / "moved")
    os.link(server.tree / "linked", server.tree / "second")
    runs = len(tape.runs())
    os.rename(server.tree / "old", server.tree / "new")
    subprocess.run(["cp", "-a", server.tree / "kept", server.tree / "copied"], check=True, timeout=60)
    peers.give(server.tree / "copied")
    wait_until(lambda: tape.content("new") == b"old" * 100 and tape.content("copied") == b"kept" * 100)
    # Two searches later, there was no other copy.
    (server.tree / "last").write_bytes(b"l")
    peers.give(server.tree / "last")
    wait_until(lambda: tape.content("last") == b"l")
    (server.tree / "end").write_bytes(b"e")
    peers.give(server.tree / "end")
    wait_until(lambda: tape.content("end") == b"e")
    again = sorted(Path(run.split()[-1]).name for run in tape.runs()[runs:])
    assert again == ["copied", "end", "last", "new"]
    for name in ("new", "copied"):
        wait_until(lambda: residency(server, "release", f"/{name}").status == 0)  # noqa: B023
