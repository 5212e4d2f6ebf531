"""Messages about prepared files, and names in mass storage."""

import socket
import struct

import peers
import raw
import tapes
from tools import wait_until, xrdcp, xrdfs

# Answers all questions about names, and keeps the words of orders.
NAMES = """\
#!/bin/sh
cd "${0%/*}"
[ "$1" = statx ] || echo "$*" >> orders
case $1 in
statx) [ -e "$2" ] || { echo 2; exit; }
  echo 0
  exec stat -c '%A %h %u %g %X %Z %Y %s %o %b' "$2";;
dlist) [ -d "$2" ] || { echo 2; exit; }
  echo 0
  ls -A "$2";;
rm) [ -e "$2" ] || { echo 2; exit; }
  rm "$2" && echo 0 || echo 13;;
create) [ ! -e "$2" ] && : > "$2" && echo 0 || echo 17;;
mv) [ -e "$2" ] || { echo 2; exit; }
  mv "$2" "$3" && echo 0 || echo 13;;
*) echo 38;;
esac
"""

COPY = """\
#!/bin/sh
[ -e "$1" ] || exit 2
cat "$1" > "$2"
"""


def prepare(connection, options, port, path):
    """Returns the id of a prepare request (3021) with a port for messages."""
    return connection.ask(3021, struct.pack(">BBHH10x", options, 0, port, 0), path.encode()).rstrip(b"\0").decode()


def test_a_client_gets_a_message_for_each_prepared_file(begin):
    with tapes.tape(copy=COPY) as tape, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        port = receiver.getsockname()[1]
        tape.put("one", b"1")
        server = begin(peers.Linked(settings=tape.copies_in(), export="/ stage"))
        with raw.Connection(server) as connection:
            for path, word in (("/one", "ready"), ("/one", "ready"), ("/none", "unprep")):
                request = prepare(connection, 8 | 2, port, path)
                assert receiver.recv(4096).decode() == f"{word} {request}  {path}"
            # Failures are not wanted here, so the next message is that of the file that is there.
            prepare(connection, 8 | 2 | 4, port, "/nothing")
            request = prepare(connection, 8 | 2, port, "/one")
            assert receiver.recv(4096).decode() == f"ready {request}  /one"


def test_names_change_on_tape_too(begin, tmp_path):
    with tapes.tape(copy=COPY, names=NAMES) as tape:
        for name in ("d/both", "d/tape", "d/old"):
            tape.put(name, b"12345")
        peers.give(tape.files / "d")
        settings = tape.copies_in(more=f"oss.rsscmd {tape.directory}/names\n")
        server = begin(peers.Linked(settings=settings, export="/ stage check dread"))
        xrdcp(server.url("/d/both"), tmp_path / "both").ok()
        listed = xrdfs(server, "ls", "/d").ok().out.split()
        assert sorted(listed) == ["/d/both", "/d/old", "/d/tape"]
        for name in ("both", "tape"):
            xrdfs(server, "rm", f"/d/{name}").ok()
            assert tape.content(f"d/{name}") is None and not (server.tree / "d" / name).exists()
        xrdcp(server.url("/d/tape"), tmp_path / "gone").fails(54, "[3011]")
        xrdfs(server, "mv", "/d/old", "/d/new").fails(54, "in mass storage only")
        xrdcp(server.url("/d/old"), tmp_path / "old").ok()
        xrdfs(server, "mv", "/d/old", "/d/new").ok()
        assert tape.content("d/new") == b"12345" and tape.content("d/old") is None
        xrdcp(server.url("/d/new"), tmp_path / "new").ok()
        orders = (tape.directory / "orders").read_text().splitlines()
        files = str(tape.files)
        assert [line.replace(files, "") for line in orders if not line.startswith("dlist")] == [
            "rm /d/both", "rm /d/tape", "mv /d/old /d/new"]
        wait_until(lambda: sorted(xrdfs(server, "ls", "/d").ok().out.split()) == ["/d/new"])


def test_new_files_are_created_on_tape_and_never_emptied_there(begin, tmp_path):
    with tapes.tape(copy=COPY, names=NAMES) as tape:
        tape.put("old", b"12345")
        settings = tape.copies_in(more=f"oss.rsscmd {tape.directory}/names\n")
        server = begin(peers.Linked(settings=settings, export="/ stage rcreate"))
        source = tmp_path / "source"
        source.write_bytes(b"new")
        for name in ("new", "old"):
            xrdcp("--force", source, server.url(f"/{name}")).ok()
            assert (server.tree / name).read_bytes() == b"new"
        assert tape.content("new") == b"" and tape.content("old") == b"12345"
        xrdcp(source, server.url("/new")).fails(50, "file exists")
        orders = (tape.directory / "orders").read_text().splitlines()
        assert [line.replace(str(tape.files), "") for line in orders] == ["create /new 644"]
