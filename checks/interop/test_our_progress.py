"""Progress of a running command for a user: reasons for waits, one row of progress, and the result
of an interrupt."""

import os
import socket
import struct
import unicodedata

import pytest

import hollow
import peers
import raw
import terminals
from codes import Exit
from tools import data, scalla

MIB = 1024 * 1024


class Hesitant(hollow.Manager):
    """A manager that asks to wait for each open and listing."""

    def _answer(self, code):
        if code in (raw.OPEN, raw.DIRLIST, raw.STAT, raw.LOCATE):
            return raw.WAIT, struct.pack(">i", 30) + b"nobody has it\x1b[2J\0"
        return super()._answer(code)


def person(*command, columns=200, **environment):
    return terminals.Terminal([peers.program(), *command], columns=columns, **environment)


@pytest.mark.parametrize("words", [["cp"], ["ls"], ["cat"]], ids=" ".join)
def test_a_manager_that_asks_to_wait(words, tmp_path):
    with Hesitant() as server:
        target = [tmp_path / "x"] if words == ["cp"] else []
        with person(*words, f"root://{server.host}//set/f3", *target) as user:
            # The text of the server is escaped.
            user.until(f"waiting for {server.host}: nobody has it\\u001b[2J; asked again in ")
            user.until("(Ctrl-C stops)")
            user.interrupt()
            status, _ = user.end()
            assert status == Exit.INTERRUPTED and b"100%" not in user.shown



def test_a_server_that_never_answers(tmp_path):
    with hollow.Debtor("1 4096 0 1700000000") as server:
        for words in (["cp"], ["cat"]):
            target = [tmp_path / "x"] if words == ["cp"] else []
            with person(*words, f"root://{server.host}//f3", *target) as user:
                user.until(f"waiting for {server.host}: no answer for ")
                user.interrupt()
                assert user.end()[0] == 130 and b"100%" not in user.shown


def test_a_port_that_accepts_and_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with person("ls", f"root://{host}//") as user:
            user.until(f"connecting to {host} … ")
            user.interrupt()
            assert user.end()[0] == 130


def test_waits_are_not_shown_to_programs(tmp_path):
    with hollow.Debtor("1 4096 0 1700000000") as server:
        result = scalla("cat", f"root://{server.host}//f3", XRD_REQUESTTIMEOUT="3").fails(1)
        assert "waiting for" not in result.all


@pytest.mark.parametrize("columns", [20, 30, 45, 80, 120])
def test_a_bar_takes_one_row(serve_file, tmp_path, columns):
    url = serve_file("a-rather-long-name-of-a-file-run7.root", 3 * MIB)
    with person("cp", "--rate", "1m", url, tmp_path / "copy", columns=columns, XRD_CPCHUNKSIZE="65536") as user:
        status, _ = user.end()
        assert status == 0
    for row in user.shown.replace(b"\n", b"\r").split(b"\r"):
        text = terminals.ESCAPES.sub(b"", row).decode()
        width = sum(2 if unicodedata.east_asian_width(letter) == "W" else 1 for letter in text)
        # The summary at the end is not part of the bar.
        assert width <= columns or text.startswith("1 file"), (width, text)
    assert "run7.root".encode()[-4:] in user.shown
    assert (b"/3.00 MiB" in user.shown) == (columns >= 80)


def test_an_interrupted_copy_reports_the_kept_part(serve_file, tmp_path):
    url = serve_file("file", 8 * MIB)
    small = dict(XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="2")
    for words, expected in ((["-c"], "are kept, and the same command goes on there"), ([], "nothing is kept of what was on its way")):
        with person("cp", *words, "--rate", "256k", url, tmp_path / "copy", **small) as user:
            user.until("KiB")
            user.interrupt()
            assert user.end()[0] == 130
            assert expected in user.shown.decode() and "8.00 MiB" in user.shown.decode(), user.shown
        assert any(name.endswith(".part") for name in os.listdir(tmp_path)) == bool(words)
        scalla("cp", "-c", url, tmp_path / "copy").ok()
        assert (tmp_path / "copy").stat().st_size == 8 * MIB
        (tmp_path / "copy").unlink()


@pytest.fixture
def serve_file(ours):
    """Puts a file on our server, and returns its URL."""
    made = []

    def put(name, size):
        path = ours.tree / f"progress-{os.getpid()}-{name}"
        path.write_bytes(data(size))
        made.append(path)
        return ours.url(f"/{path.name}")

    yield put
    for path in made:
        path.unlink()
