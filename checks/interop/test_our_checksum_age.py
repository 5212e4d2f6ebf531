"""A stored checksum does not outlive a direct change of the file on disk, not even one within the
same second."""

import os
import struct

import pytest

from tools import scalla


def test_a_change_within_the_same_second(ours, tmp_path):
    path = ours.tree / "aging"
    source = tmp_path / "source"
    source.write_bytes(b"x" * 500_000)
    try:
        scalla("cp", "-f", source, ours.url("/aging")).ok()
        before = scalla("checksum", ours.url("/aging")).ok().out
        (tmp_path / "list").write_text(before)
        for content in (b"bad\n", b"y" * 500_000):
            at = path.stat()
            path.write_bytes(content)
            # The same second, another fraction of it.
            second = at.st_mtime_ns // 10**9 * 10**9
            os.utime(path, ns=(at.st_atime_ns, second + (at.st_mtime_ns + 5_000_000) % 10**9))
            assert scalla("checksum", ours.url("/aging")).ok().out != before
            scalla("checksum", "--check", tmp_path / "list").fails(1)
    finally:
        path.unlink()


@pytest.mark.parametrize("delay", [0, 1])
def test_a_checksum_that_another_server_stored_within_the_second(ours, delay):
    """It stores no fractions: a value computed in the second of the change may be that of the
    earlier content."""
    path = ours.tree / "aging"
    path.write_bytes(b"123456789")
    try:
        stored = struct.pack(">16sqi3sB64s", b"adler32", int(path.stat().st_mtime), delay, bytes(3), 4, bytes.fromhex("01020304"))
        os.setxattr(path, "user.XrdCks.adler32", stored)
        told = scalla("checksum", "-t", "adler32", ours.url("/aging")).ok().out
        assert ("01020304" in told) == bool(delay) and ("091e01de" in told) == (not delay)
    finally:
        path.unlink()
