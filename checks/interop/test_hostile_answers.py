"""Endless listings: a command uses at most 64 MiB of memory and fails with the reason."""

import functools
import os
import signal
import struct
import subprocess
import sys

import pytest

import hollow
import peers
import raw
import tools
from codes import ErrorCode, ShellCode

# Beyond what the program needs to start: 8 MiB with the release build, so 64 MiB in all; a debug build needs more, also for the
# pages of its code that are mapped after the start, of which there are more when the machine is busy.
GROWTH_MAX = 60 << 20
# The reply of a server to the removal of a directory that is not empty.
NOT_EMPTY = (raw.ERROR, struct.pack(">i", ErrorCode.IT_EXISTS) + b"directory not empty\0")
MIB = 1 << 20


class Flood(hollow.Manager):
    """A server whose directories are listings of `size` bytes that repeat one entry."""

    def __init__(self, entry, size):
        super().__init__(flags=hollow.IS_SERVER)
        self.piece = entry * (MIB // len(entry))
        self.size = size

    def _reply(self, code, body, path):
        if code == raw.STAT:
            yield raw.OK, b"%d 4096 19 99\0" % len(path)
        elif code == raw.RMDIR:
            yield NOT_EMPTY
        elif code == raw.DIRLIST:
            for _ in range(self.size // MIB):
                yield raw.OKSOFAR, self.piece
            yield raw.OK, self.piece[:-1] + b"\0"
        else:
            yield self._answer(code)


# The maximum memory of a process includes that of the process from which it was forked, and a run
# of many tests uses much. A small process is therefore in between. It writes exit status and KiB to
# the descriptor in its first argument. At the end of its input the program is killed.
MEASURE = """
import os, sys, threading
program = os.fork()
if program == 0:
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.execvp(sys.argv[2], sys.argv[2:])
def end():
    if not os.read(0, 1):
        os.kill(program, 9)
threading.Thread(target=end, daemon=True).start()
_, status, usage = os.wait4(program, 0)
os.write(int(sys.argv[1]), f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}".encode())
"""


def resident(command, until=None, **environment):
    """Runs a command, until it has written a text if one is given. Returns its exit status, its
    last output, and its maximum memory."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as reader, os.fdopen(writer, "wb") as writer:
        measure = [sys.executable, "-S", "-E", "-c", MEASURE, str(writer.fileno()), *command]
        with subprocess.Popen([str(word) for word in measure], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              pass_fds=[writer.fileno()], env=peers.environment(**environment)) as done:
            out = b""
            while piece := done.stdout.read1(1 << 16):
                out = out[-(1 << 20):] + piece
                if until and until in out:
                    done.stdin.close()
                    until = None
            done.wait()
        writer.close()
        status, kib = map(int, reader.read().split())
    return status, out.decode(errors="replace"), kib * 1024


@functools.cache
def start_memory():
    """Returns the maximum memory of a program that does nothing."""
    return resident([peers.program(), "--version"])[2]


PLAIN, LONG = b"a\n", b"n" * 200 + b"\n"


@pytest.mark.parametrize("entry", [PLAIN, LONG], ids=["short", "long"])
@pytest.mark.parametrize("words", ["ls U", "ls -l U", "find U", "du U", "tree U", "sync -n U HERE", "cp -N -r U HERE", "rm -r -f U"])
def test_an_endless_listing(words, entry, tmp_path):
    with Flood(entry, 96 * MIB) as server:
        words = [word.replace("U", f"root://{server.host}//dir").replace("HERE", str(tmp_path)) for word in words.split()]
        status, out, most = resident([peers.program(), *words])
        assert status == 1 and "XRD_LISTINGBYTES" in out, out[-2000:]
        assert most <= start_memory() + GROWTH_MAX, most


def test_an_endless_listing_of_xrdfs():
    with Flood(PLAIN, 96 * MIB) as server:
        status, out, most = resident([peers.link("xrdfs"), server.host, "ls", "/dir"])
        assert status != 0 and "XRD_LISTINGBYTES" in out, out[-2000:]
        assert most <= start_memory() + GROWTH_MAX, most


class Endless(hollow.Manager):
    """A server where each directory contains one directory."""

    def __init__(self):
        super().__init__(flags=hollow.IS_SERVER)

    def _reply(self, code, body, path):
        # Each has an inode number of its own, as directories have.
        stat = b"%d 4096 19 99" % (len(path) + (3 if code == raw.DIRLIST else 1))
        yield {
            raw.STAT: (raw.OK, stat + b"\0"), raw.DIRLIST: (raw.OK, b".\n0 0 0 0\nd\n" + stat + b"\0"), raw.RMDIR: NOT_EMPTY,
        }.get(code) or self._answer(code)


@pytest.mark.parametrize("words", ["scalla ls -R U", "scalla find U", "scalla du U", "scalla tree U", "scalla sync -n U HERE", "scalla cp -N -r U HERE",
                                   "scalla rm -r -f U", "xrdfs S ls -R /d", "xrdcp -N -r U HERE"])
def test_endless_directories(words, tmp_path):
    with Endless() as server:
        name, *words = [word.replace("U", f"root://{server.host}//d").replace("HERE", str(tmp_path)).replace("S", server.host) for word in words.split()]
        status, out, most = resident([peers.program() if name == "scalla" else peers.link(name), *words])
        assert ("more than 256 directories down" in out and status != 0) or (name == "xrdfs" and "may be incomplete" in out), out[-2000:]
        assert most <= start_memory() + GROWTH_MAX, most


WIDE_MAX = 128 << 20
# The value of the settings.
LISTING_BYTES = 40_000_000


class Wide(hollow.Manager):
    """A server with directories of many directories or files, the first of which leads on. A
    listing is charged at least 16 bytes per line."""

    def __init__(self, levels, directories, files=0, name=b"n"):
        super().__init__(flags=hollow.IS_SERVER)
        self.levels, self.directories, self.files, self.name = levels, directories, files, name

    def _listing(self, depth):
        if depth > self.levels:
            yield b".\n0 0 0 0\0"
            return
        text = [b".\n0 0 0 0\n"]
        for number in range(self.directories + self.files):
            kind = 19 if number < self.directories else 16
            text.append(b"%s%07d\n%d 4096 %d 99\n" % (self.name, number, depth * 10_000_000 + number + 1000, kind))
            if len(text) == 10_000:
                yield b"".join(text)
                text.clear()
        yield (b"".join(text) or b"\n")[:-1] + b"\0"

    def _reply(self, code, body, path):
        names = path.split(b"/")[2:]
        is_first = all(name.endswith(b"0" * 7) for name in names)
        if code == raw.STAT:
            yield raw.OK, b"%d 4096 19 99\0" % len(path)
        elif code == raw.RMDIR:
            yield NOT_EMPTY
        elif code == raw.RM:
            yield raw.OK, b""
        elif code == raw.DIRLIST:
            *pieces, last = self._listing(len(names) if is_first else 1 << 30)
            for piece in pieces:
                yield raw.OKSOFAR, piece
            yield raw.OK, last
        else:
            yield self._answer(code)


def run(server, words, tmp_path, until=None):
    name, *words = words.split()
    places = {"U": f"root://{server.host}//d", "HERE": tmp_path, "S": server.host}
    words = [places.get(word, word) for word in words]
    return resident([peers.program() if name == "scalla" else peers.link(name), *words], until)


def rare(*commands):
    """These run in `make soak`: they take minutes, and walk through directories in the same way as others."""
    return [pytest.param(command, marks=pytest.mark.soak) for command in commands]


COMMANDS = ["scalla ls -R -S U", "scalla sync -n U HERE", *rare("scalla find U --name x", "scalla du -s U", "scalla tree U")]


@pytest.mark.parametrize("words", [*COMMANDS, "scalla rm -r -f U"])
def test_wide_directories_on_many_levels(words, tmp_path):
    """More directories than fit: those whose listing does not fit are reported, and the walk
    continues. It would take very long."""
    with Wide(100, 100_000) as server:
        _, out, most = run(server, words, tmp_path, until=b"XRD_LISTINGBYTES")
        assert "XRD_LISTINGBYTES" in out, out[-2000:]
        assert most <= WIDE_MAX, most


# Removing them takes minutes.
@pytest.mark.parametrize("words", ["scalla ls U", *COMMANDS, "xrdfs S ls -R /d", *rare("xrdfs S ls -R -l /d")])
def test_a_listing_just_below_the_limit(words, tmp_path):
    # An entry has about 38 bytes.
    with Wide(0, 0, LISTING_BYTES // 40, b"n" * 8) as server:
        status, out, most = run(server, words, tmp_path)
        assert status == 0, (status, out[-2000:])
        assert most <= WIDE_MAX, most


def test_xrdcp_of_a_tree_with_a_million_files(tmp_path):
    """Files are found while the first ones are copied, and failures are reported meanwhile."""
    with Wide(0, 0, LISTING_BYTES // 40, b"n" * 8) as server:
        _, out, most = run(server, "xrdcp -N -r U HERE", tmp_path, until=b"Job #2000:")
        assert "Job #2000:" in out and "Jobs total" not in out, out[-2000:]
        assert most <= WIDE_MAX, most


def test_xrdcp_copies_more_files_than_it_finds_before_the_first_copy(tmp_path):
    count = 10_100
    for directory in ("set/a", "set/b/c"):
        (tmp_path / directory).mkdir(parents=True)
    for number in range(count):
        name = ("set/a", "set/b/c")[number % 2]
        (tmp_path / name / f"{number:05}").touch()
    (tmp_path / "set/b/c/10099").write_bytes(b"last")
    (tmp_path / "target").mkdir()
    copy = tools.run([peers.link("xrdcp"), "-N", "-r", "--parallel", "4", "set", "target"], cwd=tmp_path, XRD_CPSYNC="0")
    copy.ok()
    assert len(os.listdir(tmp_path / "target/set/a")) == len(os.listdir(tmp_path / "target/set/b/c")) == count // 2
    assert (tmp_path / "target/set/b/c/10099").read_bytes() == b"last"


class Unlisted(hollow.Manager):
    """A server where each directory contains empty files, and a directory that is never listed."""

    def __init__(self, files):
        super().__init__(flags=hollow.IS_SERVER)
        self.files = files

    def _reply(self, code, body, path):
        if code == raw.STAT:
            yield raw.OK, b"%d 4096 19 99\0" % len(path)
        elif code == raw.DIRLIST and path.endswith(b"/later"):
            return
        elif code == raw.DIRLIST:
            files = b"".join(b"%05d\n%d 0 16 99\n" % (number, 1000 + number) for number in range(self.files))
            yield raw.OK, b".\n0 0 0 0\n" + files + b"later\n999 4096 19 99\0"
        elif code == raw.OPEN:
            yield raw.OK, bytes(12) + b"7 0 16 99\0"
        elif code in (raw.READ, raw.PGREAD, raw.CLOSE):
            yield raw.OK, b""
        else:
            yield self._answer(code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_xrdcp_interrupted_while_it_searches_for_further_files_fails(number, tmp_path):
    """All files found so far are copied, and none is being copied."""
    above, count = "/".join(["x" * 200] * 15), 1500
    with Unlisted(count) as server:
        command = [peers.link("xrdcp"), "-N", "-r", f"root://{server.host}//{above}/d", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=peers.environment(XRD_CPSYNC="0")) as copy:
            complete = {f"{number:05}" for number in range(count)}
            tools.wait_until(lambda: (tmp_path / "d").exists() and set(os.listdir(tmp_path / "d")) == complete, seconds=100)
            copy.send_signal(number)
            out = copy.communicate()[0].decode()
    assert copy.returncode == ShellCode.SESSION and "Operation interrupted" in out, (copy.returncode, out)
