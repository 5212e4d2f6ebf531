"""Programs that are started once and read a line for each file to be staged (`oss.stagecmd [async] |PROGRAM`).

The programs are scripts of a site, and the clients are the real ones."""

import contextlib
import subprocess

import pytest

import peers
import tapes
from tapes import is_running, names
from tools import XRDCP, data, wait_until, xrdcp, xrdfs

# Copies files in two steps. Between them it waits as long as there is a file `hold` beside it, and dies once if there is `die`.
AGENT = """\
#!/bin/sh
cd "${0%/*}"
sleep 600 &
echo $$ $! >> starts
while read -r request pipe name source target; do
  echo "$name" >> runs
  [ -e "$source" ] || { echo "stage ENOENT $request not in the library"; continue; }
  head -c 1000 "$source" > "$target"
  while [ -e hold ]; do sleep 0.05; done
  rm die 2> /dev/null && kill -9 $$
  [ -e broken ] && { echo "stage BAD $request no drive is free"; continue; }
  cat "$source" > "$target"
  echo "stage OK $request"
done
kill $!
"""

# Brings all files at once, reports to the pipe, and writes other things to its output.
NOISY = """\
#!/usr/bin/env python3
import os, shutil, sys, threading
print("stage OK /file\\nready", flush=True)

def bring(request, pipe, name, source, target):
    sys.stdout.buffer.write(b"stage OK " + request.encode() + b"x" * 1_000_000 + b"\\n" + os.urandom(5000) + b"\\n")
    sys.stdout.buffer.write(b"stage OK\\nstage BAD\\nstage OK /other\\n\\n" + b"y" * 1_000_000)
    sys.stdout.flush()
    part = target + ".part"
    shutil.copyfile(source, part)
    os.rename(part, target)
    with open(pipe.removeprefix("file://"), "w") as pipe:
        pipe.write(f"stage OK {request} {name}\\n")

threads = []
for line in sys.stdin:
    threads.append(threading.Thread(target=bring, args=line.split()))
    threads[-1].start()
"""

HANG = """\
#!/bin/sh
cd "${0%/*}"
sleep 600 &
echo $$ $! >> starts
read -r line
sleep 600
"""

# Sets the size of a file, and brings its content in two pieces, each of them while there is no `first` or `second`. It
# reports nothing.
SILENT = """\
#!/bin/sh
cd "${0%/*}"
while read -r name source target; do
  echo "$name" >> runs
  [ -L "$source" ] && { ln -s "$source" "$target"; continue; }
  { truncate -s 100000 "$target"
    while [ -e first ]; do sleep 0.05; done
    dd if="$source" of="$target" bs=1000 count=50 conv=notrunc
    touch half
    while [ -e second ]; do sleep 0.05; done
    dd if="$source" of="$target" bs=1000 skip=50 seek=50 conv=notrunc; } 2> dd < /dev/null &
done
"""

# Returns the status of a file with its checksum.
SUMS = """\
#!/usr/bin/env python3
import os, sys, zlib
_, verb, name = sys.argv
if not os.path.lexists(name):
    sys.exit(print(2))
content = b"" if os.path.islink(name) else open(name, "rb").read()
sum = "" if name.endswith("unsummed") else f" adler32:{zlib.adler32(content):08x}"
print(f"0\\n-rw-r--r-- 1 0 0 1 1 1 {len(content)} 4096 1{sum}")
"""

MESSAGE = "oss.stagemsg $RID $NOTIFY $LFN $SRC $DST\n"


@pytest.fixture
def tape():
    with tapes.tape(agent=AGENT, noisy=NOISY, hang=HANG, silent=SILENT, sums=SUMS) as tape:
        yield tape


@pytest.fixture
def stage(begin, tape):
    """Starts a server that stages with a program: `stage(program, more)`."""
    def start(program="agent", more=""):
        settings = f"oss.remoteroot {tape.files}\noss.stagecmd async |{tape.directory}/{program}\n{MESSAGE}{more}"
        return begin(peers.Linked(settings=settings, export="/ stage"))
    return start


def processes(tape):
    """Returns the processes of each start of the program."""
    starts = tape.directory / "starts"
    return [line.split() for line in starts.read_text().splitlines()] if starts.exists() else []


@contextlib.contextmanager
def client(server, path, target):
    """A client that copies a file, and is killed at the end."""
    process = subprocess.Popen([XRDCP, "--nopbar", server.url(path), target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_one_program_brings_all_files(tape, stage, tmp_path):
    for number in range(5):
        tape.put(f"d/f{number}", data(100_000 + number))
    server = stage()
    for number in range(5):
        xrdcp(server.url(f"/d/f{number}"), tmp_path / f"f{number}").ok()
        assert (tmp_path / f"f{number}").read_bytes() == data(100_000 + number)
    assert names(server.tree / "d") == [f"f{number}" for number in range(5)]
    xrdcp(server.url("/none"), tmp_path / "none").fails(54, "[3011]")
    assert len(processes(tape)) == 1 and tape.runs() == [f"/d/f{number}" for number in range(5)] + ["/none"]
    # A name that would be read as two words is not given to it.
    tape.put("a b", b"1")
    xrdfs(server, "cat", "/a b").fails(54, "names with blanks")
    assert len(tape.runs()) == 6 and names(server.tree) == ["d"]


def test_clients_of_one_file_share_a_request_and_others_are_served(tape, stage, tmp_path):
    content = data(200_000)
    tape.put("file", content)
    server = stage()
    (server.tree / "here").write_bytes(b"here")
    with contextlib.ExitStack() as stack:
        with tape.flag("hold"):
            clients = [stack.enter_context(client(server, "/file", tmp_path / str(number))) for number in range(5)]
            wait_until(lambda: tape.runs())
            # The part that is there has another name.
            wait_until(lambda: any(path.stat().st_size == 1000 for path in server.tree.iterdir()))
            assert xrdfs(server, "cat", "/here").ok().out == "here"
            assert xrdfs(server, "ls", "/").ok().out.split() == ["/here"]
        for each in clients:
            assert each.wait(120) == 0
    assert all((tmp_path / str(number)).read_bytes() == content for number in range(5))
    assert tape.runs() == ["/file"]


def test_a_program_that_dies_gets_its_requests_again(tape, stage, tmp_path):
    content = data(200_000)
    tape.put("file", content)
    (tape.directory / "die").touch()
    peers.give(tape.directory / "die")
    server = stage()
    xrdcp(server.url("/file"), tmp_path / "target").ok()
    assert (tmp_path / "target").read_bytes() == content and names(server.tree) == ["file"]
    (first, second) = processes(tape)
    assert tape.runs() == ["/file", "/file"] and not any(map(is_running, first)) and all(map(is_running, second))
    assert server.stop() == 0
    assert not any(map(is_running, second))


def test_a_failure_has_the_reason_of_the_program(tape, stage, tmp_path):
    tape.put("file", data(5000))
    server = stage(more="oss.xfr deny 0\n")
    with tape.flag("broken"):
        failed = xrdcp(server.url("/file"), tmp_path / "target").fails(54, "Unable to open /file; staging failed")
        assert "could not bring it: no drive is free" in failed.all
        assert len(tape.runs()) == 3 and names(server.tree) == []
    xrdcp(server.url("/file"), tmp_path / "target").ok()
    assert len(processes(tape)) == 1


def test_other_output_of_a_program_has_no_effect(tape, stage, tmp_path):
    content = data(300_000)
    for number in range(20):
        tape.put(f"f{number}", content)
    server = stage("noisy")
    with contextlib.ExitStack() as stack:
        copies = [stack.enter_context(client(server, f"/f{number}", tmp_path / str(number))) for number in range(20)]
        for copy in copies:
            assert copy.wait(120) == 0
    assert all((tmp_path / str(number)).read_bytes() == content for number in range(20))
    assert names(server.tree) == sorted(f"f{number}" for number in range(20))
    assert "output of the program of oss.stagecmd" in server.output()
    assert len(server.output()) < 1_000_000


def test_a_program_that_hangs_is_ended_with_its_group(tape, stage, tmp_path):
    # The time limit is that of the other form.
    server = stage("hang", more=f"frm.xfr.copycmd in timeout 1 {tape.directory}/hang $SRC $DST\n")
    failed = xrdcp(server.url("/file"), tmp_path / "target").fails(54, "staging failed")
    assert "hang has not reported the end of the file within 1 s" in failed.all
    started = processes(tape)
    assert len(started) == 3
    wait_until(lambda: not any(map(is_running, sum(started, []))))
    assert names(server.tree) == []


def test_files_are_whole_whenever_the_server_is_killed(tape, stage):
    """The program of a killed server is stopped in the middle of a file. Nothing of it is seen, and it writes nothing later."""
    contents = {f"f{number}": data(50_000 + number) for number in range(12)}
    for name, content in contents.items():
        tape.put(name, content)
    server = stage(more="oss.xfr 3\n")

    def arrived():
        # Names of temporary files begin with a dot.
        found = [path for path in server.tree.iterdir() if not path.name.startswith(".")]
        assert all(path.read_bytes() == contents[path.name] for path in found)
        return len(found)

    with tape.flag("hold"):
        xrdfs(server, "prepare", "-s", *[f"/{name}" for name in contents]).ok()
        wait_until(lambda: tape.runs())
        server.kill()
        (first,) = processes(tape)
        assert all(map(is_running, first)), "it outlives the server"
        server.start()
        wait_until(lambda: len(processes(tape)) == 2)
        # It was ended before the next one started.
        assert not any(map(is_running, first)) and arrived() == 0
    for wanted in (2, 5, 8):
        wait_until(lambda: arrived() >= wanted)
        server.restart()
    wait_until(lambda: arrived() == len(contents))
    assert names(server.tree) == sorted(contents)


def test_settings_without_a_file_to_write_stop_the_start(tape):
    def refusal(lines):
        return peers.refused_start(peers.Ours(settings=f"all.export / stage\noss.remoteroot {tape.files}\n{lines}"))

    command = f"oss.stagecmd async |{tape.directory}/agent\n"
    assert "set oss.stagemsg with $DST" in refusal(command)
    assert "set oss.stagemsg with $DST" in refusal(command + "oss.stagemsg + $RID $NOTIFY 0 wfn $LFN\n")
    assert "set oss.stagemsg with $RID" in refusal(command + "oss.stagemsg $LFN $DST\n")
    assert "oss.stagemsg: $CGI has no value here" in refusal(command + "oss.stagemsg $RID $DST $CGI\n")
    assert "use 'async |' with a program that reports them" in refusal(f"oss.stagecmd |{tape.directory}/agent\n{MESSAGE}")
    # It would never be asked for a new file.
    catalog = f"oss.rsscmd {tape.directory}/sums\n"
    assert "remove creates, or oss.rsscmd" in refusal(f"{catalog}oss.stagecmd creates {tape.directory}/agent\n")
    assert "use 'creates async |'" in refusal(f"{catalog}oss.stagecmd creates |{tape.directory}/agent\n{MESSAGE}")


def test_a_program_that_reports_nothing_is_watched(tape, begin, tmp_path):
    """The file has its size before its content, and nobody has it open between its pieces."""
    settings = f"oss.remoteroot {tape.files}\noss.rsscmd {tape.directory}/sums\noss.stagecmd |{tape.directory}/silent\noss.stagemsg $LFN $SRC $DST\n"
    server = begin(peers.Linked(settings=settings, export="/ stage"))
    tape.put("d/f", data(100_000))
    tape.put("quick", data(100_000))
    tape.put("unsummed", data(100_000))
    (tape.files / "link").symlink_to("/etc/hostname")
    with client(server, "/d/f", tmp_path / "f") as copy:
        with tape.flag("second"):
            with tape.flag("first"):
                wait_until(lambda: tape.runs())
                # It is refused without harm for the other one.
                xrdfs(server, "cat", "/link").fails(54, "the server cannot see whether it is complete")
            wait_until(lambda: (tape.directory / "half").exists())
            xrdfs(server, "cat", "/unsummed").fails(54, "returns no checksum of the file")
            assert not (server.tree / "d/f").exists() and copy.poll() is None
        assert copy.wait(120) == 0
    assert (tmp_path / "f").read_bytes() == data(100_000) == (server.tree / "d/f").read_bytes()
    xrdcp(server.url("/quick"), tmp_path / "quick").ok()
    assert (tmp_path / "quick").read_bytes() == data(100_000)
    xrdcp(server.url("/none"), tmp_path / "none").fails(54, "[3011]")
    # A file without a checksum, and one that is missing, cost no line.
    assert tape.runs() == ["/d/f", "/link", "/quick"]
