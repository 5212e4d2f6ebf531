"""The queue of transfers after a crash or a power failure at each of its storage calls: no request that was acknowledged
is lost, and none that was cancelled comes back."""

import os
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

import peers
import storage_calls

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

# The real program reads the queue after one in so many of them.
OPENED_EVERY = 40

# A call that acknowledges nothing.
NOTHING = (set(), set(), set())

CONFIG = """\
all.adminpath {top}/admin
all.export / stage mig
oss.localroot {top}/tree
oss.remoteroot {top}/tape
frm.xfr.copymax 1
frm.xfr.copycmd in /bin/cp $SRC $DST
frm.xfr.copycmd out /bin/cp $SRC $DST
"""


@pytest.fixture
def top(tmp_path):
    for name in ("admin", "tree", "tape"):
        (tmp_path / name).mkdir()
    (tmp_path / "config").write_text(CONFIG.format(top=tmp_path))
    return tmp_path


def files_of(directory):
    """Returns the paths in the queue in a directory, after a check of the database, or an empty set without one."""
    if not (directory / "queue.sqlite").exists():
        return set()
    with sqlite3.connect(directory / "queue.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {name for name, in database.execute("SELECT name FROM sqlite_master")}
        rows = database.execute("SELECT path FROM entries WHERE state < 3").fetchall() if "entries" in tables else []
    database.close()
    return {bytes(path).decode() for path, in rows}


class Images:
    """Checks what a crash would leave."""

    def __init__(self, top):
        self.top = top
        self.place = top / "image/frm"
        self.number = 0

    def check(self, files, wanted, gone, where):
        """Opens these files as a queue, which must have all files of `wanted` and none of `gone`."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True, mode=0o700)
        os.chmod(self.place.parent, 0o700)
        for path, content in files.items():
            # The index of the log is memory of the processes that use it, and nothing after them.
            if not path.endswith("-shm"):
                (self.place / Path(path).name).write_bytes(content)
        self.number += 1
        if self.number % OPENED_EVERY == 0:
            config = (self.top / "config").read_text().replace(f"{self.top}/admin", f"{self.top}/image")
            (self.top / "image.config").write_text(config)
            done = subprocess.run([peers.link("frm_xfragent"), "-c", self.top / "image.config"], input=b"?\n", capture_output=True,
                                  timeout=60, check=False)
            assert done.returncode == 8, (where, done.stderr)
            found = {line.strip() for line in done.stdout.decode().splitlines() if line.strip()}
        else:
            found = files_of(self.place)
        assert wanted <= found, f"{where}: lost {wanted - found}"
        assert not gone & found, f"{where}: came back {gone & found}"


def sweep(top, trace, acknowledge, is_elsewhere=lambda path, number: False, disk=None):
    """Crashes after each call of a trace that begins with this disk. `acknowledge(call)` returns the changes that a call acknowledges: the files that
    must be in the queue from then on, those that must not, and those that may leave it. Returns the number of calls."""
    disk, images, rng = disk or storage_calls.Disk(top / "admin/frm"), Images(top), random.Random(7)
    wanted, gone, number = set(), set(), 0
    for at, call in enumerate(trace):
        more, less, free = acknowledge(call)
        wanted, gone = (wanted | more) - less - free, (gone | less) - more
        if not disk.run(call) and not more and not less:
            continue
        number += 1
        kept = {path for path in wanted if not is_elsewhere(path, at)}
        images.check(disk.after_crash(), kept, gone, f"crash after {at} {call[:2]}")
        images.check(disk.after_power_failure(), kept, gone, f"power failure after {at} {call[:2]}")
        for _ in range(2):
            images.check(disk.after_power_failure(rng), kept, gone, f"power failure with parts after {at} {call[:2]}")
    return number


def test_acknowledged_requests_survive_a_power_failure_after_each_storage_call(top):
    lines, changes = [], []
    for number in range(6):
        paths = {f"/{number}/{name}" for name in "abc"}
        lines += [f"+ ID{number} - {number % 3} w {' '.join(sorted(paths))}", "?"]
        changes.append((paths, set()))
    for number in (1, 4):
        lines += [f"- ID{number}", "?"]
        changes.append((set(), {f"/{number}/{name}" for name in "abc"}))
    # The answer to a list begins after the line before it was handled, so what that asked for is acknowledged.
    trace = top / "trace"
    done = subprocess.run(storage_calls.command(trace, peers.link("frm_xfragent"), "-c", top / "config"),
                          input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 8, done.stderr
    calls = storage_calls.calls(trace.read_text())
    left = list(changes)

    def acknowledge(call):
        # Each list ends with an empty line. The next line may be in force at any time from now on.
        if call != ("print", b"\n"):
            return NOTHING
        more, less = left.pop(0)
        return more, less, left[0][1] if left else set()

    assert sweep(top, calls, acknowledge) > 150
    assert not left


def test_a_transfer_leaves_the_queue_only_when_its_file_is_durable(top):
    paths = {f"/{name}" for name in ("one", "two", "three")}
    for path in paths:
        (top / "tape" / path[1:]).write_bytes(path.encode() * 1000)
    agent = [peers.link("frm_xfragent"), "-c", top / "config"]
    done = subprocess.run(agent, input=f"+ ID1 - 0 w {' '.join(paths)}\n".encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 8, done.stderr
    trace, queue = top / "trace", top / "admin/frm"
    before = {str(file): file.read_bytes() for file in queue.iterdir() if file.name.startswith("queue.sqlite")}
    with open(top / "log", "wb") as log:
        process = subprocess.Popen(storage_calls.command(trace, peers.link("frm_xfrd"), "-c", top / "config"), stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    try:
        patience = peers.Patience(60)
        while files_left(queue) and not patience.over():
            peers.time.sleep(0.1)
        assert not files_left(queue), (top / "log").read_text()
    finally:
        os.killpg(process.pid, peers.signal.SIGTERM)
        process.wait(60)
    calls = storage_calls.calls(trace.read_text())
    durable = durable_files(calls, top / "tree")
    assert set(durable) == paths
    # The trace begins with what the agent has left, all of it durable.
    disk = storage_calls.Disk(queue)
    for path, content in before.items():
        for call in (("create", path), ("write", path, 0, content), ("sync", path)):
            disk.run(call)
    disk.run(("sync", str(queue)))
    begin = ("print", b"begin")

    def acknowledge(call):
        return (paths, set(), set()) if call == begin else NOTHING

    def is_elsewhere(path, at):
        return durable[path] < at

    assert sweep(top, [begin, *calls], acknowledge, is_elsewhere, disk) > 50


def files_left(queue):
    with sqlite3.connect(f"file:{queue}/queue.sqlite?mode=ro", uri=True) as database:
        left = database.execute("SELECT count(*) FROM entries").fetchone()[0]
    database.close()
    return left


def durable_files(calls, tree):
    """Returns the numbers of the calls after which the files in a tree are durable under their names."""
    synced, renamed, durable = set(), {}, {}
    for at, call in enumerate(calls):
        if call[0] == "sync" and call[1] == str(tree):
            durable.update({path: at for path in renamed if path not in durable})
        elif call[0] == "sync":
            synced.add(call[1])
        elif call[0] == "rename" and Path(call[2]).parent == tree:
            assert call[1] in synced, f"{call} before the sync of the content"
            renamed["/" + Path(call[2]).name] = at
    return durable
