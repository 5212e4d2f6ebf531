"""Servers that answer a read with fewer bytes than were asked for: that is not the end of the file, and a file that ends before its
size is a failure."""

import struct
import zlib

import pytest

import hollow
import peers
import raw
from tools import run, scalla

CONTENT = b"".join(b"line %d\n" % number for number in range(60_000))
LINES = CONTENT.splitlines(keepends=True)


class Stingy(hollow.Manager):
    """A server with one file, `CONTENT`, whose answers to reads have at most `most` bytes, and none behind `end`."""

    def __init__(self, most, end=len(CONTENT)):
        super().__init__(flags=hollow.IS_SERVER)
        self.most = most
        self.end = end

    def _serve(self, connection):
        try:
            self._talk(connection)
        except OSError:
            pass  # The client has ended.

    def _talk(self, connection):
        status = b"7 %d 48 99\0" % len(CONTENT)
        with connection, connection.makefile("rb") as requests:
            requests.read(20)
            connection.sendall(struct.pack(">HHiii", 0, 0, 8, 0x520, 0))
            while len(head := requests.read(24)) == 24:
                stream, code, offset, wanted, length = struct.unpack(">HH4xqii", head)
                requests.read(length)
                answer = raw.OK, b""
                if code == raw.STAT:
                    answer = raw.OK, status
                elif code == raw.OPEN:
                    answer = raw.OK, bytes(12) + status
                elif code == raw.READ:
                    # Not even the same number each time.
                    most = self.most - offset % 7
                    answer = raw.OK, CONTENT[offset:min(offset + min(wanted, most), self.end)]
                elif code != raw.CLOSE:
                    answer = self._answer(code)
                connection.sendall(struct.pack(">HHi", stream, answer[0], len(answer[1])) + answer[1])


@pytest.fixture(scope="module")
def stingy():
    with Stingy(1000) as server:
        yield server


READS = [
    ("cat", CONTENT), ("head -n 5", b"".join(LINES[:5])), ("head -n 20000", b"".join(LINES[:20_000])), ("head -n 70000", CONTENT),
    ("head -c 100001", CONTENT[:100_001]), ("tail -n 3", b"".join(LINES[-3:])), ("tail -n 30000", b"".join(LINES[-30_000:])),
    ("tail -n 70000", CONTENT), ("tail -n +30000", b"".join(LINES[29_999:])), ("tail -c 70001", CONTENT[-70_001:]),
    ("tail -c +70001", CONTENT[70_000:]),
]


@pytest.mark.parametrize("words,expected", READS, ids=[words for words, _ in READS])
def test_a_short_answer_is_not_the_end(stingy, words, expected):
    assert scalla(*words.split(), f"root://{stingy.host}//f").ok().raw == expected


def test_a_short_answer_is_not_the_end_of_sums_and_for_xrdfs(stingy, tmp_path):
    assert f"{zlib.adler32(CONTENT):08x}" in scalla("checksum", "--read", "-t", "adler32", f"root://{stingy.host}//f").ok().out
    xrdfs = [peers.link("xrdfs"), stingy.host]
    assert run([*xrdfs, "cat", "/f"]).ok().raw == CONTENT
    assert run([*xrdfs, "tail", "-c", "70001", "/f"]).ok().raw == CONTENT[-70_001:]


@pytest.mark.parametrize("words", ["cat", "head -n 70000", "head -c 400000", "tail -n 3", "tail -c 100000", "tail -n +5"])
def test_a_file_that_ends_before_its_size_is_a_failure(words):
    with Stingy(1000, end=300_000) as server:
        result = scalla(*words.split(), f"root://{server.host}//f").fails(1, "ended at byte")
        assert result.raw in CONTENT[:300_000]


@pytest.mark.parametrize("more", [[], ["--parallel", "1"], ["-x"], ["--checksum", "adler32:verify"]], ids=" ".join)
def test_a_copy_reads_on_after_a_short_answer(stingy, tmp_path, more):
    more = [word.replace("verify", f"{zlib.adler32(CONTENT):08x}") for word in more]
    scalla("cp", *more, f"root://{stingy.host}//f", tmp_path / "f").ok()
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_xrdcp_reads_on_after_a_short_answer(stingy, tmp_path):
    run([peers.link("xrdcp"), f"root://{stingy.host}//f", tmp_path / "f"]).ok()
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("more", [[], ["-x"]], ids=" ".join)
def test_a_copy_of_a_file_that_ends_before_its_size_is_a_failure(tmp_path, more):
    with Stingy(1000, end=300_000) as server:
        result = scalla("cp", *more, f"root://{server.host}//f", tmp_path / "f")
        result.fails(1, f"at byte 300000 of {len(CONTENT)}")
        assert run([peers.link("xrdcp"), f"root://{server.host}//f", tmp_path / "f"]).status != 0
    assert list(tmp_path.iterdir()) == []
