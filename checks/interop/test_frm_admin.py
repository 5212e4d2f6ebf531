"""`frm_admin` of both on one tree: the same output, and attributes that each reads from the other."""

import os
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

import peers

THEIRS = peers.real("frm_admin")
COPY_TIME = "user.XrdFrm.Cpy"
COPY_RECORD = "user.scalla.copied"
CROSS_REFERENCE = "user.XrdFrm.Pfn"
PIN = "user.XrdFrm.Pin"
MEMORY = "user.XrdFrm.Mem"

CONFIG = """\
all.adminpath {top}/adm
all.export /store stage mig purge r/w nocheck
all.export /cache stage purge r/w nocheck inplace
all.export /plain
oss.localroot {top}/data
oss.remoteroot {top}/tape
oss.space public {top}/one
oss.space other {top}/two
oss.usage log {top}/usage
frm.xfr.copycmd in /bin/cp $SRC $DST
frm.xfr.copycmd out /bin/cp $SRC $DST
"""


class Done:
    def __init__(self, done):
        self.status = done.returncode
        self.out = done.stdout.decode()
        # Lines of the log have a time and a process number, and tell of old files.
        lines = done.stderr.decode().splitlines()
        self.lines = [line for line in lines if not re.match(r"\d{6} \d\d:\d\d:\d\d \d+ ", line)]

    def __repr__(self):
        return f"{self.status} {self.out} {self.lines}"


class Pool:
    """A tree with two spaces, and both programs."""

    def __init__(self, top):
        self.top = top
        for name in ("data/store/sub", "data/cache", "data/plain", "one", "two", "usage", "adm", "tape"):
            (top / name).mkdir(parents=True)
        # The server creates the usage log.
        entry = struct.pack("64s8q", b"other", *[0] * 8) + struct.pack("64s8q", b"public", *[0] * 8)
        (top / "usage/.Usage").write_bytes(entry.ljust(16384, b"\0"))
        self.config = top / "config"
        self.config.write_text(CONFIG.format(top=top))
        self.number = 0

    def run(self, program, words, answers=""):
        command = [str(program), "-c", str(self.config), *words]
        done = subprocess.run(command, input=answers.encode(), capture_output=True, timeout=60, check=False)
        return Done(done)

    def ours(self, *words, answers=""):
        return self.run(peers.link("frm_admin"), words, answers)

    def theirs(self, *words, answers=""):
        return self.run(THEIRS, words, answers)

    def same(self, *words, answers=""):
        """Runs a command that changes nothing with both programs, and returns its lines."""
        ours, theirs = self.ours(*words, answers=answers), self.theirs(*words, answers=answers)
        assert (ours.status, sorted(ours.lines)) == (theirs.status, sorted(theirs.lines))
        return ours.lines

    def local(self, path):
        return self.top / "data" / path.lstrip("/")

    def put(self, path, content=b"hello\n", space=None, modified=1_600_000_000):
        """Creates a file; in a space, as a server does."""
        local = self.local(path)
        file = local
        if space:
            self.number += 1
            partition = self.top / {"public": "one", "other": "two"}[space]
            length = len(str(partition)) + 1
            name = f"{0x26DD0B6B:08X}{5:08X}{0:012X}{self.number:08X}{length:02X}{len(space):x}%"
            file = partition / space / "00" / name
            file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if space:
            local.symlink_to(file)
            os.setxattr(file, CROSS_REFERENCE, str(local).encode() + b"\0")
        if path.startswith(("/store", "/cache")):
            os.setxattr(file, COPY_TIME, struct.pack(">q16x", 1))
        os.utime(file, (modified, modified))
        return local

    def attribute(self, path, name):
        try:
            return os.getxattr(self.local(path), name)
        except OSError:
            return None


@pytest.fixture
def pool(tmp_path):
    return Pool(tmp_path)


@pytest.fixture
def filled(pool):
    pool.put("/store/n1", space="public")
    pool.put("/store/n2", b"longer than that\n", space="other")
    pool.put("/store/sub/n3", space="public")
    pool.put("/cache/c1")
    pool.put("/plain/p1")
    return pool


def test_commands_that_change_nothing_say_the_same(filled):
    nothing = [
        "query pfn /store/n1 /none /store/*", "query rfn /store/n1", "query pfn", "query foo", "query",
        "query space", "query space /store/n1", "query space /store/n1 /store/n2 /store/none /cache/c1",
        "query space -r /store", "q space /store", "query usage", "query usage public", "query usage none",
        "audit names /store", "audit -r names /store", "audit", "audit names", "audit foo /store",
        "audit space public", "audit space other", "audit space none", "audit space", "audit usage none",
        "find", "find unmig", "find unmig /store", "find -r unmig /store", "f -recu unmigrated /store /cache",
        "find fail /store", "find pinne /store", "find pins /store", "find mm /store", "find nochksum foo /store",
        "find -r nochksum md5 /store", "find nochksum", "find mmap /store", "mark", "pin", "makelf", "mv", "reloc",
        "rm", "mv /store/n1", "reloc /store/n1", "chksum", "mark -x /store",
        "mark /plain/p1", "mark /store/sub", "pin -k 1h /plain/p1", "rm -r /store/sub", "foo",
        "help audit", "help chksum", "help find", "help mark", "help pin", "help reloc", "help mv",
        "help foo",
    ]
    # Their program reports this error with the status of success.
    mistakes = {"mark -x /store"}
    differences = []
    for line in nothing:
        ours, theirs = (run(*line.split(), answers="n\n" * 3) for run in (filled.ours, filled.theirs))
        found = [(None if line in mistakes else done.status, sorted(done.lines), done.out) for done in (ours, theirs)]
        if found[0] != found[1]:
            differences.append((line, *found))
    assert not differences, "\n".join(map(str, differences))


def test_marks_and_pins_are_read_by_the_other_one(filled):
    pool, now = filled, int(time.time())
    for write, read in ((pool.ours, pool.theirs), (pool.theirs, pool.ours)):
        for words, lines in (
            ("mark /store/n1", ["1 file marked migratable."]),
            ("mark -p /store/n2", ["1 file marked purgeable."]),
            ("pin -k +2d /store/n1", ["1 pin processed."]),
            ("pin -k forever /store/n2", ["1 pin processed."]),
            ("pin -k 3h /cache/c1", ["1 pin processed."]),
            ("mmap -k -l /store/n1", ["1 mmap processed."]),
        ):
            done = write(*words.split())
            assert (done.status, done.lines) == (0, lines), words
        assert pool.attribute("/store/n1", COPY_TIME) == struct.pack(">q16x", 1_600_000_000 - 113)
        assert pool.attribute("/store/n2", COPY_TIME) == struct.pack(">q16x", 1_600_000_000)
        assert pool.attribute("/store/n1", MEMORY) == struct.pack("B7x", 7)
        for path, seconds, flags in (("n1", 172_800, 2), ("n2", 0, 1)):
            assert pool.attribute(f"/store/{path}", PIN)[:9] == struct.pack(">qB", seconds, flags)
        time_of_pin, flags = struct.unpack(">qB", pool.attribute("/cache/c1", PIN)[:9])
        assert flags == 4 and now + 10_800 <= time_of_pin <= now + 10_900
        lines = read("find", "unmig", "/store").lines
        assert lines == [f"Unmigrated; modified: {pool.local('/store/n1')}", "1 unmigrated file found."]
        assert sorted(read("find", "pin", "/store").lines) == sorted([
            f"pin -k +2d {pool.local('/store/n1')}", f"pin -k forever {pool.local('/store/n2')}",
            "2 pinned files found.",
        ])
        assert read("find", "mmap", "/store").lines[0] == f"mmap -keep -lock {pool.local('/store/n1')}"
        for words in ("pin -k 0 /store/n1", "pin -k 0 /store/n2", "mmap -o /store/n1", "mark -r /store"):
            assert write(*words.split()).status == 0
        assert pool.attribute("/store/n1", PIN) is None and pool.attribute("/store/n1", MEMORY) is None
    # A file that an administrator marks has the record by which our server purges it.
    pool.ours("mark", "-p", "/store/n1")
    assert pool.attribute("/store/n1", COPY_RECORD).startswith(b"1 ")
    pool.ours("mark", "/store/n1")
    assert pool.attribute("/store/n1", COPY_RECORD) is None


def test_questions_are_answered(filled):
    pool = filled
    for answers, line in (("", "0 files"), ("n\n", "0 files"), ("\n", "0 files"), ("y\n", "1 file")):
        done = pool.ours("mark", "/plain/p1", answers=answers)
        assert done.lines[-1].endswith(f"{line} marked migratable."), done
    done = pool.ours("mark", "/store/sub", "/store/n1", answers="a\n")
    assert done.lines[-2].endswith("mark aborted!") and done.lines[-1] == "0 files marked migratable.", done
    assert pool.attribute("/store/n1", COPY_TIME) == struct.pack(">q16x", 1)
    done = pool.ours("mark", "/store/*")
    assert done.lines == ["2 files marked migratable."]
    assert pool.attribute("/store/sub/n3", COPY_TIME) == struct.pack(">q16x", 1)


def test_audits_find_and_repair_the_same(filled):
    pool = filled
    data = {name: Path(os.readlink(pool.local(f"/store/{name}"))) for name in ("n1", "n2", "sub/n3")}
    # Without a copy time; with the name of another file; without a name; without a trace of one.
    os.removexattr(data["n1"], COPY_TIME)
    os.setxattr(data["n2"], CROSS_REFERENCE, str(pool.local("/store/none")).encode() + b"\0")
    pool.local("/store/sub/n3").unlink()
    (pool.top / "one/public/00/stranger").write_bytes(b"abc")
    names = pool.ours("audit", "-r", "names", "/store")
    assert f"No copy time for: {pool.local('/store/n1')}" in names.lines
    assert f"Incorrect pfn xref to {pool.local('/store/n2')}" in names.lines
    assert f"Data file refers to   {pool.local('/store/none')}" in names.lines
    assert names.lines[-1] == "2 problems found; 0 fixed."
    pool.same("audit", "space", "public")
    assert pool.ours("audit", "-fix", "space", "public").lines[-1].endswith("(6 unreachable).")
    fixed = pool.ours("audit", "-fix", "space", "public", answers="y\n")
    assert any("pfn symlink created." in line for line in fixed.lines), fixed
    assert pool.local("/store/sub/n3").read_bytes() == b"hello\n"
    fixed = pool.ours("audit", "-fix", "-f", "-r", "names", "/store")
    assert fixed.lines[-1] == "2 problems found; 2 fixed.", fixed
    assert pool.theirs("audit", "-r", "names", "/store").lines == ["0 problems found; 0 fixed."]
    # A link that leads nowhere.
    data["n1"].unlink()
    done = pool.ours("audit", "names", "/store")
    assert done.status == 4 and f"Missing target: {data['n1']}" in done.lines
    done = pool.ours("audit", "-fix", "names", "/store", answers="y\n")
    assert not pool.local("/store/n1").is_symlink(), done


def test_the_usage_is_repaired(filled):
    pool = filled
    pool.ours("query", "usage")
    lines = pool.same("audit", "usage", "public")
    assert lines[1:] == ["Claimed:            0", "Actual:            12"]
    assert pool.ours("audit", "-fix", "usage", "public", answers="y\n").status == 0
    assert pool.same("query", "usage", "public")[1] == f"{12:>20} Used"
    # Their program leaves the usage to the server, ours is in the log at once.
    assert pool.ours("rm", "/store/n1").lines == ["1 file and 0 directories deleted."]
    assert pool.same("query", "usage", "public")[1] == f"{6:>20} Used"


def test_a_tool_of_the_superuser_is_not_in_the_way_of_the_server(filled):
    pool = filled
    (pool.top / "usage/.Usage").unlink()
    assert pool.ours("query", "usage").lines == ["frm_admin: Usage is not being tracked."]
    assert list((pool.top / "usage").iterdir()) == []
    if os.geteuid() != 0:
        return
    user = peers.unprivileged()[0]
    pool.ours("rm", "/store/n2")
    shutil.rmtree(pool.top / "two/other")
    os.chown(pool.top / "two", user, -1)
    os.chown(Path(os.readlink(pool.local("/store/n1"))), user, -1)
    assert pool.ours("reloc", "/store/n1", "other").status == 0
    made = list((pool.top / "two").rglob("*"))
    assert len(made) == 3 and all(path.stat().st_uid == user for path in made), made


def test_files_move_to_another_space_and_get_another_name(filled):
    pool = filled
    pool.ours("audit", "-fix", "-f", "usage")
    pool.ours("mark", "-p", "/store/n1")
    os.chmod(pool.local("/store/n1"), 0o640)
    os.setxattr(pool.local("/store/n1"), "user.U.own", b"value")
    old = Path(os.readlink(pool.local("/store/n1")))
    assert pool.ours("reloc", "/store/n1", "other").lines == ["/store/n1 relocated to space other"]
    new = Path(os.readlink(pool.local("/store/n1")))
    assert not old.exists() and new.is_relative_to(pool.top / "two/other") and new.name.endswith("%")
    status = new.stat()
    assert (new.read_bytes(), status.st_mode & 0o777, int(status.st_mtime)) == (b"hello\n", 0o640, 1_600_000_000)
    assert os.getxattr(new, "user.U.own") == b"value"
    assert pool.attribute("/store/n1", CROSS_REFERENCE) == str(pool.local("/store/n1")).encode() + b"\0"
    pool.same("query", "space", "/store/n1")
    pool.same("audit", "names", "/store")
    pool.same("audit", "usage")
    for words, text in (
        ("reloc /store/n1 other", "file exists"), ("reloc /store/n1 none", "no such file or directory"),
        ("reloc /store/none other", "no such file or directory"), ("reloc /store other", "is a directory"),
    ):
        done = pool.same(*words.split())
        assert done[0].endswith(text)
    # A file that is open stays where it is.
    with open(pool.local("/cache/c1"), "rb"):
        done = pool.ours("reloc", "/cache/c1", "other")
        assert done.status == 4 and not pool.local("/cache/c1").is_symlink(), done
    assert pool.ours("reloc", "/cache/c1", "other").status == 0 and pool.local("/cache/c1").is_symlink()
    assert [len(list((pool.top / "two/other").rglob("*%")))] == [3], "nothing of the failed one is left"
    assert pool.ours("mv", "/store/n1", "/store/new").lines == ["/store/n1 renamed to /store/new"]
    # What mass storage has is under the old name.
    assert pool.attribute("/store/new", COPY_TIME) == struct.pack(">q16x", 1)
    assert pool.attribute("/store/new", CROSS_REFERENCE) == str(pool.local("/store/new")).encode() + b"\0"
    assert pool.ours("mv", "/store/new", "/store/n2").lines[0].endswith("file exists")
    assert pool.ours("mv", "/store/new", "/cache/new").status == 4
    assert pool.ours("mv", "/store/none", "/store/x").status == 4


def test_removals_ask_and_tell(filled):
    pool = filled
    assert pool.ours("rm", "/store/none").lines[-1] == "rm incomplete; only 0 files and 0 directories deleted."
    assert pool.ours("rm", "/store/sub").status == 4 and pool.local("/store/sub/n3").exists()
    pool.ours("rm", "-r", "/store/sub")
    assert pool.local("/store/sub/n3").exists()
    done = pool.ours("rm", "-r", "-e", "/store/sub", answers="y\n")
    assert done.lines[-2:] == [
        f"Local directory {pool.local('/store/sub')} removed.", "1 file and 1 directory deleted.",
    ]
    done = pool.ours("rm", "-f", "/store/*")
    assert done.lines == ["2 files and 0 directories deleted."] and pool.local("/store").is_dir()
    assert not list((pool.top / "one").rglob("*%"))


def test_checksums_are_computed_stored_and_verified(filled):
    pool = filled
    assert pool.ours("chksum", "ls", "/store/n1").lines == ["No checksums exist for /store/n1"]
    assert pool.ours("chksum", "calc", "/store/n1").lines == ["adler32 084b021f /store/n1"]
    stored = pool.attribute("/store/n1", "user.XrdCks.adler32")
    assert len(stored) == 96 and stored[:8] == b"adler32\0"
    assert pool.ours("chksum", "ls", "/store/n1").lines == ["adler32 084b021f /store/n1"]
    assert pool.ours("chksum", "ver", "084b021f", "/store/n1").status == 0
    assert pool.ours("chksum", "ver", "11111111", "/store/n1").status == 4
    assert pool.ours("find", "nochksum", "adler32", "/store").lines[-1] == "1 file found with no chksum."
    os.utime(pool.local("/store/n1"), (5, 5))
    assert "(stale)" in pool.ours("chksum", "ls", "/store/n1").lines[0]
    assert pool.ours("chksum", "-pfn", "-t", "md5", "calc", str(pool.local("/store/n1"))).lines[0].startswith("md5 ")
    assert pool.ours("chksum", "unset", "/store/n1").status == 0
    assert pool.attribute("/store/n1", "user.XrdCks.adler32") is None


def test_lock_files_have_the_time_of_the_state(filled):
    pool = filled
    for words, seconds in (("makelf /store/n1", -113), ("makelf -p /store/n1", 113), ("makelf -m /store/n1", -113)):
        assert pool.ours(*words.split()).lines == ["1 lock file made."]
        assert int(pool.local("/store/n1.lock").stat().st_mtime) == 1_600_000_000 + seconds
        assert "Found old-style" not in str(pool.ours("find", "unmig", "/store"))
    assert pool.ours("makelf", "-o", "no-such-user", "/store/n1").lines == ["frm_admin: Invalid user name - no-such-user"]
    assert pool.ours("find", "nolk", "/store").lines[-1] == "1 missing lock file found."
    # The file of a user that happens to have the name keeps its content, and a link is not followed.
    victim = pool.top / "victim"
    victim.write_bytes(b"")
    os.utime(victim, (7, 7))
    pool.local("/store/n2.lock").symlink_to(victim)
    assert pool.ours("makelf", "/store/n2").status == 4 and victim.stat().st_mtime == 7
    pool.local("/store/n2.lock").unlink()
    pool.local("/store/n2.lock").write_bytes(b"mine")
    assert pool.ours("makelf", "/store/n2").status == 4
    assert pool.local("/store/n2.lock").read_bytes() == b"mine"


def test_planted_links_lead_nowhere(filled):
    pool = filled
    victim = pool.top / "victim"
    victim.write_bytes(b"secret")
    (pool.top / "away").mkdir()
    (pool.top / "away/inner").write_bytes(b"inner")
    pool.local("/store/evil").symlink_to(victim)
    pool.local("/store/evildir").symlink_to(pool.top / "away")
    # Also one that looks like a data file of a space.
    (pool.top / "elsewhere/other/00").mkdir(parents=True)
    fake = pool.top / "elsewhere/other/00/x%"
    fake.write_bytes(b"fake")
    pool.local("/store/fake").symlink_to(fake)
    for words in (
        "mark /store/evil", "mark -p -f /store/evil", "mark -r /store", "pin -k 1h /store/evil", "pin -r -k 1h /store",
        "mmap /store/evil", "mmap -r /store", "makelf -r /store", "chksum calc /store/evil", "reloc /store/evil other",
        "mark /store/fake", "audit -fix -f -r names /store", "chksum set 084b021f /store/fake",
        "mark /store/evildir/inner", "reloc /store/fake public",
    ):
        pool.ours(*words.split(), answers="y\n" * 5)
    assert os.listxattr(victim) == os.listxattr(fake) == os.listxattr(pool.top / "away/inner") == []
    assert pool.local("/store/evil").is_symlink() and victim.read_bytes() == b"secret"
    done = pool.ours("rm", "-r", "-f", "/store")
    assert done.status == 0, done
    assert victim.read_bytes() == b"secret" and (pool.top / "away/inner").exists() and fake.exists()


def test_names_of_others_cannot_forge_lines(pool):
    name = "/store/a\n1 file marked purgeable.\x1b[31m"
    pool.put(name)
    done = pool.ours("find", "unmig", "/store")
    assert len(done.lines) == 2 and "\\n1 file marked" in done.lines[0] and "\x1b" not in done.lines[0]
    assert pool.ours("mark", name).lines == ["1 file marked migratable."]
    assert pool.ours("mark", name).status == 0
    done = pool.ours("rm", "-e", name)
    assert len(done.lines) == 2 and done.status == 0


def test_commands_are_read_from_the_input(filled):
    done = filled.ours(answers="query pfn /store/n1\nfoo\n\nexit\nquery pfn /plain\n")
    assert done.lines == [str(filled.local("/store/n1")), "frm_admin: Invalid command - foo"] and done.status == 4
    assert filled.ours(answers="foo\nquery pfn /store/n1\n").status == 0
    for words, status in ((["-z"], 1), (["-c"], 1), (["-h"], 0)):
        done = subprocess.run([peers.link("frm_admin"), *words], capture_output=True, timeout=30, check=False)
        assert done.returncode == status and b"Usage: frm_admin  [-c <cfgfile>]" in done.stderr
    (filled.top / "config").unlink()
    assert filled.ours("query", "pfn", "/a").status == 4
